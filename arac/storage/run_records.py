"""Run folders as records, and the reasons why some folders cannot be read."""

import math
import os
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from arac.algorithms.registry import ALGORITHMS, find
from arac.errors import UserError
from arac.storage import run_folder
from arac.storage.metrics import timings, wall_clock
from arac.utils.atomic_io import read_bounded
from arac.utils.safe_json import lines, named, number, numbers, parsed, whole

# A folder with one of these files is taken for a run folder.
_MARKS = {"config.toml", "evaluations.jsonl", "timings.jsonl", ".beginning.tmp"}
# Numbers of an evaluation that are fields of `Row`; the other floats are what the algorithm reports.
_RETURNS = {"champion_return", "champion_return_std"}


@dataclass(frozen=True)
class Row:
    """An evaluation, with the values that the pages of arac show."""

    env_steps: int
    generation: int
    champion: int
    champion_return: float
    champion_return_std: float
    fresh: bool  # whether the champion's return is from other episodes than those that selected it
    fitness: tuple[float, ...]
    elites: tuple[int, ...]
    archive_size: int
    mean_kl: float | None
    kl: tuple[tuple[float, ...], ...]
    losses: dict[str, float]  # and the other numbers that the algorithm reports
    repulsion: dict[str, float]  # the share of each source: "members", or the steps at which policies were archived


@dataclass(frozen=True)
class Record:
    """The contents of a run folder."""

    name: str
    env: str
    kwargs: dict[str, Any]
    max_episode_steps: int | None
    algorithm: str
    policy: str | None  # name of the custom policy class, if there is one
    seed: int
    planned: int
    settings: dict[str, Any]
    versions: dict[str, str]
    rows: tuple[Row, ...]
    steps_done: int
    seconds: float | None
    champion: Float[np.ndarray, " episode"] | None  # its returns in fresh episodes, played after training
    remarks: tuple[str, ...]

    @property
    def finished(self) -> bool:
        """True if the run has reached its planned steps."""
        return self.steps_done >= self.planned

    @cached_property
    def steps(self) -> Float[np.ndarray, " evaluation"]:
        """The environment steps at each evaluation."""
        return np.array([row.env_steps for row in self.rows], float)

    @cached_property
    def returns(self) -> Float[np.ndarray, " evaluation"]:
        """The champion's mean return at each evaluation."""
        return np.array([row.champion_return for row in self.rows], float)

    def series(self) -> dict[str, Any]:
        """Return the evaluations as plain lists for a page to draw; there must be at least one."""
        members = max(len(row.fitness) for row in self.rows)
        return {
            "steps": self.steps.tolist(),
            "champion": self.returns.tolist(),
            "fitness": [
                [row.fitness[m] if m < len(row.fitness) else None for row in self.rows] for m in range(members)
            ],
            "archive": [row.archive_size for row in self.rows],
            "mean_kl": [row.mean_kl for row in self.rows],
            "kl": self.rows[-1].kl,
        }


@dataclass(frozen=True)
class Broken:
    """A folder that looks like a run folder but cannot be used."""

    name: str
    reason: str


@dataclass(frozen=True)
class Collection:
    """The runs found in folders, and those that cannot be read."""

    records: tuple[Record, ...]
    broken: tuple[Broken, ...]


def collect(folders: Sequence[Path]) -> Collection:
    """Read every run folder at or below the given folders, each once.

    Raises:
        UserError: if a given folder does not exist, or there is no run that can be read.
    """
    records: list[Record] = []
    broken: list[Broken] = []
    for name, folder in _find(folders):
        try:
            records.append(read(folder, name))
        except ValueError as error:
            broken.append(Broken(name, str(error)))
        except OSError as error:
            broken.append(Broken(name, f"permission or I/O error ({error.strerror})"))
    if not records:
        where = ", ".join(map(str, folders))
        if broken:
            raise UserError(f"No run below {where} can be read; the first of {len(broken)}: {broken[0].reason}.")
        raise UserError(f"There is no run at or below {where}; give folders that `arac train` wrote.")
    return Collection(tuple(records), tuple(broken))


def _find(folders: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the folders that look like runs, each with a unique name that begins with the given one's if possible."""
    seen: set[Path] = set()
    names: set[str] = set()
    for root in folders:
        if not root.is_dir():
            raise UserError(f"{root} is not a folder; give run folders, or folders that hold some.")
        for folder, files in walk(root):
            if not _MARKS.isdisjoint(files) and folder.resolve() not in seen:
                seen.add(folder.resolve())
                names.add(name := _name(root, folder, names))
                yield name, folder


def walk(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield each folder at or below `root` with the names of its files; folders inside a run folder are skipped."""
    for place, below, files in os.walk(root):
        inner = () if _MARKS.isdisjoint(files) else run_folder.FOLDERS
        below[:] = sorted(set(below).difference(inner))
        yield Path(place), files


def _name(root: Path, folder: Path, taken: set[str]) -> str:
    """Return a unique name for a folder: runs are told apart by name, so no two may have the same."""
    short = Path(root.resolve().name) / folder.relative_to(root)
    words = [os.fsencode(path).decode(errors="backslashreplace") for path in (short, folder)]
    numbered = (f"{words[1]} ({number})" for number in count(2))
    return next(name for name in chain(words, numbered) if name not in taken)


def read(folder: Path, name: str) -> Record:
    """Read one run folder; `name` is the record's name.

    Raises:
        ValueError: if it is not a run that can be used; the message is the reason.
    """
    table = _config(folder)
    rows, remarks = _evaluations(folder / "evaluations.jsonl")
    times = timings(folder / "timings.jsonl")
    steps_done = max([row.env_steps for row in rows] + [one.env_steps for one in times], default=0)
    champion, complaint = _champion(folder / "champion.json", steps_done)
    try:
        environment = named(table["environment"], "environment")
        limit = environment.get("max_episode_steps")
        return Record(
            name=name,
            env=str(environment["id"]),
            kwargs=named(environment.get("kwargs", {}), "kwargs"),
            max_episode_steps=None if limit is None else whole(limit),
            algorithm=_known(table["algorithm"]),
            policy=_policy(table.get("policy")),
            seed=whole(table["seed"]),
            planned=whole(table["steps"]),
            settings={**find(_known(table["algorithm"])).config.earlier_values, **named(table["config"], "config")},
            versions={name: str(value) for name, value in named(table.get("versions", {}), "versions").items()},
            rows=rows,
            steps_done=steps_done,
            seconds=wall_clock(times),
            champion=champion,
            remarks=(*remarks, *complaint),
        )
    except (KeyError, ValueError) as error:
        raise ValueError(f"its config.toml is not the config of a run: {_reason(error)}") from None


def _reason(error: KeyError | ValueError) -> str:
    """Return the reason why a table is invalid, as text."""
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _config(folder: Path) -> dict[str, Any]:
    if (folder / ".beginning.tmp").exists() and not (folder / "config.toml").exists():
        raise ValueError("it was stopped before the run had begun")
    try:
        return run_folder.load_config(folder)
    except FileNotFoundError:
        raise ValueError("there is no config.toml in it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"its config.toml cannot be read: {error}") from None


def _known(algorithm: Any) -> str:
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise ValueError(f"there is no algorithm {reprlib.repr(algorithm)}")
    return algorithm


def _policy(name: Any) -> str | None:
    if name is not None and not isinstance(name, str):
        raise ValueError(f"{reprlib.repr(name)} is not the name of a policy")
    return name


def _evaluations(path: Path) -> tuple[tuple[Row, ...], list[str]]:
    """Return the rows of a run, and remarks about them. A last line without an end is still being written."""
    if not path.exists():
        raise ValueError("there is no evaluations.jsonl in it")
    found = lines(path)
    rows = []
    for at, line in enumerate(found, 1):
        try:
            rows.append(_row(parsed(line)))
        except (ValueError, KeyError) as error:
            raise ValueError(f"line {at} of its evaluations.jsonl is not an evaluation: {_reason(error)}") from None
    if any(after.env_steps <= before.env_steps for before, after in pairwise(rows)):
        raise ValueError("the steps in its evaluations.jsonl do not rise from row to row")
    finite = tuple(row for row in rows if math.isfinite(row.champion_return))
    left_out = len(rows) - len(finite)
    return finite, [f"{left_out} of its evaluations are left out: their return is not a finite number"] * bool(left_out)


def _row(row: dict[str, Any]) -> Row:
    fitness = numbers(row["fitness"])
    diversity = named(row.get("diversity") or {}, "diversity")
    mean_kl = diversity.get("mean_kl")
    kl = _square(diversity.get("kl") or [])
    repulsion = named(row.get("repulsion") or {}, "repulsion")
    acting = {"repulsion_acting": number(repulsion["acting"])} if "acting" in repulsion else {}
    return Row(
        env_steps=whole(row["env_steps"]),
        generation=whole(row["generation"]),
        champion=whole(row["champion"]),
        champion_return=number(row["champion_return"]),
        champion_return_std=number(row["champion_return_std"]),
        fresh=len(fitness) == 1 or "champion_returns" in row,
        fitness=fitness,
        elites=tuple(map(int, numbers(row["elites"]))),
        archive_size=whole(row.get("archive_size", 0)),
        mean_kl=None if mean_kl is None else number(mean_kl),
        kl=kl,
        losses={name: number(value) for name, value in row.items() if isinstance(value, float) and name not in _RETURNS}
        | acting,
        repulsion={name: number(share) for name, share in named(repulsion.get("shares") or {}, "shares").items()},
    )


def _square(value: Any) -> tuple[tuple[float, ...], ...]:
    lines = tuple(map(numbers, value)) if isinstance(value, list) else ()
    if not isinstance(value, list) or any(len(line) != len(lines) for line in lines):
        raise ValueError("the divergences are no square")
    return lines


def _champion(path: Path, steps_done: int) -> tuple[Float[np.ndarray, " episode"] | None, list[str]]:
    """Return the champion's fresh returns if they were measured after the last step, else a remark on what is wrong."""
    if not path.exists():
        return None, []
    try:
        table = parsed(read_bounded(path, 2**20))
        returns, at = np.array(numbers(table["returns"])), whole(table["env_steps"])
        if not len(returns) or not np.isfinite(returns).all():
            raise ValueError("its returns are not finite numbers")
    except OSError as error:
        return None, [_without_champion(f"permission or I/O error ({error.strerror})")]
    except (ValueError, KeyError) as error:
        return None, [_without_champion(_reason(error))]
    if at < steps_done:
        return None, [
            f"its champion's fresh episodes are left out: they were played at {at:,} steps, and the run continued to "
            f"{steps_done:,}"
        ]
    return returns, []


def _without_champion(reason: str) -> str:
    return f"its champion.json cannot be read, so the champion's fresh episodes are left out: {reason}"
