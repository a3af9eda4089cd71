"""What a run records: rows that depend on config and seed alone, and wall-clock times in a file of their own."""

import csv
import hashlib
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from arac.algorithms.base import Evaluation
from arac.population.archive import Archive
from arac.population.diversity import mean_kl
from arac.storage.tensorboard import Events
from arac.utils.atomic_io import Checksum, append, checksum, sync_folder, write_durably
from arac.utils.safe_json import last_line, numbers, parsed, whole

EPISODE_COLUMNS = ("env_steps", "generation", "member", "episode", "return", "length")
# The files whose bytes follow from config and seed, with what each begins with.
DETERMINISTIC_FILES = {"evaluations.jsonl": "", "episodes.csv": ",".join(EPISODE_COLUMNS) + "\n"}


class Metrics:
    """Appends to the metrics files of a run folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._began = time.time()
        self._events = Events(folder)
        self._sums = {name: hashlib.sha256() for name in DETERMINISTIC_FILES}
        self._sizes = dict.fromkeys(DETERMINISTIC_FILES, 0)

    def begin(self) -> None:
        """Starts with empty files, whatever is there."""
        for name, head in DETERMINISTIC_FILES.items():
            write_durably(self._folder / name, b"")
            self._append(name, head)

    def go_back(self, env_steps: int, checksums: dict[str, Checksum]) -> list[str]:
        """Cuts what was written after a checkpoint, for the resumed run to write again; says what is not as it was."""
        self._events.purge_step = env_steps + 1
        return [sentence for name, then in checksums.items() if (sentence := self._cut(name, then))]

    def _cut(self, name: str, then: Checksum) -> str | None:
        path = self._folder / name
        written = path.read_bytes() if path.exists() else b""
        as_it_was = checksum(written[: then.bytes]) == then
        kept = written[: then.bytes if as_it_was else written.rfind(b"\n") + 1]  # else all rows but a torn one
        with path.open("ab") as file:
            file.truncate(len(kept))
        self._sums[name], self._sizes[name] = hashlib.sha256(kept), len(kept)
        return None if as_it_was else f"{path} is not as the run wrote it: its rows stay as they are"

    def evaluation(self, evaluation: Evaluation, archive: Archive | None) -> None:
        """What was measured, and what the system keeps in an archive, if it has one."""
        row = evaluation_row(evaluation)
        self._append("evaluations.jsonl", json.dumps(row) + "\n")
        self._append("episodes.csv", _episode_lines(evaluation))
        fitness = {"population/fitness": evaluation.fitness}
        if archive is not None:
            fitness["archive/fitness"] = archive.fitness[: archive.size]
        self._events.write(evaluation.env_steps, scalars(row), fitness, evaluation.kl)

    def timing(self, env_steps: int, generation: int, seconds: dict[str, float]) -> None:
        """What the phases cost since the run was started or resumed."""
        phases = {name: round(spent, 3) for name, spent in seconds.items()}
        row = {"env_steps": env_steps, "generation": generation, "seconds": round(time.time() - self._began, 3)}
        append(self._folder / "timings.jsonl", (json.dumps({**row, "phases": phases}) + "\n").encode())

    def sync(self) -> None:
        """Flushes the deterministic files to the disk."""
        for name in DETERMINISTIC_FILES:
            with (self._folder / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(self._folder)

    def checksums(self) -> dict[str, Checksum]:
        """What each deterministic file is now, by the bytes that were written to it."""
        return {name: Checksum(self._sizes[name], self._sums[name].hexdigest()) for name in DETERMINISTIC_FILES}

    def close(self) -> None:
        self._events.close()

    def _append(self, name: str, text: str) -> None:
        data = text.encode()
        append(self._folder / name, data)
        self._sums[name].update(data)
        self._sizes[name] += len(data)


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run folder."""
    return [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]


def fitness_at(folder: Path, env_steps: int) -> np.ndarray | None:
    """Of the agents that a run had at so many steps; None if they were not evaluated then, or nobody can tell."""
    try:
        row = parsed(last_line(folder / "evaluations.jsonl"))
        return np.array(numbers(row["fitness"])) if whole(row["env_steps"]) == env_steps else None
    except (OSError, ValueError, KeyError):
        return None


def evaluation_row(evaluation: Evaluation) -> dict[str, Any]:
    """One row of evaluations.jsonl."""
    return {
        "env_steps": evaluation.env_steps,
        "generation": evaluation.generation,
        "fitness": evaluation.fitness.tolist(),
        "elites": evaluation.elites.tolist(),
        "champion": evaluation.champion,
        "champion_return": float(evaluation.champion_returns.mean()),
        "champion_return_std": float(evaluation.champion_returns.std()),
        **({} if evaluation.fresh_returns is None else {"champion_returns": evaluation.fresh_returns.tolist()}),
        "archive_size": evaluation.archive_size,
        "diversity": {"mean_kl": mean_kl(evaluation.kl), "kl": evaluation.kl.tolist()},
        **evaluation.losses,
        **({} if evaluation.repulsion is None else {"repulsion": evaluation.repulsion}),
    }


def _episode_lines(evaluation: Evaluation) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for (member, episode), total in np.ndenumerate(evaluation.returns):
        length = int(evaluation.lengths[member, episode])
        writer.writerow([evaluation.env_steps, evaluation.generation, member, episode, float(total), length])
    return text.getvalue()


def scalars(row: dict[str, Any]) -> dict[str, float]:
    """Every number of a row under a tag."""
    numbers = {f"train/{name}": value for name, value in row.items() if isinstance(value, float)}
    numbers |= {f"fitness/member_{member}": value for member, value in enumerate(row["fitness"])}
    numbers["population/archive_size"] = row["archive_size"]
    if row["diversity"]["mean_kl"] is not None:
        numbers["population/mean_kl"] = row["diversity"]["mean_kl"]
    for name in ("champion_return", "champion_return_std"):
        numbers[f"eval/{name}"] = numbers.pop(f"train/{name}")
    return numbers
