"""A run's evaluations and settings as plain values for the watch page."""

import math
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import pstdev
from typing import Any

from arac.algorithms.registry import ALGORITHMS
from arac.storage.run_records import Record, Row
from arac.training.display import measured
from arac.utils.safe_json import number

# Archived policies by the quarter of the run so far in which they were added.
_AGES = "archived first", "archived second", "archived third", "archived last"
_LOG = 200  # number of evaluations in the log
_TAIL = 2**18  # bytes read from the end of episodes.csv: enough for the episodes of one evaluation


def contents(record: Record, folder: Path) -> dict[str, Any]:
    """Return all that changes with an evaluation or with the config; without `series` before the first evaluation."""
    described = {
        "title": f"{ALGORITHMS[record.algorithm].label} on {record.env}",
        "folder": os.fsencode(folder).decode(errors="backslashreplace"),
        "seed": record.seed,
        "eval_episodes": _count(record, "eval_episodes"),
        "capacity": _count(record, "archive_capacity"),
        "settings": _settings(record),
        "remarks": record.remarks,
    }
    if not record.rows:
        return described
    latest = record.rows[-1]
    return described | {
        "series": record.series()
        | {"spread": [row.champion_return_std for row in record.rows], **_losses(record.rows)}
        | {"repulsion": _repulsion(record.rows)},
        "generation": latest.generation,
        "population": _population(latest, _spreads(folder / "episodes.csv", latest.env_steps)),
        "log": [_line(row) for row in reversed(record.rows[-_LOG:])],
    }


def first_evaluation(record: Record) -> int | None:
    """Return the environment steps of the first evaluation, or None if there has been one."""
    if record.rows:
        return None
    interval = _count(record, "eval_interval")
    return record.planned if interval is None else min(interval or 1, record.planned)


def _count(record: Record, name: str) -> int | None:
    """Return a setting that is a whole number, or None if the run does not have it or its config is damaged."""
    value = record.settings.get(name)
    return value if isinstance(value, int) else None


def _repulsion(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Return the share of repulsion from each source at every evaluation: members, and the archive by age."""
    found: dict[str, list[float]] = {name: [0.0] * len(rows) for name in ("other members", *_AGES)}
    for at, row in enumerate(rows):
        for source, share in row.repulsion.items():
            found[_source(source, row.env_steps)][at] += share
    return {name: shares for name, shares in found.items() if any(shares)}


def _source(name: str, env_steps: int) -> str:
    if not name.isdecimal():
        return "other members"
    return _AGES[min(len(_AGES) * int(name) // max(env_steps, 1), len(_AGES) - 1)]


def _losses(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the numbers that the algorithm reports, by name, with None where a row lacks one."""
    names = dict.fromkeys(name for row in rows for name in row.losses)
    return {"losses": {name: [row.losses.get(name) for row in rows] for name in names}}


def _population(row: Row, spreads: dict[int, float]) -> list[dict[str, Any]]:
    """Return the members, the champion first and then by fitness."""
    ranked = sorted(range(len(row.fitness)), key=lambda member: (member != row.champion, -row.fitness[member]))
    return [
        {
            "member": member,
            "fitness": row.fitness[member],
            "spread": spreads.get(member),
            "role": "champion" if member == row.champion else "elite" if member in row.elites else "",
        }
        for member in ranked
    ]


def _spreads(path: Path, env_steps: int) -> dict[int, float]:
    """Return the standard deviation of each member's returns in an evaluation; empty if the file is damaged there."""
    returns: defaultdict[int, list[float]] = defaultdict(list)
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
            whole, _, _ = file.read(_TAIL).decode(errors="replace").rpartition("\n")
        for fields in (line.split(",") for line in whole.split("\n")):
            if fields[0] == str(env_steps):
                _, _, member, _, value, _ = fields
                returns[int(member)].append(number(float(value)))
    except (OSError, ValueError):
        return {}
    return {member: pstdev(values) for member, values in returns.items() if all(map(math.isfinite, values))}


def _line(row: Row) -> str:
    said = measured(row.fitness, row.elites, row.archive_size, row.mean_kl)
    return f"{row.env_steps:,} steps · generation {row.generation:,} · {said}"


def _settings(record: Record) -> list[tuple[str, str]]:
    policy = {} if record.policy is None else {"policy": record.policy}
    environment = {"environment": record.env, "max_episode_steps": record.max_episode_steps, **record.kwargs}
    tables = [
        {"algorithm": record.algorithm, **policy, **environment, "steps": record.planned, "seed": record.seed},
        record.settings,
        record.versions,
    ]
    return [(name, str(value)) for table in tables for name, value in table.items()]
