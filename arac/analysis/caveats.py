"""Remarks on what a report cannot show: runs that are missing, unfinished, unreadable or not comparable."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from arac.analysis import paper
from arac.analysis.grouping import Group, Study, as_in_paper, deviations, paper_task, settings_in_words
from arac.storage.run_records import Broken, Record


@dataclass(frozen=True)
class Remark:
    kind: str
    text: str


def remarks(study: Study, broken: Sequence[Broken]) -> list[Remark]:
    """Return all that a reader should know before trusting a number, the most serious first."""
    return [
        *(Remark("cannot be read", f"{one.name}: {one.reason}") for one in broken),
        *_runs(study),
        *(
            Remark("duplicate", f"{out.name} is left out: {kept.name} has the same task, algorithm, settings and seed")
            for out, kept in study.duplicates
        ),
        *(remark for group in study.groups for remark in _group(group)),
        *(remark for task in study.tasks for remark in _task(task, study.on(task))),
        *_versions([record for group in study.groups for record in group.records]),
    ]


def coverage(study: Study) -> dict[str, dict[str, tuple[int, int]]]:
    """Count the runs of each of the paper's algorithms on each task: those that reached its steps, and all."""
    table = {}
    for task in paper.TABLE:
        groups = [group for group in study.groups if group.paper_task == task]
        table[task] = {algorithm: _count(groups, task, algorithm) for algorithm in paper.COLUMNS}
    return table


def _count(groups: Sequence[Group], task: str, algorithm: str) -> tuple[int, int]:
    """Count the seeds of an algorithm with the paper's settings, those with the paper's steps first."""
    seeds: dict[int, int] = {}
    for record in (record for group in groups if group.variant.algorithm == algorithm for record in group.records):
        if as_in_paper(record):
            seeds[record.seed] = max(record.steps_done, seeds.get(record.seed, 0))
    return sum(steps >= paper.steps(task) for steps in seeds.values()), len(seeds)


def missing(study: Study) -> str:
    """Return a sentence on how many of the paper's runs are missing or too short."""
    cells = [counts for row in coverage(study).values() for counts in row.values()]
    whole = sum(min(full, paper.SEEDS) for full, _ in cells)
    begun = sum(min(some, paper.SEEDS) for _, some in cells)
    wanted = len(cells) * paper.SEEDS
    runs = f"{wanted} runs ({len(paper.TABLE)} tasks, {len(paper.COLUMNS)} algorithms, {paper.SEEDS} seeds)"
    if not begun:
        return f"None of the paper's {runs} is here."
    return (
        f"Of the paper's {runs} {wanted - begun} are not here, and "
        f"{begun - whole} of the {begun} that are here have fewer steps than the paper's."
    )


def _runs(study: Study) -> Iterator[Remark]:
    for record in (record for group in study.groups for record in group.records):
        if not record.finished:
            done = f"{record.name} is at {record.steps_done:,} of {record.planned:,} steps"
            yield Remark("unfinished", done + ("" if record.rows else " and has no evaluation yet"))
        elif not record.rows:
            yield Remark("no evaluation", f"{record.name} has no evaluation to show")
        for text in record.remarks:
            yield Remark("left out", f"{record.name}: {text}")


def _group(group: Group) -> Iterator[Remark]:
    what = f"{group.variant} on {group.task}"
    if len(group.measured) == 1:
        yield Remark("one seed", f"{what} has one seed: its spread is unknown")
    if biased := sum(not row.fresh for record in group.measured for row in record.rows):
        yield Remark(
            "chosen on the same episodes",
            f"{biased} evaluations of {what} are of an earlier version: their return is the champion's in the episodes "
            "that chose it, which is biased upwards",
        )
    ends = [int(record.steps[-1]) for record in group.measured]
    if ends and max(ends) > 1.2 * min(ends):
        yield Remark(
            "different lengths",
            f"the runs of {what} end between {min(ends):,} and {max(ends):,} steps: the curve is dotted where some are "
            "missing, and maximum, final return and area mix them",
        )


def _task(task: str, groups: Sequence[Group]) -> Iterator[Remark]:
    name = groups[0].paper_task
    if name is None:
        yield Remark("not in the paper", f"{task} is not one of the paper's eight tasks: there is no value beside ours")
    ends = {group.variant: max(record.steps[-1] for record in group.measured) for group in groups if group.measured}
    if ends and max(ends.values()) > 1.2 * min(ends.values()):
        yield Remark(
            "different lengths",
            f"the algorithms on {task} end between {min(ends.values()):,.0f} and {max(ends.values()):,.0f} steps: "
            "their maximum, final return and area do not compare; the interquartile means do",
        )
    for group in groups:
        changed = {name: value for record in group.records for name, value in deviations(record).items()}
        if changed and not group.variant.settings:
            whose = "the preset's settings" if paper_task(group.records[0]) else "the defaults"
            yield Remark(
                "other settings", f"{group.variant} on {task} departs from {whose}: {settings_in_words(changed)}"
            )


def _versions(records: Sequence[Record]) -> Iterator[Remark]:
    found: dict[str, set[str]] = {}
    for record in records:
        for name, version in record.versions.items():
            found.setdefault(name, set()).add(version)
    for name, several in found.items():
        if len(several) > 1:
            yield Remark("different versions", f"the runs were made with {name} {', '.join(sorted(several))}")
