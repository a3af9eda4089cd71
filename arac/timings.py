"""What the generations of a run have cost, as timings.jsonl tells it."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from arac.reading import lines, named, number, parsed, whole

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


def pace(runs: Iterable[Sequence[Timing]]) -> float | None:
    """Seconds per environment step of some runs, where they learned; None where none has."""
    steps = seconds = 0.0
    for times in runs:
        for before, after in pairwise(times):
            learned = any(spent > 0 for phase, spent in before.phases.items() if phase not in _OTHER_PHASES)
            # Where a run was begun again, its seconds count from zero and its steps from its checkpoint.
            if learned and after.seconds > before.seconds and after.env_steps > before.env_steps:
                steps += after.env_steps - before.env_steps
                seconds += after.seconds - before.seconds
    return seconds / steps if steps else None
