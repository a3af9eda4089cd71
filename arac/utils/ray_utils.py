"""The connection to a Ray cluster, which is an extra: `pip install 'arac-rl[ray]'`."""

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
    """Ray, connected; a connection that is there already is used and left as it was.

    Args:
        address: of the cluster. Without one, that in RAY_ADDRESS, or the one that runs on this machine, or else a new
            one of this machine alone, which ends with the connection.
        show_output: whether what is written on other nodes is shown here.

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
                warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX's, of how Ray starts its processes
                ray.init(address=address, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(f"Ray does not connect to {address or 'a cluster'}: {error}") from None
        if threading.current_thread() is threading.main_thread():
            for number, handler in signals.items():  # Ray has put its own in their place
                signal.signal(number, handler)
        yield ray
    finally:
        ray.shutdown()


def check(address: str | None = None) -> Any:
    """Ray, if it can be expected to connect.

    Raises:
        UserError: if it cannot.
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
    """Refuses a host and port where nobody listens: Ray would try for minutes."""
    found = re.fullmatch(r"(?:ray://)?([^/:]+):(\d+)", address or "")
    if found is None:  # a word that Ray knows, such as auto
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=5).close()
    except OSError as error:
        raise UserError(f"There is no Ray cluster at {address}: {error.strerror or error}.") from None
