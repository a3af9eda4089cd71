"""The table of returns as CSV and as Markdown."""

import csv
import io
import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from arac.analysis.paper import CAVEAT, Value
from arac.analysis.statistics import Interval
from arac.analysis.summary import Line, Spread

# `system` is the variant; the column keeps the name that it had in the first version.
COLUMNS = (
    "task", "system", "algorithm", "seeds", "unfinished", "first_end", "last_end",
    "maximum_mean", "maximum_std", "paper_mean", "paper_std", "rank", "paper_rank",
    "final_mean", "final_std", "area_mean", "area_std", "champion_mean", "champion_std", "champion_seeds",
    "iqm", "iqm_low", "iqm_high", "iqm_at_steps", "iqm_seeds", "errata",
)  # fmt: skip
NOTES = (
    "Maximum: the best evaluation of a run. Final: its last. Area: the mean height of its learning curve. All three, "
    "and the champion's fresh episodes, as mean ± standard deviation over seeds. IQM: the interquartile mean of the "
    "returns at the last step that all finished runs of the task have reached (all runs, where none is finished), with "
    "a 95 % t interval from three seeds on; runs that have not got there are left out. "
)


class Estimate(NamedTuple):
    """A number as it is printed, with its deviation or its interval."""

    number: str
    margin: str = ""

    def __str__(self) -> str:
        return f"{self.number} {self.margin}".rstrip()


def number(value: float) -> str:
    """Format a number with decimals that suit its size: 12,345; 345.6; 1.32."""
    return f"{value:z,.{_decimals(value)}f}"


def spread(value: Spread | Value | None) -> Estimate:
    """Format as 4,235 ± 58, with the same number of decimals; as 4,235 for one seed; or as a dash for None."""
    if value is None:
        return Estimate("-")
    if value.std is None:
        return Estimate(number(value.mean))
    decimals = _decimals(value.mean, value.std)
    return Estimate(f"{value.mean:z,.{decimals}f}", f"± {value.std:,.{decimals}f}")


def _decimals(*values: float) -> int:
    """Return the number of decimals that suits the largest value; 0 if all are whole numbers."""
    largest = max(map(abs, values))
    return 0 if largest >= 1000 or all(value == round(value) for value in values) else 1 if largest >= 100 else 2


def interval(value: Interval) -> Estimate:
    """Format as 5.2 [4.1, 6.3]; as 5.2 if there are no bounds; or as a dash if there is no value."""
    if math.isnan(value.value):
        return Estimate("-")
    if math.isnan(value.low):
        return Estimate(number(value.value))
    return Estimate(number(value.value), f"[{number(value.low)}, {number(value.high)}]")


def ranks(line: Line) -> str:
    """Format as 2 / 1: ours and the paper's; or as a dash if there is none."""
    return f"{line.ranks[0]} / {line.ranks[1]}" if line.ranks else "-"


def seeds(line: Line) -> str:
    """Format the number of seeds as 5; or as 5, 2 unfinished."""
    return f"{line.seeds}, {line.unfinished} unfinished" if line.unfinished else str(line.seeds)


def ends(line: Line) -> str:
    """Format the runs' last steps: one number if they differ by less than 2 %, as different last episodes cause."""
    first, last = line.ends
    return f"{last:,}" if first > 0.98 * last else f"{first:,} to {last:,}"


def left_out(task: str, steps: int, runs: Sequence[str]) -> str:
    """Return a sentence that names the runs that are not compared with the others of a task."""
    return f"Not yet at {steps:,} steps of {task}, and left out: {'; '.join(runs)}."


def as_csv(lines: Sequence[Line]) -> str:
    """Return the table as CSV: numbers in full precision, missing values empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in lines:
        pairs = [line.maximum, line.paper, line.final, line.area, line.champion]
        maximum, paper, final, area, champion = ((pair.mean, pair.std) if pair else (None, None) for pair in pairs)
        writer.writerow([
            line.task, line.variant, line.variant.algorithm, line.seeds, line.unfinished, *line.ends,
            *maximum, *paper, *(line.ranks or (None, None)), *final, *area, *champion, line.champions,
            *(None if math.isnan(one) else one for one in line.robust), line.robust_at, line.robust_seeds,
            " ".join(erratum.sentence for erratum in line.errata),
        ])  # fmt: skip
    return text.getvalue()


def as_markdown(lines: Sequence[Line]) -> str:
    """Return the table as Markdown, with the doubts about the paper's values below it."""
    head = ("task", "algorithm", "seeds", "steps", "maximum", "the paper's", "rank: ours / paper's", "final", "area",
            "champion, fresh episodes", "IQM")  # fmt: skip
    rows: list[tuple[object, ...]] = [head, ("---",) * len(head)]
    notes: list[str] = []
    for line in lines:
        marks = ""
        for erratum in line.errata:
            note = f"{line.task}: {erratum.sentence}"
            if note not in notes:
                notes.append(note)
            marks += f" [{notes.index(note) + 1}]"
        rows.append((
            line.task, line.variant, seeds(line), ends(line), spread(line.maximum), f"{spread(line.paper)}{marks}",
            ranks(line), spread(line.final), spread(line.area), spread(line.champion), interval(line.robust),
        ))  # fmt: skip
    table = "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)
    numbered = "\n".join(f"{place}. {note}" for place, note in enumerate(notes, 1))
    errata = f"\nOn the paper's values:\n\n{numbered}\n" if notes else ""
    return f"{table}\n\n{NOTES}{CAVEAT}\n{_absent(lines)}{errata}"


def _absent(lines: Sequence[Line]) -> str:
    """Return a sentence for each task with runs that are left out of the IQM."""
    text = ""
    for task, ours in groupby(lines, lambda line: line.task):
        several = list(ours)
        runs = [run for line in several for run in line.left_out]
        text += f"\n{left_out(task, several[0].robust_at, runs)}\n" if runs else ""
    return text
