"""A pool of worker processes on this machine; each free worker takes the next episode."""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from arac.envs import EnvSpec, can_be_imported, make, not_importable
from arac.errors import EnvironmentFailure
from arac.replay.episode import Episode
from arac.rollout.episode import Failure, Task, played
from arac.utils.processes import how_it_ended, one_thread
from arac.utils.progress import Progress

# Seconds that a worker may take to import everything and make its environment, beside its first episode.
START_UP = 120.0
# How often an episode is tried whose worker dies or takes too long.
TRIES = 3


class LocalPool:
    """Runs tasks on `workers` processes, or in this one if that is 0. Results come in the order of the tasks.

    A worker that dies, or takes longer than `time_limit` seconds for an episode, is replaced and its episode run
    again, with the same result. In this process there is nothing to replace and no time limit.
    """

    def __init__(self, spec: EnvSpec, workers: int, time_limit: float | None = None) -> None:
        self.check(spec, workers)
        self._spec = spec
        self._time_limit = time_limit
        self._env = make(spec) if workers == 0 else None
        self._workers: list[Worker] = []
        try:
            for _ in range(workers):
                self._workers.append(self._new_worker())
        except BaseException:
            self.close()
            raise

    @staticmethod
    def check(spec: EnvSpec, workers: int) -> None:
        """Whether workers can make the environment.

        Raises:
            UserError: if they cannot.
        """
        if workers > 0 and not can_be_imported(spec):
            raise not_importable(spec.id)

    def _new_worker(self) -> "Worker":
        return Worker(self._spec, self._time_limit)

    def __enter__(self) -> "LocalPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Of the workers that there are now."""
        return [worker.pid for worker in self._workers]

    def run(self, tasks: list[Task], progress: Progress) -> list[Episode]:
        """Every task's episode.

        Raises:
            EnvironmentFailure: if an environment raises, or its worker dies or takes too long again and again.
            Interrupted: if the run was asked to stop.
        """
        return self._run_here(tasks, progress) if self._env is not None else self._run_on_workers(tasks, progress)

    def _run_here(self, tasks: list[Task], progress: Progress) -> list[Episode]:
        results = []
        for task in tasks:
            progress.check()
            results.append(episode_of(played(self._env, self._spec.low, self._spec.high, task), task, self._spec))
            progress.advance()
        return results

    def _run_on_workers(self, tasks: list[Task], progress: Progress) -> list[Episode]:
        results: dict[int, Episode] = {}
        waiting = deque(range(len(tasks)))
        losses: Counter[int] = Counter()  # of workers, by task
        playing: dict[int, int] = {}  # which task each busy worker has
        while len(results) < len(tasks):
            progress.check()
            for slot, worker in enumerate(self._workers):
                if slot not in playing and waiting:
                    playing[slot] = waiting.popleft()
                    worker.give(tasks[playing[slot]])
            ready = wait([self._workers[slot].pipe for slot in playing], timeout=0.2)
            for slot, number in list(playing.items()):
                worker = self._workers[slot]
                if worker.pipe not in ready and not worker.is_late():
                    continue
                try:
                    if (answer := worker.answer()) is None:  # it has only just started up
                        continue
                    results[number] = episode_of(answer, tasks[number], self._spec)
                    progress.advance()
                except WorkerLost as lost:
                    losses[number] += 1
                    self._mourn(lost, tasks[number], losses[number], progress)
                    self._workers[slot] = self._new_worker()
                    waiting.appendleft(number)
                del playing[slot]
        return [results[number] for number in range(len(tasks))]

    def _mourn(self, lost: "WorkerLost", task: Task, losses: int, progress: Progress) -> None:
        what = f"{self._spec.id} lost its worker process in the {task}: it {lost.cause}"
        if losses == TRIES:
            trace = f":\n{lost.trace}" if lost.trace else "."
            raise EnvironmentFailure(f"{what}, {losses} times in a row{trace}")
        progress.say(f"{what}; the worker is replaced and the episode run again.")

    def close(self) -> None:
        """Ends the workers, whatever they are doing."""
        for worker in self._workers:
            worker.end()
        self._workers = []
        if self._env is not None:
            self._env.close()


def episode_of(answer: Episode | Failure, task: Task, spec: EnvSpec) -> Episode:
    """What a worker answered.

    Raises:
        EnvironmentFailure: if it is no episode.
    """
    if not isinstance(answer, Failure):
        return answer
    if answer.explained:
        raise EnvironmentFailure(answer.text)
    raise EnvironmentFailure(f"{spec.id} failed in the {task}:\n{answer.text.rstrip()}")


class WorkerLost(Exception):
    """A worker process that will not answer any more."""

    def __init__(self, cause: str, trace: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.trace = trace  # what it was doing, if the interpreter could still say it


class Worker:
    """A process of its own group, so that what the environment starts ends with it, and Ctrl-C passes it by."""

    def __init__(
        self,
        spec: EnvSpec,
        time_limit: float | None,
        module: str = "arac.rollout.worker",
        variables: dict[str, str] | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        """Starts it.

        Args:
            spec: the environment that it makes.
            time_limit: seconds for each task, if there is a limit.
            module: what it runs.
            variables: of its environment, beside those of this process.
            quiet: what it writes to stderr is kept for `WorkerLost.trace` instead of being shown.
        """
        self._time_limit = time_limit
        self._ready = False
        self._deadline = float("inf")
        self._traces = tempfile.TemporaryFile()  # noqa: SIM115
        here, there = socket.socketpair()
        if time_limit is not None:  # a worker that stops reading or writing halfway must not hold us up for ever
            patience = struct.pack("ll", int(time_limit) + 1, 0)
            here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
            here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        lifeline, self._lifeline = os.pipe()  # breaks when this process ends, however it does
        inherited = there.fileno(), lifeline, self._traces.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, inherited)],
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            stderr=self._traces if quiet else None,
            process_group=0,
            env={**one_thread(), "JAX_PLATFORMS": "cpu", **(variables or {})},
        )
        there.close()
        os.close(lifeline)
        self.pipe = Connection(here.detach())
        self._send(spec)

    @property
    def pid(self) -> int:
        return self._process.pid

    def give(self, task: Any) -> None:
        self._set_deadline()
        self._send(task)

    def _set_deadline(self) -> None:
        limit = float("inf") if self._time_limit is None else self._time_limit
        self._deadline = time.monotonic() + limit + (0 if self._ready else START_UP)

    def is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def answer(self) -> Any:
        """What it answers to the task it was given; None if it says that it begins with it only now.

        Raises:
            WorkerLost: if it is dead, or late.
        """
        if self.is_late() and not self.pipe.poll():
            self._process.send_signal(signal.SIGABRT)  # on which the interpreter says where it is
            raise self._lost(f"took longer than the {self._time_limit:g} s of episode_timeout")
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            raise self._lost(None) from None
        if answer is None:
            self._ready = True
            self._set_deadline()
        return answer

    def end(self) -> None:
        """Kills the process and all that it started."""
        if self.pipe.closed:
            return
        self.pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._lifeline)
        self._traces.close()

    def _send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # it is dead: `answer` will find out why
            self.pipe.send(message)

    def _lost(self, cause: str | None) -> WorkerLost:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        self._traces.seek(0)
        trace = self._traces.read().decode(errors="replace").rstrip()
        status = self._process.returncode
        self.end()
        return WorkerLost(cause or how_it_ended(status), trace)
