"""The numbers of a report: each algorithm on each task beside the paper, and algorithms against each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from arac.analysis import paper, statistics
from arac.analysis.grouping import Group, Study, Variant, as_in_paper
from arac.analysis.paper import Erratum, Value
from arac.analysis.statistics import Interval, improvement_interval, interquartile_interval
from arac.storage.run_records import Record

THRESHOLDS = np.linspace(0, 1, 101)
ALL_TASKS = "all tasks"
Scores: TypeAlias = dict[Variant, dict[str, np.ndarray]]  # of each run, by task
_NOTHING = Interval(np.nan, np.nan, np.nan)


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds; for a single seed the deviation is None."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class Line:
    """A row of the table: an algorithm, or a variant of it, on a task."""

    task: str
    variant: Variant
    seeds: int  # runs with an evaluation
    unfinished: int
    ends: tuple[int, int]  # the lowest and the highest step of a run's last evaluation
    maximum: Spread
    final: Spread
    area: Spread
    champion: Spread | None  # over seeds, of the means of fresh episodes
    champions: int  # number of runs in `champion`
    robust: Interval  # interquartile mean at `robust_at`; all NaN if no run has reached it
    robust_at: int
    robust_seeds: int  # number of runs in `robust`
    left_out: tuple[str, ...]  # descriptions of the other runs
    paper: Value | None
    ranks: tuple[int, int] | None  # ours and the paper's by the maximum, among the algorithms that both have
    errata: tuple[Erratum, ...]  # about the paper's value


@dataclass(frozen=True)
class Comparison:
    """A comparison of the algorithms on one task or on all."""

    scope: str
    tasks: int
    tasks_of: dict[Variant, int]  # number of these tasks with runs of each algorithm
    at: dict[str, int]  # the steps at which the runs of each task are compared
    left_out: dict[str, tuple[str, ...]]  # descriptions of each task's runs that have not reached them
    interquartile: dict[Variant, Interval]  # of returns on one task, of normalised ones on all; NaN if no run is left
    improvement: dict[Variant, dict[Variant, Interval]]  # of the first over the second
    profile: dict[Variant, Float[np.ndarray, " threshold"]]  # of normalised scores


def lines(study: Study) -> list[Line]:
    """Return the rows of the table, task by task; a group without an evaluation has none."""
    found = []
    for task in study.tasks:
        groups = [group for group in study.on(task) if group.measured]
        ranks, at = _ranks(groups), common_steps(groups)
        found += [_line(group, at, ranks.get(group.variant)) for group in groups]
    return found


def comparisons(study: Study) -> list[Comparison]:
    """Return the comparison on all tasks together, if there are several, and on each task."""
    scores: Scores = {}
    at: dict[str, int] = {}
    late: dict[str, tuple[str, ...]] = {}
    for task in study.tasks:
        groups = [group for group in study.on(task) if group.measured]
        if groups:
            at[task] = common_steps(groups)
            late[task] = tuple(words for group in groups for words in _left_out(group, at[task]))
        for group in groups:
            scores.setdefault(group.variant, {})[task] = scores_at(group.measured, at[task])
    scores = {variant: scores[variant] for variant in study.variants if variant in scores}
    several = [_compare(ALL_TASKS, list(at), scores, at, late)] if len(at) > 1 else []
    return several + [_compare(task, [task], scores, at, late) for task in at]


def common_steps(groups: Sequence[Group]) -> int:
    """Return the last step that all finished runs of a task have reached, or all runs if none is finished.

    Runs are compared at that step. A run that has just begun does not lower it for the others.
    """
    runs = [record for group in groups for record in group.measured]
    done = [record for record in runs if record.finished] or runs
    return int(min((record.steps[-1] for record in done), default=0))


def scores_at(records: Sequence[Record], steps: int) -> Float[np.ndarray, " run"]:
    """Return each run's return at its evaluation nearest to `steps`; runs that did not reach `steps` are left out."""
    there = [record for record in records if record.steps[-1] >= steps]
    return np.array([record.returns[np.abs(record.steps - steps).argmin()] for record in there])


def _left_out(group: Group, steps: int) -> list[str]:
    """Return a description of the runs that have not reached `steps`, if there are any."""
    late = [f"{one.seed} (at {one.steps[-1]:,.0f})" for one in group.measured if one.steps[-1] < steps]
    return [f"{group.variant} seed{'s' if len(late) > 1 else ''} {', '.join(late)}"] if late else []


def normalised(scores: Scores, tasks: Sequence[str]) -> Scores:
    """Scale scores from 0 for a task's worst run to 1 for its best; a task whose runs are all alike is left out."""
    scaled: Scores = {}
    for task in tasks:
        pooled = np.concatenate([of[task] for of in scores.values() if task in of])
        low, width = pooled.min(), np.ptp(pooled)
        for variant, of in scores.items():
            if task in of and width > 0:
                scaled.setdefault(variant, {})[task] = (of[task] - low) / width
    return {variant: scaled[variant] for variant in scores if variant in scaled}


def paper_value(group: Group) -> Value | None:
    """Return the paper's value for a group's task and algorithm; a variant of the algorithm has none."""
    plain = all(map(as_in_paper, group.records))
    return paper.value(group.paper_task, group.variant.algorithm) if plain else None


def _line(group: Group, at: int, ranks: tuple[int, int] | None) -> Line:
    runs = group.measured
    ends = [int(record.steps[-1]) for record in runs]
    scores = scores_at(runs, at)
    champions = [float(record.champion.mean()) for record in runs if record.champion is not None]
    return Line(
        task=group.task,
        variant=group.variant,
        seeds=len(runs),
        unfinished=sum(not record.finished for record in runs),
        ends=(min(ends), max(ends)),
        maximum=_spread([statistics.maximum(record.returns) for record in runs]),
        final=_spread([statistics.final(record.returns) for record in runs]),
        area=_spread([statistics.area(record.steps, record.returns) for record in runs]),
        champion=_spread(champions) if champions else None,
        champions=len(champions),
        robust=interquartile_interval({group.task: scores}) if len(scores) else _NOTHING,
        robust_at=at,
        robust_seeds=len(scores),
        left_out=tuple(_left_out(group, at)),
        paper=(value := paper_value(group)),
        ranks=ranks,
        errata=tuple(paper.errata(group.paper_task, group.variant.algorithm)) if value else (),
    )


def _spread(values: Sequence[float]) -> Spread:
    return Spread(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None)


def _ranks(groups: Sequence[Group]) -> dict[Variant, tuple[int, int]]:
    """Return ranks by the maximum, ours and the paper's, among the algorithms that both have, if there are several."""
    theirs = {group.variant: value.mean for group in groups if (value := paper_value(group))}
    ours = {
        group.variant: float(np.mean([statistics.maximum(record.returns) for record in group.measured]))
        for group in groups
        if group.variant in theirs
    }
    mine, others = _places(ours), _places(theirs)
    several = len({variant.algorithm for variant in theirs}) > 1
    return {variant: (mine[variant], others[variant]) for variant in theirs} if several else {}


def _places(values: dict[Variant, float]) -> dict[Variant, int]:
    """Return ranks: one more than the number of better algorithms, each counted once even if it has two variants."""
    better = {
        variant: {other.algorithm for other in values if values[other] > value} - {variant.algorithm}
        for variant, value in values.items()
    }
    return {variant: 1 + len(above) for variant, above in better.items()}


def _compare(
    scope: str, tasks: Sequence[str], scores: Scores, at: dict[str, int], late: dict[str, tuple[str, ...]]
) -> Comparison:
    everyone = {
        variant: {task: of[task] for task in tasks if len(of.get(task, ()))}
        for variant, of in scores.items()
        if any(task in of for task in tasks)
    }
    ours = {variant: of for variant, of in everyone.items() if of}
    scaled = normalised(ours, tasks)
    compared = scaled if len(tasks) > 1 else ours
    return Comparison(
        scope=scope,
        tasks=len(tasks),
        tasks_of={variant: len(of) for variant, of in everyone.items()},
        at={task: at[task] for task in tasks},
        left_out={task: late[task] for task in tasks if late[task]},
        interquartile={
            variant: interquartile_interval(compared[variant]) if variant in compared else _NOTHING
            for variant in everyone
            if variant in compared or variant not in ours
        },
        improvement={
            variant: {
                other: improvement_interval(of, theirs)
                for other, theirs in ours.items()
                if other != variant and set(of) & set(theirs)
            }
            for variant, of in ours.items()
        },
        profile={variant: statistics.performance_profile(of, THRESHOLDS) for variant, of in scaled.items()},
    )
