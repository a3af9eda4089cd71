"""Training processes that are timed by turns: while one trains, the others wait."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from arac.errors import EnvironmentFailure

ROOT = Path(__file__).parents[2]  # where the processes find benchmarks


class Turn(NamedTuple):
    """A stretch of training."""

    seconds: float
    steps: int
    peak_bytes: int  # of memory, so far

    @property
    def ms_per_step(self) -> float:
        return 1e3 * self.seconds / self.steps


class Contender:
    """The benchmark's handle on a training process, which runs contender.py."""

    def __init__(self, python: str, task: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.speed.contender", json.dumps(task)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._next()  # the first stretch: warm-up and compilation

    def turn(self) -> Turn:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self._next()

    def _next(self) -> Turn:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if line := self._process.stdout.readline():
            return Turn(**json.loads(line))
        said = self._process.stderr.read().strip().splitlines()
        raise EnvironmentFailure(f"A contender of the benchmark ended: {' '.join(said[-1:])}")

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def contending(tasks: dict[str, tuple[str, dict[str, Any]]]) -> Iterator[dict[str, Contender]]:
    """Start a process for each (interpreter, task), and yield them by name once they are warmed up and waiting."""
    with ExitStack() as stack:
        contenders = {}
        for name, (python, task) in tasks.items():
            contenders[name] = contender = Contender(python, task)
            stack.callback(contender.end)
        yield contenders


def processes_by_turns(tasks: dict[str, tuple[str, dict[str, Any]]], rounds: int) -> dict[str, list[Turn]]:
    """Return `rounds` turns of each task's process, taken in alternation."""
    with contending(tasks) as contenders:
        turns: dict[str, list[Turn]] = {name: [] for name in tasks}
        for _ in range(rounds):
            for name, contender in contenders.items():
                turns[name].append(contender.turn())
        return turns


def ours(env: str, algorithm: str, *, stretch: int, warmup: int, **settings: Any) -> tuple[str, dict[str, Any]]:
    """Return the interpreter and the task of a contender of this library."""
    return sys.executable, {
        "library": "arac", "env": env, "algorithm": algorithm, "stretch": stretch, "warmup": warmup,
        "settings": settings,
    }  # fmt: skip
