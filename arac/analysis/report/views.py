"""The page's tables and sentences as plain data; the templates beside this module show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arac.algorithms.registry import ALGORITHMS
from arac.analysis import paper, tables
from arac.analysis.caveats import Remark, coverage, missing
from arac.analysis.grouping import Group, Study, deviations, each_in_words, settings_in_words
from arac.analysis.references import PUBLIC_SAC, PUBLIC_SAC_SOURCE, public_sac
from arac.analysis.summary import Line, Spread
from arac.storage.run_records import Record


@dataclass(frozen=True)
class Returns:
    """The table of returns on a task; without lines if no run has an evaluation yet."""

    task: str
    lines: Sequence[Line]
    doubts: Sequence[str]  # about values of the paper; the table refers to them by number
    notes: Sequence[str]

    @property
    def best(self) -> float:
        return max(line.maximum.mean for line in self.lines)


@dataclass(frozen=True)
class Run:
    """A row of the table of runs."""

    group: Group
    record: Record
    settings: Sequence[str]  # that not all runs on the page have
    versions: Sequence[str]


@dataclass(frozen=True)
class Runs:
    """The table of runs, with the settings and the versions that all of them share."""

    rows: Sequence[Run]
    settings: str
    versions: str


@dataclass(frozen=True)
class Gaps:
    """The paper's experiments that are here, and the remarks by their kind."""

    missing: str
    algorithms: Sequence[str]
    coverage: Mapping[
        str, Mapping[str, tuple[int, int]]
    ]  # by task and algorithm: seeds with the paper's steps, and all
    steps: Mapping[str, int]
    remarks: Mapping[str, Sequence[str]]


def lead(study: Study) -> str:
    """Return a sentence on how much the page shows."""
    records = [record for group in study.groups for record in group.records]
    algorithms = _several(len({variant.algorithm for variant in study.variants}), "algorithm")
    variants = f" in {len(study.variants)} variants" if any(variant.settings for variant in study.variants) else ""
    return (
        f"{_several(len(records), 'run')} of {algorithms}{variants} on {_several(len(study.tasks), 'task')}, "
        f"{_several(len({record.seed for record in records}), 'seed')}; "
        f"{sum(record.finished for record in records)} finished, "
        f"{sum(record.steps_done for record in records):,} environment steps in all."
    )


def returns(study: Study, lines: Sequence[Line]) -> list[Returns]:
    """Return the table of each task."""
    return [
        _returns(task, [line for line in lines if line.task == task], study.on(task)[0].paper_task)
        for task in study.tasks
    ]


def runs(study: Study) -> Runs:
    """Return the table of all runs."""
    members = [(group, record) for group in study.groups for record in group.records]
    settings = _shared([deviations(record) for _, record in members])
    versions = _shared([record.versions for _, record in members])
    rows = [
        Run(group, record, _others(deviations(record), settings), _others(record.versions, versions))
        for group, record in members
    ]
    return Runs(rows, settings_in_words(settings), settings_in_words(versions))


def gaps(study: Study, remarks: Sequence[Remark]) -> Gaps:
    """Return the coverage of the paper's experiments, and all remarks by kind."""
    kinds: dict[str, list[str]] = {}
    for remark in remarks:
        kinds.setdefault(remark.kind, []).append(remark.text)
    labels = [ALGORITHMS[name].label for name in paper.COLUMNS]
    return Gaps(missing(study), labels, coverage(study), {task: paper.steps(task) for task in paper.TABLE}, kinds)


def _returns(task: str, lines: Sequence[Line], paper_task: str | None) -> Returns:
    if not lines:
        return Returns(task, (), (), ["No run has an evaluation yet."])
    notes = []
    first, last = min(line.ends[0] for line in lines), max(line.ends[1] for line in lines)
    if last > 1.2 * first:
        notes.append(f"Runs end between {first:,} and {last:,} steps: only the IQM compares them at the same step.")
    if late := [run for line in lines for run in line.left_out]:
        notes.append(f"In the IQM: {tables.left_out(task, lines[0].robust_at, late)}")
    if not any(line.paper for line in lines):
        notes.append("No value of the paper belongs beside these: its tasks or its settings are others.")
    if public := public_sac(paper_task):
        values = [
            f"{tables.spread(Spread(mean, std))} at {steps:,}"
            for steps, mean, std in zip(public.steps, public.returns, public.stds, strict=True)
        ]
        notes.append(f"{PUBLIC_SAC}: {', '.join(values)} steps ({PUBLIC_SAC_SOURCE}).")
    doubts = list(dict.fromkeys(erratum.sentence for line in lines for erratum in line.errata))
    return Returns(task, lines, doubts, notes)


def _shared(several: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries of the first mapping that all others have too."""
    return {
        name: value for name, value in several[0].items() if all(name in one and one[name] == value for one in several)
    }


def _others(entries: Mapping[str, Any], shared: Mapping[str, Any]) -> list[str]:
    return each_in_words({name: value for name, value in entries.items() if name not in shared})


def _several(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
