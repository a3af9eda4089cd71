"""What the page draws of a run's evaluations and settings, as plain values."""

import csv
import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import pstdev
from typing import Any

from arac.display import measured
from arac.experiments.collection import Record, Row
from arac.experiments.paper import SYSTEMS

_LOG = 200  # evaluations that the log goes back
_TAIL = 2**18  # bytes at the end of episodes.csv, in which the episodes of one evaluation lie


def contents(record: Record, folder: Path) -> dict[str, Any]:
    """All that changes with an evaluation or with the config; without `series` where there is no evaluation yet."""
    described = {
        "title": f"{SYSTEMS[record.algorithm]} on {record.env}",
        "folder": os.fsencode(folder).decode(errors="backslashreplace"),
        "seed": record.seed,
        "eval_episodes": record.settings.get("eval_episodes"),
        "capacity": record.settings.get("archive_capacity"),
        "settings": _settings(record),
        "remarks": record.remarks,
    }
    if not record.rows:
        return described
    latest = record.rows[-1]
    return described | {
        "series": record.series()
        | {"spread": [row.champion_return_std for row in record.rows], **_losses(record.rows)},
        "generation": latest.generation,
        "population": _population(latest, _spreads(folder / "episodes.csv", latest.env_steps)),
        "log": [_line(row) for row in reversed(record.rows[-_LOG:])],
    }


def first_evaluation(record: Record) -> int | None:
    """At how many steps the first one comes; None where it has come."""
    if record.rows:
        return None
    interval = record.settings.get("eval_interval")
    return min(interval or 1, record.planned) if isinstance(interval, int) else record.planned


def _losses(rows: Sequence[Row]) -> dict[str, Any]:
    """What the system reports, by name; a row may lack what others have."""
    names = dict.fromkeys(name for row in rows for name in row.losses)
    return {"losses": {name: [row.losses.get(name) for row in rows] for name in names}}


def _population(row: Row, spreads: dict[int, float]) -> list[dict[str, Any]]:
    """The best first."""
    ranked = sorted(range(len(row.fitness)), key=lambda member: (member != row.champion, -row.fitness[member]))
    return [
        {
            "agent": member,
            "fitness": row.fitness[member],
            "spread": spreads.get(member),
            "role": "champion" if member == row.champion else "elite" if member in row.elites else "",
        }
        for member in ranked
    ]


def _spreads(path: Path, env_steps: int) -> dict[int, float]:
    """The standard deviation over each member's episodes of an evaluation; of none that cannot be read."""
    returns: defaultdict[int, list[float]] = defaultdict(list)
    with suppress(OSError, ValueError), path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
        whole, _, _ = file.read(_TAIL).decode(errors="replace").rpartition("\n")
        for line in csv.reader(whole.split("\n")):
            if line[:1] == [str(env_steps)]:
                returns[int(line[2])].append(float(line[4]))
    return {member: pstdev(values) for member, values in returns.items()}


def _line(row: Row) -> str:
    said = measured(row.fitness, row.elites, row.archive_size, row.mean_kl)
    return f"{row.env_steps:,} steps · generation {row.generation:,} · {said}"


def _settings(record: Record) -> list[tuple[str, str]]:
    environment = {"environment": record.env, "max_episode_steps": record.max_episode_steps, **record.kwargs}
    tables = [
        {"algorithm": record.algorithm, **environment, "steps": record.planned, "seed": record.seed},
        record.settings,
        record.versions,
    ]
    return [(name, str(value)) for table in tables for name, value in table.items()]
