"""Verification of the files of a run folder, which changes nothing."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from arac.algorithms.base import State
from arac.errors import UserError
from arac.storage import checkpoint, manifest, pytree_io, run_folder
from arac.storage.manifest import Manifest, Segment
from arac.storage.metrics import DETERMINISTIC_FILES, EPISODE_COLUMNS
from arac.storage.run_spec import RunSpec
from arac.utils.atomic_io import checksum, read_bounded


class Finding(NamedTuple):
    """A statement about a part of a run folder."""

    level: Literal["sound", "note", "damaged"]
    text: str


def examine(folder: Path) -> Iterator[Finding]:
    """Yield the findings on a run folder, in the order in which `arac resume` would read its files.

    Raises:
        UserError: if the folder holds no run, or there is too little memory to load its checkpoints.
    """
    try:
        description, goal = run_folder.read(folder)
    except UserError as error:
        if not (folder / "config.toml").exists():
            raise
        yield Finding("damaged", str(error))
        return
    title = f"{description.algorithm.title} on {description.env.id}, seed {description.seed}"
    yield Finding("sound", f"config.toml: {title}, {goal:,} steps")
    yield from _surroundings(folder)
    replay, outline = _Replay(folder, description), description.outline()
    newest: Manifest | None = None
    for path in reversed(checkpoint.list_checkpoints(folder)):
        name = f"checkpoint {int(path.name):,}"
        try:
            found, text = _checkpoint(path, description, outline, replay)
            newest = newest or found
            yield Finding("sound", f"{name}: {text}")
        except (OSError, ValueError) as error:
            yield Finding("damaged", f"{name}: {error}")
    yield from _metrics(folder, newest)
    if newest is not None:
        yield Finding("sound", f"`arac resume {folder}` resumes at {newest.env_steps:,} steps")
    else:
        yield Finding("damaged", "no intact checkpoint: the run cannot be resumed")


def _surroundings(folder: Path) -> Iterator[Finding]:
    if run_folder.is_locked(folder):
        yield Finding("note", "a process is working on it: what it writes meanwhile may look damaged")
    if others := run_folder.other_versions(folder):
        yield Finding("note", f"made with other versions, so the last digits may differ: {', '.join(others)}")
    for path in checkpoint.leftovers(folder):
        yield Finding("note", f"{path.relative_to(folder)} was being written when a process died; resume removes it")
    for path in sorted((folder / "checkpoints").glob("*.broken")):
        yield Finding("note", f"{path.relative_to(folder)} was found broken by an earlier resume and set aside")


def _checkpoint(path: Path, description: RunSpec, outline: State, replay: "_Replay") -> tuple[Manifest, str]:
    """Return a checkpoint's manifest and a summary of its content.

    Raises:
        OSError, ValueError: if any part of it is damaged, or it has another configuration.
    """
    found = manifest.read(path / "manifest.json")
    if different := description.differences(found.run):
        raise ValueError(f"it is of another configuration: {'; '.join(different)}")
    state = checkpoint.read_state(path, found, outline, description.config.leaves_since_format_2)
    transitions = replay.check(found)
    arrays = f"{len(pytree_io.to_arrays(state))} arrays"
    return found, f"generation {found.generation:,}, {arrays}, {transitions:,} transitions in replay"


class _Replay:
    """The replay files of a run, each of which is read once, even if several checkpoints need it."""

    def __init__(self, folder: Path, description: RunSpec) -> None:
        self._folder = folder
        self._capacity = description.config.replay_capacity
        self._sizes = description.env.observation_size, description.env.action_size
        self._lengths: dict[Segment, list[int]] = {}

    def check(self, found: Manifest) -> int:
        """Return the number of transitions that a checkpoint's replay holds.

        Raises:
            OSError, ValueError: if a file is damaged, or the files do not hold the episodes that the checkpoint needs.
        """
        checkpoint.check_replay(found, self._capacity)
        lengths = [length for segment in found.segments for length in self._read(segment)]
        transitions = sum(lengths[len(lengths) - (found.cursor.episodes - found.cursor.first_episode) :])
        if transitions > self._capacity:
            raise ValueError(f"replay has {transitions:,} transitions, more than its capacity of {self._capacity:,}")
        return transitions

    def _read(self, segment: Segment) -> list[int]:
        if segment not in self._lengths:
            episodes = checkpoint.read_segment(self._folder, segment, self._capacity, *self._sizes)
            self._lengths[segment] = [len(episode) for episode in episodes]
        return self._lengths[segment]


def _metrics(folder: Path, found: Manifest | None) -> Iterator[Finding]:
    """Compare the metrics files with a checkpoint and with each other, and yield the findings."""
    texts = []
    for name in DETERMINISTIC_FILES:
        try:
            data = read_bounded(folder / name, 2**32)
        except (OSError, ValueError) as error:
            yield Finding("damaged", f"{name}: {getattr(error, 'strerror', error)}")
            return
        then = checksum(data) if found is None else found.metrics[name]
        if checksum(data[: then.bytes]) != then:
            yield Finding("damaged", f"{name}: its rows are not those that the checkpoint knows")
            return
        texts.append(data[: then.bytes].decode())
        if newer := len(data) - then.bytes:
            yield Finding("note", f"{name}: {newer:,} bytes are newer than the checkpoint; resume writes them again")
    try:
        rows = _check_rows(texts[0], texts[1], None if found is None else found.env_steps)
        yield Finding("sound", f"metrics: {rows} evaluations, each the mean of its episodes")
    except (ValueError, KeyError, TypeError) as error:
        yield Finding("damaged", f"metrics: {error}")


def _check_rows(evaluations: str, episodes: str, env_steps: int | None) -> int:
    """Return the number of evaluations.

    Raises:
        ValueError, KeyError, TypeError: if they do not follow from the episodes, or are out of order.
    """
    rows = [json.loads(line) for line in evaluations.splitlines()]
    played: dict[int, dict[int, list[float]]] = {}
    reader = csv.DictReader(episodes.splitlines())
    if tuple(reader.fieldnames or ()) != EPISODE_COLUMNS:
        raise ValueError("episodes.csv has other columns than it should")
    for line in reader:
        played.setdefault(int(line["env_steps"]), {}).setdefault(int(line["member"]), []).append(float(line["return"]))
    steps = [row["env_steps"] for row in rows]
    if steps != sorted(set(steps)) or steps != list(played):
        raise ValueError("evaluations.jsonl and episodes.csv do not count the same steps")
    if env_steps is not None and steps and steps[-1] > env_steps:
        raise ValueError(f"there is an evaluation at {steps[-1]:,} steps, after the checkpoint's {env_steps:,}")
    for row in rows:
        means = [np.mean(returns) for _, returns in sorted(played[row["env_steps"]].items())]
        if not np.allclose(row["fitness"], means, rtol=1e-9, atol=0):
            raise ValueError(f"the fitness at {row['env_steps']:,} steps is not the mean of its episodes")
    return len(rows)
