"""The connection to a Ray cluster. Ray is an optional dependency: `pip install 'arac-rl[ray]'`."""

import logging
import os
import re
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from arac.errors import UserError


@contextmanager
def connected(address: str | None = None, *, show_output: bool) -> Iterator[Any]:
    """Connect to a Ray cluster and yield Ray; an existing connection is used and left open.

    Args:
        address: the address of the cluster. The default is the one in RAY_ADDRESS, else the cluster that runs on this
            machine, else a new one of this machine alone, which ends with the connection.
        show_output: whether the output of other nodes is shown here.

    Raises:
        UserError: if Ray is not installed, or there is no cluster at the address.
    """
    ray = check(address)
    if ray.is_initialized():
        yield ray
        return
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    options: dict[str, Any] = {"log_to_driver": show_output, "logging_level": logging.ERROR, "include_dashboard": False}
    try:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX warns of how Ray starts processes
                ray.init(address=address, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(f"Ray does not connect to {address or 'a cluster'}: {error}") from None
        if threading.current_thread() is threading.main_thread():
            for number, handler in signals.items():  # Ray has replaced them
                signal.signal(number, handler)
        yield ray
    finally:
        ray.shutdown()


def check(address: str | None = None) -> Any:
    """Return Ray if it can be expected to connect.

    Raises:
        UserError: if it is not installed, is connected to another cluster, or nobody listens at the address.
    """
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed; install it with `pip install 'arac-rl[ray]'`.") from None
    if not ray.is_initialized():
        _check_reachable(address or os.environ.get("RAY_ADDRESS"))
    elif address not in (None, "auto", ray.get_runtime_context().gcs_address):
        raise UserError(f"Ray is connected to another cluster than {address}; call ray.shutdown() first.")
    return ray


def _check_reachable(address: str | None) -> None:
    """Check that a process listens at a host and port: else Ray would try to connect for minutes.

    Raises:
        UserError: if none does.
    """
    found = re.fullmatch(r"(?:ray://)?([^/:]+):(\d+)", address or "")
    if found is None:  # a word that Ray knows, such as auto
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=5).close()
    except OSError as error:
        raise UserError(f"There is no Ray cluster at {address}: {error.strerror or error}.") from None
