"""What a run records: rows that depend on config and seed alone, and wall-clock times in a file of their own."""

import csv
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from arac.algorithms.shared import Evaluation
from arac.diversity import mean_kl
from arac.errors import UserError
from arac.files import sync_folder

EPISODE_COLUMNS = ("env_steps", "generation", "member", "episode", "return", "length")
DETERMINISTIC_FILES = ("evaluations.jsonl", "episodes.csv")


class Metrics:
    """Appends to the metrics files of a run folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._began = time.time()
        self._purge_step: int | None = None
        self._tensorboard: Any = None
        if not (folder / "episodes.csv").exists():
            (folder / "episodes.csv").write_text(",".join(EPISODE_COLUMNS) + "\n")
            (folder / "evaluations.jsonl").touch()

    def go_back(self, env_steps: int, sizes: dict[str, int]) -> None:
        """Cuts what was written after a checkpoint; the resumed run writes it again."""
        for name, size in sizes.items():
            with (self._folder / name).open("r+b") as file:
                if file.seek(0, os.SEEK_END) < size:
                    raise UserError(f"{self._folder / name} is shorter than its checkpoint says: rows were lost.")
                file.truncate(size)
        self._purge_step = env_steps + 1

    def evaluation(self, evaluation: Evaluation) -> None:
        row = evaluation_row(evaluation)
        self._append("evaluations.jsonl", json.dumps(row) + "\n")
        self._append("episodes.csv", _episode_lines(evaluation))
        for tag, value in _scalars(row).items():
            self._events().add_scalar(tag, value, evaluation.env_steps)
        self._events().flush()

    def timing(self, env_steps: int, generation: int, seconds: dict[str, float]) -> None:
        """What the phases cost since the run was started or resumed."""
        phases = {name: round(spent, 3) for name, spent in seconds.items()}
        row = {"env_steps": env_steps, "generation": generation, "seconds": round(time.time() - self._began, 3)}
        self._append("timings.jsonl", json.dumps({**row, "phases": phases}) + "\n")

    def sync(self) -> None:
        """Flushes the deterministic files to the disk."""
        for name in DETERMINISTIC_FILES:
            with (self._folder / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(self._folder)

    def sizes(self) -> dict[str, int]:
        """How long each deterministic file is now."""
        return {name: (self._folder / name).stat().st_size for name in DETERMINISTIC_FILES}

    def close(self) -> None:
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _events(self) -> Any:
        """TensorBoard's writer, made at the first evaluation: importing it takes a while."""
        if self._tensorboard is None:
            from tensorboardX import SummaryWriter

            self._tensorboard = SummaryWriter(str(self._folder / "tensorboard"), purge_step=self._purge_step)
        return self._tensorboard

    def _append(self, name: str, text: str) -> None:
        with (self._folder / name).open("a") as file:
            file.write(text)


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run folder."""
    return [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]


def evaluation_row(evaluation: Evaluation) -> dict[str, Any]:
    """One row of evaluations.jsonl."""
    return {
        "env_steps": evaluation.env_steps,
        "generation": evaluation.generation,
        "fitness": evaluation.fitness.tolist(),
        "elites": evaluation.elites.tolist(),
        "champion": evaluation.champion,
        "champion_return": float(evaluation.fitness[evaluation.champion]),
        "champion_return_std": float(evaluation.returns[evaluation.champion].std()),
        "archive_size": evaluation.archive_size,
        "diversity": {"mean_kl": mean_kl(evaluation.kl), "kl": evaluation.kl.tolist()},
        **evaluation.losses,
    }


def _episode_lines(evaluation: Evaluation) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for (member, episode), total in np.ndenumerate(evaluation.returns):
        length = int(evaluation.lengths[member, episode])
        writer.writerow([evaluation.env_steps, evaluation.generation, member, episode, float(total), length])
    return text.getvalue()


def _scalars(row: dict[str, Any]) -> dict[str, float]:
    """Every number of a row under a tag."""
    scalars = {f"train/{name}": value for name, value in row.items() if isinstance(value, float)}
    scalars |= {f"fitness/member_{member}": value for member, value in enumerate(row["fitness"])}
    scalars["population/archive_size"] = row["archive_size"]
    if row["diversity"]["mean_kl"] is not None:
        scalars["population/mean_kl"] = row["diversity"]["mean_kl"]
    for name in ("champion_return", "champion_return_std"):
        scalars[f"eval/{name}"] = scalars.pop(f"train/{name}")
    return scalars
