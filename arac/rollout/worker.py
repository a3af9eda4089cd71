"""A worker process: receives tasks, sends episodes, ends when its parent does.

It is started as `python -m arac.rollout.worker FD` rather than through `multiprocessing`, so that a user's script
needs no guard around its main part and the thread settings in its environment are there before NumPy loads.
"""

import contextlib
import signal
import sys
import traceback
from multiprocessing.connection import Connection

import gymnasium
import mujoco

from arac.envs import EnvSpec, make
from arac.rollout import episode
from arac.rollout.episode import Episode, Task


def serve(pipe: Connection) -> None:
    """Answers each task with an `Episode`, or with the traceback of what went wrong as a string."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    try:
        spec: EnvSpec = pipe.recv()
        env = make(spec)
    except Exception:
        pipe.send(traceback.format_exc())
        return
    mujoco.set_mju_user_warning(lambda _: None)  # they would go to a file in the user's folder
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        while True:
            pipe.send(_played(env, spec, pipe.recv()))


def _played(env: gymnasium.Env, spec: EnvSpec, task: Task) -> Episode | str:
    try:
        return episode.run(env, spec.low, spec.high, task)
    except Exception:
        return traceback.format_exc()


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
