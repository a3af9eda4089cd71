"""The runs of a sweep: algorithms by tasks by seeds by settings, from a TOML file or a dictionary."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from arac import envs
from arac.algorithms import presets
from arac.algorithms.registry import ALGORITHMS, Algorithm, find
from arac.envs import EnvSpec
from arac.envs.tasks import full_name
from arac.errors import UserError
from arac.storage.run_spec import check_seed
from arac.sweeps.jobs import Job, checked, run_name
from arac.sweeps.process import Resources
from arac.utils.atomic_io import read_bounded
from arac.utils.text import suggestion
from arac.utils.validation import as_whole

_KEYS = ("algorithms", "tasks", "seeds", "steps", "settings", "grid", "env_kwargs", "max_episode_steps", "resources")
_LIMIT = 2**20
_LONGEST_NAME = 200  # most file systems have room for 255 bytes


class Spec(NamedTuple):
    """The runs of a sweep, and the resources of each."""

    jobs: list[Job]
    resources: Resources


def read(source: Path | Mapping[str, Any]) -> Spec:
    """Return the runs of a sweep, all of them checked.

    Raises:
        UserError: if something in it is not as it should be, with its line or its key.
    """
    if isinstance(source, Mapping):
        return _Reader("the sweep", "", source).spec()
    try:
        text = read_bounded(source, _LIMIT).decode()
        table = tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{source} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:  # tomllib's names the line
        raise UserError(f"{source} is not TOML: {error}.") from None
    return _Reader(str(source), text, table).spec()


class _Reader:
    """A reader of one sweep; its errors name the place."""

    def __init__(self, name: str, text: str, table: Mapping[str, Any]) -> None:
        self._name = name
        self._text = text
        self._table = table

    def spec(self) -> Spec:
        for key in self._table:
            if key not in _KEYS:
                self._refuse(f"there is no key {key!r}.{suggestion(key, _KEYS)}", key)
        stages = [[self._try(find, name, at=("algorithms",)) for name in names] for names in self._stages()]
        algorithms = [algorithm for stage in stages for algorithm in stage]
        limit = self._whole("max_episode_steps", default=None)
        kwargs = self._env_kwargs()
        tasks = [
            self._try(envs.check, name, max_episode_steps=limit, kwargs=kwargs, at=("tasks",))
            for name in self._names("tasks")
        ]
        jobs = [
            self._job(algorithm, task, seed, settings, varied, kwargs, limit)
            for seed in self._seeds()
            for stage in stages
            for task in tasks
            for algorithm in stage
            for settings, varied in self._settings(algorithm, [one.name for one in algorithms])
        ]
        self._check_names(jobs)
        return Spec(jobs, self._resources())

    def _job(
        self,
        algorithm: Algorithm,
        task: EnvSpec,
        seed: int,
        settings: dict[str, Any],
        varied: tuple[str, ...],
        kwargs: dict[str, Any],
        limit: int | None,
    ) -> Job:
        steps = self._whole("steps", default=None) or presets.default_steps(task.id)
        variant = "-".join([algorithm.name, *varied])
        name = run_name(task.id, variant, seed)
        if len(name) > _LONGEST_NAME:
            self._refuse(f"a run would have a name of {len(name)} letters, {name[:40]}…; vary fewer settings.", "grid")
        job = Job(name, algorithm.name, task.id, seed, steps, settings, kwargs, limit)
        try:
            return checked(algorithm, task, job)
        except UserError as error:
            given = [(part, *_path(self._table[part], name, algorithm.name)) for part, name in self._given(algorithm)]
            named = [path for path in [*given, *((key,) for key in self._table)] if path[-1] in error.fields]
            self._refuse(f"{name}: {error}", *(named[0] if named else ()))

    def _given(self, algorithm: Algorithm) -> Iterator[tuple[str, str]]:
        """Yield the part and the name of each setting for an algorithm."""
        for part in ("settings", "grid"):
            for name in self._for(part, algorithm.name):
                yield part, name

    def _settings(self, algorithm: Algorithm, chosen: list[str]) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
        """Yield every combination of settings of an algorithm, and those that vary as parts of a run's name."""
        for part in ("settings", "grid"):
            for key, value in self._sub_table(part).items():
                if isinstance(value, dict) and key not in chosen:
                    why = "is not among the algorithms" if key in ALGORITHMS else "is no algorithm"
                    self._refuse(f"[{part}.{key}] is for an algorithm, and {key} {why}.", part, key)
        fixed, grid = self._for("settings", algorithm.name), self._for("grid", algorithm.name)
        known = ["preset", *(one.name for one in fields(algorithm.config))]
        for part, name in self._given(algorithm):
            path = part, *_path(self._table[part], name, algorithm.name)
            if name not in known:
                elsewhere = f" Put a setting of another algorithm into [{part}.ALGORITHM]." if len(path) == 2 else ""
                self._refuse(f"{algorithm.title} has no setting {name!r}.{suggestion(name, known) or elsewhere}", *path)
            if name == "rollouts":
                self._refuse("the runs of a sweep play their own episodes; leave rollouts out.", *path)
            if part == "grid" and not (isinstance(grid[name], list) and grid[name]):
                self._refuse(f"{name} must be a list of at least one value, got {grid[name]!r}.", *path)
            if part == "grid" and name in fixed:
                self._refuse(f"{name} is in both [settings] and [grid]; remove one.", *path)
        for values in product(*grid.values()):
            given = {**fixed, **dict(zip(grid, values, strict=True))}
            named = tuple(f"{name}={_in_a_name(_as_setting(given[name]))}" for name in grid)
            yield {name: _as_setting(value) for name, value in given.items()}, named

    def _for(self, part: str, algorithm: str) -> dict[str, Any]:
        """Return the settings in a table for all algorithms and for this one."""
        table = self._sub_table(part)
        common = {name: value for name, value in table.items() if not isinstance(value, dict)}
        return {**common, **table.get(algorithm, {})}

    def _sub_table(self, key: str) -> dict[str, Any]:
        value = self._table.get(key, {})
        if not isinstance(value, dict):
            self._refuse(f"{key} must be a table, got {value!r}.", key)
        return value

    def _names(self, key: str) -> list[str]:
        value: Any = self._table.get(key)
        if not _are_names(value):
            given = "it is missing" if value is None else f"got {value!r}"
            self._refuse(f"{key} must be a list of at least one name; {given}.", key)
        return value

    def _stages(self) -> list[list[str]]:
        """Return the names of algorithms in groups, each of which goes through all tasks before the next."""
        value = self._table.get("algorithms")
        if isinstance(value, list) and value and all(map(_are_names, value)):
            return value
        return [self._names("algorithms")]

    def _seeds(self) -> list[int]:
        value = self._table.get("seeds", 1)
        if isinstance(value, list) and value:
            return [self._try(check_seed, seed, at=("seeds",)) for seed in value]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self._refuse(f"seeds must be how many, or a list of at least one seed, got {value!r}.", "seeds")
        return list(range(value))

    def _whole(self, key: str, default: int | None) -> int | None:
        value = as_whole(self._table.get(key, default))
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            self._refuse(f"{key} must be a whole number above 0, got {value!r}.", key)
        return value

    def _env_kwargs(self) -> dict[str, Any]:
        kwargs = self._sub_table("env_kwargs")
        for name, value in kwargs.items():
            if not _is_plain(value):
                self._refuse(f"{name} must be a number, a word or a list, got {value!r}.", "env_kwargs", name)
        return kwargs

    def _resources(self) -> Resources:
        table = self._sub_table("resources")
        for name in table:
            if name not in Resources._fields:
                self._refuse(f"there is no {name!r}.{suggestion(name, Resources._fields)}", "resources", name)
        cpus, gpus = table.get("cpus", 1), table.get("gpus", 0)
        if isinstance(cpus, bool) or not isinstance(cpus, int) or cpus < 1:
            self._refuse(f"cpus must be a whole number above 0, got {cpus!r}.", "resources", "cpus")
        if isinstance(gpus, bool) or not isinstance(gpus, int | float) or not 0 <= gpus < 1e6:
            self._refuse(f"gpus must be a number from 0 on, got {gpus!r}.", "resources", "gpus")
        if gpus > 1 and gpus != int(gpus):
            self._refuse(f"gpus must be a share of one or a whole number, got {gpus!r}.", "resources", "gpus")
        return Resources(cpus, float(gpus))

    def _check_names(self, jobs: list[Job]) -> None:
        [(name, count)] = Counter(job.name for job in jobs).most_common(1)
        if count == 1:
            return
        twice = [job for job in jobs if job.name == name]
        key = "grid" if twice[0].settings != twice[1].settings else self._repeated()
        self._refuse(f"{count} runs would have the name {name}: an entry is listed twice.", key)

    def _repeated(self) -> str:
        """Return the key of the list that has something twice."""
        for key, unique in (("algorithms", str), ("tasks", full_name), ("seeds", int)):
            value = self._table.get(key)
            if isinstance(value, list) and len({str(unique(one)) for one in value}) < len(value):
                return key
        return "grid"

    def _try(self, function: Any, *args: Any, at: tuple[str, ...], **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except UserError as error:
            self._refuse(str(error), *at)

    def _refuse(self, sentence: str, *path: str) -> NoReturn:
        line = line_of(self._text, path)
        where = [self._name, *([f"line {line}"] if line else [".".join(path)] if path else [])]
        raise UserError(f"{', '.join(where)}: {sentence}")


def line_of(text: str, path: tuple[str, ...]) -> int | None:
    """Return the line of a TOML text that has a key or begins a table; None if it cannot be found."""
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$", line):
            table = [word.strip().strip("\"'") for word in header[1].split(".")]
            if table == list(path):
                return number
        elif key := re.match(r"\s*([\w\"'.-]+)\s*=", line):
            words = [word.strip("\"'") for word in key[1].split(".")]
            if [*table, *words] == list(path):
                return number
    return line_of(text, path[:-1]) if len(path) > 1 else None


def _path(table: Mapping[str, Any], name: str, algorithm: str) -> tuple[str, ...]:
    """Return the place of a setting: in an algorithm's own table, or in that of all."""
    own = table.get(algorithm)
    return (algorithm, name) if isinstance(own, dict) and name in own else (name,)


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, list) else isinstance(value, bool | int | float | str)


def _as_setting(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _in_a_name(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)
