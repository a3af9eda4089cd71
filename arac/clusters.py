"""The connection to a Ray cluster, which is an extra: `pip install 'arac-rl[ray]'`."""

import logging
import signal
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
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed; install it with `pip install 'arac-rl[ray]'`.") from None
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
        except ConnectionError as error:
            raise UserError(f"There is no Ray cluster at {address or 'RAY_ADDRESS'}: {error}") from None
        if threading.current_thread() is threading.main_thread():
            for number, handler in signals.items():  # Ray has put its own in their place
                signal.signal(number, handler)
        yield ray
    finally:
        ray.shutdown()
