"""Which runs belong together: tasks, systems with what sets them apart, and seeds."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from arac.algorithms.presets import configured, task_name
from arac.algorithms.registry import ALGORITHMS
from arac.analysis.paper import TABLE
from arac.analysis.run_records import Record
from arac.storage.run_spec import WITHOUT_EFFECT

# Settings about evaluating: with others a run is still the paper's.
_EVALUATING = {"eval_interval", "eval_episodes"}


@dataclass(frozen=True)
class Group:
    """The runs of one system on one task, one for each seed."""

    task: str
    system: str
    algorithm: str
    records: tuple[Record, ...]

    @property
    def measured(self) -> tuple[Record, ...]:
        """Those with an evaluation."""
        return tuple(record for record in self.records if record.rows)

    @property
    def paper_task(self) -> str | None:
        return paper_task(self.records[0])


@dataclass(frozen=True)
class Study:
    """All groups, in the paper's order of tasks and systems, and the runs that stand in none."""

    groups: tuple[Group, ...]
    duplicates: tuple[tuple[Record, Record], ...]  # a run that is left out, and the one that stands for it

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(group.task for group in self.groups))

    @property
    def systems(self) -> dict[str, str]:
        """The algorithm of each system."""
        labels = {group.system: group.algorithm for group in self.groups}
        return dict(sorted(labels.items(), key=lambda item: (list(ALGORITHMS).index(item[1]), len(item[0]), item[0])))

    def on(self, task: str) -> list[Group]:
        return [group for group in self.groups if group.task == task]


def group(records: Sequence[Record]) -> Study:
    """Sorts runs into groups; of several with the same task, system and seed the one that went furthest stands."""
    tasks, systems = _tasks(records), _systems(records)
    chosen: dict[tuple[str, str, int], Record] = {}
    duplicates: list[tuple[Record, Record]] = []
    for record in sorted(records, key=lambda one: (-one.steps_done, one.name)):
        key = (tasks[record.name], systems[record.name], record.seed)
        if key in chosen:
            duplicates.append((record, chosen[key]))
        else:
            chosen[key] = record
    members: dict[tuple[str, str], list[Record]] = {}
    for (task, system, _), record in chosen.items():
        members.setdefault((task, system), []).append(record)
    groups = [
        Group(task, system, ours[0].algorithm, tuple(sorted(ours, key=lambda one: one.seed)))
        for (task, system), ours in members.items()
    ]
    return Study(tuple(sorted(groups, key=_place)), tuple(duplicates))


def paper_task(record: Record) -> str | None:
    """The row of the paper's table that a run belongs to; a changed environment has none."""
    name = task_name(record.env)
    return name if name in TABLE and not record.kwargs else None


def deviations(record: Record) -> dict[str, Any]:
    """The settings that are not as the task's preset has them, or the defaults where there is no preset.

    A policy of the user's own is one of them: nothing of the paper's was trained with it.
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
    """Tell whether a run is the paper's system, by our defaults or a named preset, and no variant of it.

    A label leaves out what all runs of an algorithm share: also where that is a variant, and no run is the paper's.
    """
    changed = {name: value for name, value in deviations(record).items() if name not in _EVALUATING}
    presets = ALGORITHMS[record.algorithm].config.named_presets.values()
    return any(changed.items() <= preset.items() for preset in ({}, *presets))


def settings_in_words(settings: Mapping[str, Any]) -> str:
    """`ar_coefficient 0, flows 1`."""
    return ", ".join(
        f"{name} {f'{value:g}' if isinstance(value, float) else value}" for name, value in settings.items()
    )


@cache
def _defaults(algorithm: str, env: str) -> dict[str, Any]:
    config, _ = configured(ALGORITHMS[algorithm].config, env, {})
    return dict(json.loads(json.dumps(asdict(config))))


def _tasks(records: Iterable[Record]) -> dict[str, str]:
    """Each run's task: its environment, with arguments, and with the time limit where runs differ in it."""
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


def _systems(records: Sequence[Record]) -> dict[str, str]:
    """Return each run's system: the algorithm, with the settings that not all of its runs share as deviations.

    A setting in which every run of an algorithm departs from its preset in the same way does not set any apart, nor
    does one about evaluating. The settings of a named preset go by its name.
    """
    labels = {}
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
            labels[name] = ", ".join([ALGORITHMS[algorithm].label, *_presets_and_settings(algorithm, special)])
    return labels


def _presets_and_settings(algorithm: str, settings: dict[str, Any]) -> list[str]:
    """Return what names a variant: a preset whose settings are all there, and the rest of them."""
    presets = ALGORITHMS[algorithm].config.named_presets
    whole = [name for name, preset in presets.items() if preset and preset.items() <= settings.items()]
    named = whole[:1]
    rest = {name: value for name, value in settings.items() if not named or name not in presets[named[0]]}
    return [*named, *([settings_in_words(rest)] if rest else [])]


def _place(group: Group) -> tuple[Any, ...]:
    tasks = list(TABLE)
    task = group.paper_task
    return (
        tasks.index(task) if task else len(tasks),
        group.task,
        list(ALGORITHMS).index(group.algorithm),
        group.system,
    )
