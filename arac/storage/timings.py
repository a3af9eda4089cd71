"""What the generations of a run have cost, as timings.jsonl tells it."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from arac.utils.safe_json import lines, named, number, parsed, whole

_OTHER_PHASES = ("collect", "evaluate", "save")  # all others are updates


class Timing(NamedTuple):
    """What the phases of a run have cost when a generation was done; each resumption counts from zero again."""

    env_steps: int
    generation: int
    seconds: float
    phases: dict[str, float]


def timings(path: Path) -> list[Timing]:
    """What each generation of a run has cost; a line that is torn or odd is left out, and no file has no lines."""
    found = []
    for line in lines(path) if path.exists() else []:
        try:
            found.append(_timing(parsed(line)))
        except (ValueError, KeyError):
            continue
    return found


def _timing(row: dict[str, Any]) -> Timing:
    phases = {name: number(spent) for name, spent in named(row.get("phases", {}), "phases").items()}
    timing = Timing(whole(row["env_steps"]), whole(row["generation"]), number(row["seconds"]), phases)
    if not all(map(math.isfinite, [timing.seconds, *phases.values()])):
        raise ValueError("its seconds are not finite numbers")
    return timing


def wall_clock(times: Sequence[Timing]) -> float | None:
    """Seconds of all stretches together: each resumption counts from zero again."""
    if not times:
        return None
    total = times[-1].seconds
    for one, after in pairwise(times):
        if after.generation <= one.generation or after.seconds < one.seconds:
            total += one.seconds
    return total


def pace(runs: Iterable["Spent"]) -> float | None:
    """Seconds per environment step of some runs, where they learned; None where none has."""
    known = list(runs)
    steps = sum(run.steps for run in known)
    return sum(run.seconds for run in known) / steps if steps else None


class Spent:
    """What a run has spent on learning, added up while its timings.jsonl grows."""

    def __init__(self) -> None:
        self.steps = 0  # while it learned
        self.seconds = 0.0
        self.latest: Timing | None = None
        self._read = 0  # bytes

    @staticmethod
    def of(path: Path) -> "Spent":
        spent = Spent()
        spent.follow(path)
        return spent

    def is_ahead_of(self, path: Path) -> bool:
        """Whether more was read than the file has: then it is another one by now."""
        return path.exists() and path.stat().st_size < self._read

    def follow(self, path: Path) -> None:
        """Reads what is new. What cannot be read now may be later."""
        try:
            with path.open("rb") as file:
                file.seek(self._read)
                new, end, _ = file.read().rpartition(b"\n")
        except OSError:
            return
        self._read += len(new) + len(end)
        for line in new.split(b"\n"):
            with suppress(ValueError, KeyError):
                self._add(_timing(parsed(line)))

    def _add(self, after: Timing) -> None:
        before, self.latest = self.latest, after
        if before is None:
            return
        learned = any(spent > 0 for phase, spent in before.phases.items() if phase not in _OTHER_PHASES)
        # Where a run was begun again, its seconds count from zero and its steps from its checkpoint.
        if learned and after.seconds > before.seconds and after.env_steps > before.env_steps:
            self.steps += after.env_steps - before.env_steps
            self.seconds += after.seconds - before.seconds
