"""The metrics of a run: rows that depend on config and seed alone, and wall-clock times in a separate file."""

import csv
import hashlib
import io
import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arac.algorithms.base import Evaluation
from arac.population.diversity import mean_kl
from arac.storage.tensorboard import Events
from arac.utils.atomic_io import Checksum, append, checksum, sync_folder, write_durably
from arac.utils.safe_json import last_line, lines, named, number, numbers, parsed, whole

EPISODE_COLUMNS = ("env_steps", "generation", "member", "episode", "return", "length")
# The files whose bytes depend on config and seed alone, with the header of each.
DETERMINISTIC_FILES = {"evaluations.jsonl": "", "episodes.csv": ",".join(EPISODE_COLUMNS) + "\n"}
_OTHER_PHASES = ("collect", "evaluate", "save")  # all others are updates


class Metrics:
    """The writer of the metrics files of a run folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._began = time.time()
        self._events = Events(folder)
        self._sums = {name: hashlib.sha256() for name in DETERMINISTIC_FILES}
        self._sizes = dict.fromkeys(DETERMINISTIC_FILES, 0)

    def begin(self) -> None:
        """Start with empty files, replacing any that exist."""
        for name, head in DETERMINISTIC_FILES.items():
            write_durably(self._folder / name, b"")
            self._append(name, head)

    def go_back(self, env_steps: int, checksums: dict[str, Checksum]) -> list[str]:
        """Truncate the files to a checkpoint, after which the resumed run writes the rows again.

        Args:
            env_steps: the environment steps of the checkpoint.
            checksums: those of the files at the checkpoint.

        Returns:
            A sentence for each file whose rows up to the checkpoint have changed.
        """
        self._events.purge_step = env_steps + 1
        return [sentence for name, then in checksums.items() if (sentence := self._cut(name, then))]

    def _cut(self, name: str, then: Checksum) -> str | None:
        path = self._folder / name
        written = path.read_bytes() if path.exists() else b""
        as_it_was = checksum(written[: then.bytes]) == then
        kept = written[: then.bytes if as_it_was else written.rfind(b"\n") + 1]  # else all complete rows
        with path.open("ab") as file:
            file.truncate(len(kept))
        self._sums[name], self._sizes[name] = hashlib.sha256(kept), len(kept)
        return None if as_it_was else f"{path} is not as the run wrote it: its rows stay as they are"

    def evaluation(self, evaluation: Evaluation, histograms: dict[str, np.ndarray]) -> None:
        """Append an evaluation, and write it to TensorBoard with further histograms, by their tags."""
        row = evaluation_row(evaluation)
        self._append("evaluations.jsonl", json.dumps(row) + "\n")
        self._append("episodes.csv", _episode_lines(evaluation))
        histograms = {"population/fitness": evaluation.fitness, **histograms}
        self._events.write(evaluation.env_steps, scalars(row), histograms, evaluation.kl)

    def timing(self, env_steps: int, generation: int, seconds: dict[str, float]) -> None:
        """Append the seconds that each phase has taken since the run was started or resumed."""
        phases = {name: round(spent, 3) for name, spent in seconds.items()}
        row = {"env_steps": env_steps, "generation": generation, "seconds": round(time.time() - self._began, 3)}
        append(self._folder / "timings.jsonl", (json.dumps({**row, "phases": phases}) + "\n").encode())

    def sync(self) -> None:
        """Flush the deterministic files to the disk."""
        for name in DETERMINISTIC_FILES:
            with (self._folder / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(self._folder)

    def checksums(self) -> dict[str, Checksum]:
        """Return the checksum of each deterministic file, computed from the bytes written rather than read back."""
        return {name: Checksum(self._sizes[name], self._sums[name].hexdigest()) for name in DETERMINISTIC_FILES}

    def close(self) -> None:
        """Close the TensorBoard file."""
        self._events.close()

    def _append(self, name: str, text: str) -> None:
        data = text.encode()
        append(self._folder / name, data)
        self._sums[name].update(data)
        self._sizes[name] += len(data)


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of evaluations.jsonl in a run folder."""
    return [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]


def fitness_at(folder: Path, env_steps: int) -> np.ndarray | None:
    """Return the population's fitness at `env_steps`, or None if the last evaluation was not there or is unreadable."""
    try:
        row = parsed(last_line(folder / "evaluations.jsonl"))
        return np.array(numbers(row["fitness"])) if whole(row["env_steps"]) == env_steps else None
    except (OSError, ValueError, KeyError):
        return None


def evaluation_row(evaluation: Evaluation) -> dict[str, Any]:
    """Return the row of evaluations.jsonl for an evaluation."""
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
    """Return every number of a row by its TensorBoard tag."""
    numbers = {f"train/{name}": value for name, value in row.items() if isinstance(value, float)}
    numbers |= {f"fitness/member_{member}": value for member, value in enumerate(row["fitness"])}
    numbers["population/archive_size"] = row["archive_size"]
    if row["diversity"]["mean_kl"] is not None:
        numbers["population/mean_kl"] = row["diversity"]["mean_kl"]
    for name in ("champion_return", "champion_return_std"):
        numbers[f"eval/{name}"] = numbers.pop(f"train/{name}")
    return numbers


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
        with suppress(ValueError, KeyError):
            found.append(_timing(parsed(line)))
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
