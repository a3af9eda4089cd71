"""A worker process: receives tasks, sends episodes, ends when its parent does.

It is started as `python -m arac.rollout.worker FD` rather than through `multiprocessing`, so that a user's script
needs no `if __name__ == "__main__"` and the thread settings in its environment are there before NumPy loads.
"""

import signal
import sys
import traceback
from multiprocessing.connection import Connection

from arac.envs import EnvSpec, make
from arac.rollout import episode


def serve(pipe: Connection) -> None:
    """Answers each task with an `Episode`, or with the traceback of what went wrong as a string."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    spec: EnvSpec = pipe.recv()
    try:
        env = make(spec)
    except Exception:
        pipe.send(traceback.format_exc())
        return
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(episode.run(env, spec.low, spec.high, task))
        except Exception:
            pipe.send(traceback.format_exc())


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
