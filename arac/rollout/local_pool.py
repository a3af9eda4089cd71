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
from typing import Any

from arac.envs import EnvSpec, make
from arac.errors import EnvironmentFailure
from arac.replay.episode import Episode
from arac.rollout.episode import EpisodeRequest, Failure, run_or_failure
from arac.rollout.sending import packed
from arac.utils.processes import how_it_ended, one_thread
from arac.utils.progress import Progress

# Seconds that a worker may take to import its modules and make its environment, in addition to its first episode.
START_UP = 120.0
# Attempts at an episode whose worker dies or exceeds the time limit.
TRIES = 3


class LocalPool:
    """A pool of `workers` processes; with 0, episodes are played in this process. Results are in the order of requests.

    A worker that dies, or takes longer than `time_limit` seconds for an episode, is replaced and its episode run
    again, with the same result. Without workers there is no time limit.
    """

    def __init__(self, spec: EnvSpec, workers: int, time_limit: float | None = None) -> None:
        self._spec = spec
        self._time_limit = time_limit
        self._env = make(spec) if workers == 0 else None
        self._workers: list[Worker] = []
        try:
            for _ in range(workers):
                self._workers.append(Worker(spec, time_limit))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "LocalPool":
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def run(self, requests: list[EpisodeRequest], progress: Progress) -> list[Episode]:
        """Return the episode of each request.

        Raises:
            EnvironmentFailure: if an environment raises, or an episode loses its worker `TRIES` times.
            Interrupted: if the run was asked to stop.
        """
        return self._run_here(requests, progress) if self._env is not None else self._run_on_workers(requests, progress)

    def _run_here(self, requests: list[EpisodeRequest], progress: Progress) -> list[Episode]:
        results = []
        for request in requests:
            progress.check()
            answer = run_or_failure(self._env, self._spec.low, self._spec.high, request)
            results.append(episode_of(answer, request, self._spec))
            progress.advance()
        return results

    def _run_on_workers(self, requests: list[EpisodeRequest], progress: Progress) -> list[Episode]:
        results: dict[int, Episode] = {}
        waiting = deque(range(len(requests)))
        losses: Counter[int] = Counter()  # workers lost, by request
        playing: dict[int, int] = {}  # the request of each busy worker
        while len(results) < len(requests):
            progress.check()
            for slot, worker in enumerate(self._workers):
                if slot not in playing and waiting:
                    playing[slot] = waiting.popleft()
                    worker.give(requests[playing[slot]])
            ready = wait([self._workers[slot].pipe for slot in playing], timeout=0.2)
            for slot, number in list(playing.items()):
                worker = self._workers[slot]
                if worker.pipe not in ready and not worker.is_late():
                    continue
                try:
                    if (answer := worker.answer()) is None:  # the worker has only reported that it is ready
                        continue
                    results[number] = episode_of(answer, requests[number], self._spec)
                    progress.advance()
                except WorkerLost as lost:
                    losses[number] += 1
                    self._report_loss(lost, requests[number], losses[number], progress)
                    self._workers[slot] = Worker(self._spec, self._time_limit)
                    waiting.appendleft(number)
                del playing[slot]
        return [results[number] for number in range(len(requests))]

    def _report_loss(self, lost: "WorkerLost", request: EpisodeRequest, losses: int, progress: Progress) -> None:
        what = f"{self._spec.id} lost its worker process in the {request}: it {lost.cause}"
        if losses == TRIES:
            trace = f":\n{lost.trace}" if lost.trace else "."
            raise EnvironmentFailure(f"{what}, {losses} times in a row{trace}")
        progress.log(f"{what}; the worker is replaced and the episode run again.")

    def close(self) -> None:
        """Kill the workers, even during an episode."""
        for worker in self._workers:
            worker.end()
        self._workers = []
        if self._env is not None:
            self._env.close()


def episode_of(answer: Episode | Failure, request: EpisodeRequest, spec: EnvSpec) -> Episode:
    """Return a worker's answer if it is an episode.

    Raises:
        EnvironmentFailure: if it is a `Failure`.
    """
    if not isinstance(answer, Failure):
        return answer
    if answer.explained:
        raise EnvironmentFailure(answer.text)
    raise EnvironmentFailure(f"{spec.id} failed in the {request}:\n{answer.text.rstrip()}")


class WorkerLost(Exception):
    """The loss of a worker process, which has died or exceeded its time limit."""

    def __init__(self, cause: str, trace: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.trace = trace  # its traceback, if the interpreter could still write one


class Worker:
    """A worker process in a separate process group.

    The group is killed together with whatever the environment started in it, and Ctrl-C does not reach it.
    """

    def __init__(
        self,
        spec: EnvSpec,
        time_limit: float | None,
        module: str = "arac.rollout.worker",
        variables: dict[str, str] | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        """Start the process.

        Args:
            spec: the environment that the worker makes.
            time_limit: seconds for each request; None for no limit.
            module: the module that the process runs.
            variables: environment variables, in addition to those of this process.
            quiet: whether to keep its stderr for `WorkerLost.trace` instead of showing it.
        """
        self._time_limit = time_limit
        self._ready = False
        self._deadline = float("inf")
        self._traces = tempfile.TemporaryFile()  # noqa: SIM115
        here, there = socket.socketpair()
        if time_limit is not None:  # a worker that stops in the middle of a message must not block this process
            patience = struct.pack("ll", int(time_limit) + 1, 0)
            here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
            here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        lifeline, self._lifeline = os.pipe()  # breaks when this process ends, for any reason
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

    def give(self, request: Any) -> None:
        """Send a request to the worker; its time limit counts from now."""
        self._set_deadline()
        self._send(request)

    def _set_deadline(self) -> None:
        limit = float("inf") if self._time_limit is None else self._time_limit
        self._deadline = time.monotonic() + limit + (0 if self._ready else START_UP)

    def is_late(self) -> bool:
        """Return True if the worker has exceeded its time limit."""
        return time.monotonic() > self._deadline

    def answer(self) -> Any:
        """Return the answer to the request, or None if the worker only reports that it is ready and begins now.

        Raises:
            WorkerLost: if it has died or exceeded its time limit.
        """
        if self.is_late() and not self.pipe.poll():
            self._process.send_signal(signal.SIGABRT)  # on which the interpreter writes its traceback
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
        """Kill the process and everything that it started."""
        if self.pipe.closed:
            return
        self.pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._lifeline)
        self._traces.close()

    def _send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # the process has died: `answer` finds out why
            self.pipe.send_bytes(packed(message))

    def _lost(self, cause: str | None) -> WorkerLost:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        self._traces.seek(0)
        trace = self._traces.read().decode(errors="replace").rstrip()
        status = self._process.returncode
        self.end()
        return WorkerLost(cause or how_it_ended(status), trace)
