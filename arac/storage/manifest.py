"""The manifest of a checkpoint: its parts with the hash of each, and a hash of the manifest.

A manifest may be damaged or made by somebody else, so everything is checked before it is used. File names are never
read from it: a segment's name follows from its first episode, and the names of the metrics files are fixed.
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from arac.errors import UserError
from arac.replay.buffer import ReplayCursor
from arac.storage.metrics import DETERMINISTIC_FILES
from arac.utils.atomic_io import Checksum, read_bounded, sha256

FORMAT = 2
# A manifest has one line per replay file; this is room for half a million.
_LIMIT = 2**26


class Segment(NamedTuple):
    """A replay file: `episodes` consecutive episodes from number `first` on."""

    first: int
    episodes: int
    checksum: Checksum

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.first:012d}.safetensors"


class Manifest(NamedTuple):
    """The contents of a checkpoint: the state, the files of replay, and their checksums."""

    env_steps: int
    generation: int
    run: dict[str, Any]  # everything that the run's results depend on
    state: Checksum
    cursor: ReplayCursor
    segments: list[Segment]
    metrics: dict[str, Checksum]  # of each deterministic metrics file at that moment

    def to_bytes(self) -> bytes:
        """Return the content of manifest.json."""
        table = {
            "format": FORMAT,
            "arac": version("arac-rl"),
            "env_steps": self.env_steps,
            "generation": self.generation,
            "run": self.run,
            "state": self.state._asdict(),
            "mark": self.cursor._asdict(),
            "segments": [[*segment[:2], *segment.checksum] for segment in self.segments],
            "metrics": {name: checksum._asdict() for name, checksum in self.metrics.items()},
        }
        return json.dumps({**table, "sha256": _hash(table)}).encode()


def read(path: Path) -> Manifest:
    """Return the manifest in a file.

    Raises:
        OSError, ValueError: if there is none, or it is damaged.
        UserError: if it is undamaged, but has a newer format.
    """
    try:
        table = json.loads(read_bounded(path, _LIMIT))
        if table.pop("sha256") != _hash(table):
            raise ValueError("manifest.json does not match its hash")
        if _count(table["format"]) > FORMAT:
            raise NewerFormat(path, table["format"], table.get("arac", "?"))
        if table["format"] < 1:
            raise ValueError("manifest.json has a format that never was")
        return _parsed(table)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"manifest.json is not a manifest ({error!r})") from None


class NewerFormat(UserError):
    """A file written by a later version, in a format that this version cannot read."""

    def __init__(self, path: Path, found: object, by: object) -> None:
        super().__init__(
            f"{path} has format {found}, written by arac {by}, and this version reads formats up to {FORMAT}: "
            "update with `pip install --upgrade arac-rl`."
        )


def _parsed(table: dict[str, Any]) -> Manifest:
    for part in (table["run"], table["run"]["environment"], table["run"]["config"]):
        if not isinstance(part, dict):
            raise TypeError("run")
    if table["metrics"].keys() != DETERMINISTIC_FILES.keys():
        raise ValueError(f"manifest.json names {sorted(table['metrics'])} as metrics files")
    return Manifest(
        env_steps=_count(table["env_steps"]),
        generation=_count(table["generation"]),
        run=table["run"],
        state=_checksum(table["state"]),
        cursor=ReplayCursor(**{name: _count(table["mark"][name]) for name in ReplayCursor._fields}),
        segments=[
            Segment(_count(first), _count(count), _checksum({"bytes": size, "sha256": digest}))
            for first, count, size, digest in table["segments"]
        ],
        metrics={name: _checksum(entry) for name, entry in table["metrics"].items()},
    )


def _checksum(entry: dict[str, Any]) -> Checksum:
    return Checksum(_count(entry["bytes"]), str(entry["sha256"]))


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise TypeError(f"{value!r} is not a count")
    return value


def _hash(table: dict[str, Any]) -> str:
    return sha256(json.dumps(table, sort_keys=True).encode())
