"""Messages to worker processes, which may contain functions and classes of a user's script or notebook.

Cloudpickle sends by value what another process cannot import. It is for pipes between our own processes, not for files.
"""

import pickle
import sys
import warnings
from typing import Any, Literal

import cloudpickle

from arac.envs import EnvSpec
from arac.errors import UserError
from arac.utils.processes import cores
from arac.utils.text import in_a_line


def packed(message: Any) -> bytes:
    """Return a message as bytes, with the folders in which this process finds modules."""
    return cloudpickle.dumps((sys.path, cloudpickle.dumps(message)))


def unpacked(data: bytes) -> Any:
    """Return the message, and let this process find modules where the sender finds them."""
    path, message = pickle.loads(data)
    sys.path.extend(folder for folder in path if folder not in sys.path)
    return pickle.loads(message)


def check_sent(what: str, message: Any) -> None:
    """Check that a message can be sent to another process.

    Raises:
        UserError: if it cannot.
    """
    try:
        packed(message)
    except Exception as error:  # an object may raise anything when it is pickled
        raise UserError(f"{what} cannot be sent to another process ({in_a_line(error)}).", fields=("env",)) from None


def worker_count(env: EnvSpec, workers: int | Literal["auto"]) -> int:
    """Return the number of worker processes: with "auto" one per core, but 0 if the environment cannot be sent.

    Raises:
        UserError: if there are to be workers and the environment cannot be sent to them.
    """
    if workers == 0:
        return 0
    try:
        check_sent(env.id, env)
    except UserError as error:
        if workers != "auto":
            raise UserError(f"{error} Use workers=0.", fields=("workers",)) from None
        warnings.warn(f"{error} Episodes are played in this process.", stacklevel=2)
        return 0
    return len(cores()) if workers == "auto" else workers
