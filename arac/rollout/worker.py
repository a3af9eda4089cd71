"""A worker process: receives requests, sends episodes, ends when its parent does.

It is started as `python -m arac.rollout.worker PIPE LIFELINE TRACES` rather than through `multiprocessing`, so that a
user's script needs no guard around its main part and the thread settings are in the environment before NumPy loads.
The arguments are file descriptors: PIPE receives requests and sends episodes; LIFELINE is a pipe that nobody writes to,
which breaks when the parent ends; TRACES is the file for the traceback if a signal ends the interpreter.
"""

import contextlib
import faulthandler
import signal
import sys
import traceback
from multiprocessing.connection import Connection

import mujoco

from arac.envs import EnvSpec, make
from arac.rollout.episode import Failure, run_or_failure
from arac.rollout.sending import unpacked
from arac.utils.processes import end_with, outlive_readers


def serve(pipe: Connection) -> None:
    """Send None when the environment is made, then answer each request with an `Episode` or a `Failure`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    try:
        spec: EnvSpec = unpacked(pipe.recv_bytes())
        env = make(spec)
    except Exception:
        pipe.send(Failure(traceback.format_exc(), explained=False))
        return
    mujoco.set_mju_user_warning(lambda _: None)  # MuJoCo would write its warnings to a file in the user's folder
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        pipe.send(None)
        while True:
            pipe.send(run_or_failure(env, spec.low, spec.high, unpacked(pipe.recv_bytes())))


if __name__ == "__main__":
    outlive_readers()  # an environment may print
    end_with(int(sys.argv[2]))
    faulthandler.enable(int(sys.argv[3]))
    serve(Connection(int(sys.argv[1])))
