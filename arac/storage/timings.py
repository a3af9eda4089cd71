"""The time that the generations of a run took, as recorded in timings.jsonl."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from arac.utils.safe_json import lines, named, number, parsed, whole

_OTHER_PHASES = ("collect", "evaluate", "save")  # all others are updates


class Timing(NamedTuple):
    """The seconds of a run and of its phases at the end of a generation; each resumption counts from zero again."""

    env_steps: int
    generation: int
    seconds: float
    phases: dict[str, float]


def timings(path: Path) -> list[Timing]:
    """Return the timing of each generation of a run. Invalid lines are skipped; without a file the list is empty."""
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
    """Return the seconds of a run summed over its resumptions, each of which counts from zero; None if unknown."""
    if not times:
        return None
    total = times[-1].seconds
    for one, after in pairwise(times):
        if after.generation <= one.generation or after.seconds < one.seconds:
            total += one.seconds
    return total


def pace(runs: Iterable["Spent"]) -> float | None:
    """Return the seconds per environment step of some runs while they learned, or None if none has learned."""
    known = list(runs)
    steps = sum(run.steps for run in known)
    return sum(run.seconds for run in known) / steps if steps else None


class Spent:
    """The environment steps and seconds of a run while it learned, updated as its timings.jsonl grows."""

    def __init__(self) -> None:
        self.steps = 0  # environment steps while it learned
        self.seconds = 0.0
        self.latest: Timing | None = None
        self._read = 0  # bytes

    @staticmethod
    def of(path: Path) -> "Spent":
        """Return the sums over a timings.jsonl as it is now."""
        spent = Spent()
        spent.follow(path)
        return spent

    def is_ahead_of(self, path: Path) -> bool:
        """Return whether more was read than the file has, so that it must be another file by now."""
        return path.exists() and path.stat().st_size < self._read

    def follow(self, path: Path) -> None:
        """Read the lines added since the last call; if the file cannot be read, a later call may succeed."""
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
        # After a resumption, the seconds count from zero again and the steps from the checkpoint.
        if learned and after.seconds > before.seconds and after.env_steps > before.env_steps:
            self.steps += after.env_steps - before.env_steps
            self.seconds += after.seconds - before.seconds
