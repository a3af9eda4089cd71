"""A pool of worker processes on this machine; each free worker takes the next episode."""

import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import cast

from arac.envs import EnvSpec, make
from arac.errors import EnvironmentFailure, UserError
from arac.progress import Progress
from arac.rollout import episode
from arac.rollout.episode import Episode, Task

_THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class LocalPool:
    """Runs tasks on `workers` processes, or in this one if that is 0. Results come in the order of the tasks."""

    def __init__(self, spec: EnvSpec, workers: int) -> None:
        if workers > 0 and getattr(spec.registered.entry_point, "__module__", "") == "__main__":
            raise UserError(f"{spec.id} is defined in the script itself: use workers=0, or put it into a module.")
        self._spec = spec
        self._env = make(spec) if workers == 0 else None
        self._workers = [_start_worker(spec) for _ in range(workers)]

    def __enter__(self) -> "LocalPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, tasks: list[Task], progress: Progress) -> list[Episode]:
        """Every task's episode.

        Raises:
            EnvironmentFailure: if an environment raises or a worker dies.
            Interrupted: if the run was asked to stop.
        """
        return self._run_here(tasks, progress) if self._env is not None else self._run_on_workers(tasks, progress)

    def _run_here(self, tasks: list[Task], progress: Progress) -> list[Episode]:
        results = []
        for task in tasks:
            progress.check()
            results.append(episode.run(self._env, self._spec.low, self._spec.high, task))
            progress.advance()
        return results

    def _run_on_workers(self, tasks: list[Task], progress: Progress) -> list[Episode]:
        results: dict[int, Episode] = {}
        waiting = iter(enumerate(tasks))
        playing: dict[Connection, int] = {}  # which task each busy worker has

        def hand_out(pipe: Connection) -> None:
            if (item := next(waiting, None)) is not None:
                playing[pipe] = item[0]
                _send(pipe, item[1])

        for _, pipe in self._workers:
            hand_out(pipe)
        while playing:
            progress.check()
            for ready in wait(list(playing), timeout=0.2):
                pipe = cast(Connection, ready)
                results[playing.pop(pipe)] = _receive(pipe)
                hand_out(pipe)
                progress.advance()
        return [results[number] for number in range(len(tasks))]

    def close(self) -> None:
        """Ends the workers, whatever they are doing."""
        for process, pipe in self._workers:
            pipe.close()
            process.kill()
            process.wait()
        self._workers = []
        if self._env is not None:
            self._env.close()


def _start_worker(spec: EnvSpec) -> tuple[subprocess.Popen[bytes], Connection]:
    here, there = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-m", "arac.rollout.worker", str(there.fileno())],
        pass_fds=[there.fileno()],
        stdin=subprocess.DEVNULL,
        process_group=0,  # the terminal's Ctrl-C is for the parent alone
        env={
            **os.environ,
            **dict.fromkeys(_THREAD_SETTINGS, "1"),
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        },
    )
    there.close()
    pipe = Connection(here.detach())
    pipe.send(spec)
    return process, pipe


def _send(pipe: Connection, task: Task) -> None:
    try:
        pipe.send(task)
    except (BrokenPipeError, ConnectionResetError):
        _receive(pipe)  # says why, if the worker could still say it


def _receive(pipe: Connection) -> Episode:
    try:
        answer = pipe.recv()
    except (EOFError, ConnectionResetError):
        raise EnvironmentFailure("A worker process died without a word (killed, or out of memory?).") from None
    if isinstance(answer, str):
        raise EnvironmentFailure(f"The environment failed in a worker:\n{answer.rstrip()}")
    return answer
