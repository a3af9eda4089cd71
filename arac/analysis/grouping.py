"""The grouping of runs by task, by algorithm with the settings that set it apart, and by seed."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, NamedTuple

from arac.algorithms.presets import configured, task_name
from arac.algorithms.registry import ALGORITHMS
from arac.analysis.paper import TABLE
from arac.storage.run_records import Record
from arac.storage.run_spec import WITHOUT_EFFECT

# Settings about evaluating: with others a run is still the paper's.
_EVALUATING = {"eval_interval", "eval_episodes"}


class Variant(NamedTuple):
    """An algorithm, with the settings that set some of its runs apart from the others."""

    algorithm: str  # name in the registry
    settings: tuple[str, ...] = ()  # such as "ar_coefficient 0", or the name of a preset

    def __str__(self) -> str:
        return ", ".join([self.label, *self.settings])

    @property
    def label(self) -> str:
        """The algorithm's label in tables and figures."""
        return ALGORITHMS[self.algorithm].label

    @property
    def place(self) -> tuple[int, int, str]:
        """The sort key: the paper's order of algorithms, and few settings before many."""
        return list(ALGORITHMS).index(self.algorithm), len(str(self)), str(self)


@dataclass(frozen=True)
class Group:
    """The runs of a variant on one task, one for each seed."""

    task: str
    variant: Variant
    records: tuple[Record, ...]

    @property
    def measured(self) -> tuple[Record, ...]:
        """The runs that have an evaluation."""
        return tuple(record for record in self.records if record.rows)

    @property
    def paper_task(self) -> str | None:
        """The row of the paper's table that the runs belong to; None for a changed environment."""
        return paper_task(self.records[0])


@dataclass(frozen=True)
class Study:
    """All groups, in the paper's order of tasks and algorithms, and the duplicates."""

    groups: tuple[Group, ...]
    duplicates: tuple[tuple[Record, Record], ...]  # a run that is left out, and the one that is kept

    @property
    def tasks(self) -> list[str]:
        """The tasks, in the paper's order."""
        return list(dict.fromkeys(group.task for group in self.groups))

    @property
    def variants(self) -> list[Variant]:
        """The variants, in the paper's order of algorithms."""
        return sorted({group.variant for group in self.groups}, key=lambda variant: variant.place)

    def on(self, task: str) -> list[Group]:
        """Return the groups on a task."""
        return [group for group in self.groups if group.task == task]


def group(records: Sequence[Record]) -> Study:
    """Group runs; of several with the same task, variant and seed, keep the one that went furthest."""
    tasks, variants = _tasks(records), _variants(records)
    chosen: dict[tuple[str, Variant, int], Record] = {}
    duplicates: list[tuple[Record, Record]] = []
    for record in sorted(records, key=lambda one: (-one.steps_done, one.name)):
        key = (tasks[record.name], variants[record.name], record.seed)
        if key in chosen:
            duplicates.append((record, chosen[key]))
        else:
            chosen[key] = record
    members: dict[tuple[str, Variant], list[Record]] = {}
    for (task, variant, _), record in chosen.items():
        members.setdefault((task, variant), []).append(record)
    groups = [
        Group(task, variant, tuple(sorted(ours, key=lambda one: one.seed))) for (task, variant), ours in members.items()
    ]
    return Study(tuple(sorted(groups, key=_place)), tuple(duplicates))


def paper_task(record: Record) -> str | None:
    """Return the row of the paper's table that a run belongs to; None for a changed environment."""
    name = task_name(record.env)
    return name if name in TABLE and not record.kwargs else None


def deviations(record: Record) -> dict[str, Any]:
    """Return the settings that differ from the task's preset, or from the defaults where it has none.

    A custom policy is one of them: no run of the paper was trained with it.
    """
    defaults = _defaults(record.algorithm, record.env)
    names = [name for name in {**defaults, **record.settings} if name not in WITHOUT_EFFECT]
    changed = {
        name: record.settings[name]
        for name in names
        if record.settings.get(name, defaults.get(name)) != defaults.get(name)
    }
    return changed if record.policy is None else {"policy": record.policy, **changed}


def as_in_paper(record: Record) -> bool:
    """Return True if a run has the settings of our defaults or of a named preset, as the paper's algorithms have.

    A variant without settings may still differ: settings that all runs of an algorithm share are not named.
    """
    changed = {name: value for name, value in deviations(record).items() if name not in _EVALUATING}
    named = named_presets(record.algorithm, record.env).values()
    return any(changed.items() <= preset.items() for preset in ({}, *named))


def settings_in_words(settings: Mapping[str, Any]) -> str:
    """Format settings as `ar_coefficient 0, flows 1`."""
    return ", ".join(each_in_words(settings))


def each_in_words(settings: Mapping[str, Any]) -> list[str]:
    """Format each setting as `ar_coefficient 0`."""
    return [f"{name} {f'{value:g}' if isinstance(value, float) else value}" for name, value in settings.items()]


@cache
def named_presets(algorithm: str, env: str) -> dict[str, dict[str, Any]]:
    """Return the settings in which each named preset of an algorithm differs from the defaults for a task."""
    defaults = _defaults(algorithm, env)
    return {
        name: {
            setting: value for setting, value in _defaults(algorithm, env, name).items() if value != defaults[setting]
        }
        for name in ALGORITHMS[algorithm].config.named_presets
    }


@cache
def _defaults(algorithm: str, env: str, preset: str = "paper") -> dict[str, Any]:
    config, _ = configured(ALGORITHMS[algorithm].config, env, {}, preset=preset)
    return dict(json.loads(json.dumps(asdict(config))))


def _tasks(records: Iterable[Record]) -> dict[str, str]:
    """Return each run's task: its environment, its arguments, and its time limit where runs differ in it."""
    limits: dict[str, set[int | None]] = {}
    plain = {}
    for record in records:
        plain[record.name] = record.env + (f", {settings_in_words(record.kwargs)}" if record.kwargs else "")
        limits.setdefault(plain[record.name], set()).add(record.max_episode_steps)
    return {
        record.name: plain[record.name]
        + (f", max_episode_steps {record.max_episode_steps}" if len(limits[plain[record.name]]) > 1 else "")
        for record in records
    }


def _variants(records: Sequence[Record]) -> dict[str, Variant]:
    """Return each run's variant: its algorithm, with the deviations that not all runs of the algorithm share.

    A setting about evaluating makes no variant. The settings of a named preset are replaced by its name.
    """
    variants, envs = {}, {record.name: record.env for record in records}
    for algorithm in {record.algorithm for record in records}:
        ours = {
            record.name: {name: value for name, value in deviations(record).items() if name not in _EVALUATING}
            for record in records
            if record.algorithm == algorithm
        }
        names = sorted({name for one in ours.values() for name in one})
        telling = [name for name in names if len({json.dumps(one.get(name), default=str) for one in ours.values()}) > 1]
        for name, one in ours.items():
            special = {setting: one[setting] for setting in telling if setting in one}
            variants[name] = Variant(algorithm, _in_words(algorithm, envs[name], special))
    return variants


def _in_words(algorithm: str, env: str, settings: dict[str, Any]) -> tuple[str, ...]:
    """Format settings, with the name of a preset in place of its settings if all but the task's own are there."""
    of_task = ALGORITHMS[algorithm].config.letter_fields
    for name, preset in named_presets(algorithm, env).items():
        if preset and all(settings.get(key) == value for key, value in preset.items() if key not in of_task):
            rest = {key: value for key, value in settings.items() if key not in preset or preset[key] != value}
            return (name, *each_in_words(rest))
    return tuple(each_in_words(settings))


def _place(group: Group) -> tuple[Any, ...]:
    tasks = list(TABLE)
    task = group.paper_task
    return tasks.index(task) if task else len(tasks), group.task, group.variant.place
