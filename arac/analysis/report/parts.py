"""The page's text and tables as HTML. Text from run folders goes through `escape`."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby

from arac.algorithms.registry import ALGORITHMS
from arac.analysis import paper
from arac.analysis import tables as words
from arac.analysis.caveats import Remark, coverage, missing
from arac.analysis.grouping import Group, Study, deviations, settings_in_words
from arac.analysis.report.pictures import TITLES, Picture, as_html
from arac.analysis.run_records import Record
from arac.analysis.summary import Line, Spread
from arac.training.display import clock

FOOTER = (
    "Drawn by <code>arac report</code> from run folders alone; curves_mean, curves_paper and curves_robust (PNG, PDF), "
    "table.csv and table.md lie beside this page."
)
_APART = "No value of the paper belongs beside these: its tasks or its settings are others."


def lead(study: Study) -> str:
    records = [record for group in study.groups for record in group.records]
    seeds = len({record.seed for record in records})
    done = sum(record.finished for record in records)
    return (
        f"{_several(len(records), 'run')} of {_several(len(study.systems), 'system')} on "
        f"{_several(len(study.tasks), 'task')}, {_several(seeds, 'seed')}; {done} finished, "
        f"{sum(record.steps_done for record in records):,} environment steps in all."
    )


def tables(study: Study, lines: Sequence[Line], index: Mapping[str, int]) -> str:
    """Return a table for each task, with the doubts about the paper's values below it."""
    parts = [_task_table(task, list(ours), index) for task, ours in groupby(lines, lambda line: line.task)]
    bare = [task for task in study.tasks if all(not group.measured for group in study.on(task))]
    parts += [f"<h3>{escape(task)}</h3><p class='note'>No run has an evaluation yet.</p>" for task in bare]
    return "".join(parts)


def runs(study: Study, index: Mapping[str, int]) -> str:
    """Return a table of all runs on the page, and the versions that they share."""
    members = [(group, record) for group in study.groups for record in group.records]
    shared = set.intersection(*(set(record.versions.items()) for _, record in members))
    made = [f"{name} {version}" for name, version in members[0][1].versions.items() if (name, version) in shared]
    heads = (
        "Run", "Task", "System", "Seed", "Steps", "Evaluations", "Wall-clock", "Settings that differ", "Other versions",
    )  # fmt: skip
    rows = "".join(_run(group, record, index[group.system], shared) for group, record in members)
    return (
        f"<p class='note'>All were made with: {escape(', '.join(made)) or 'different versions'}. Settings differ from "
        f"the task's preset, or from the defaults where it has none.</p>{_table('What was run', heads, rows, 'runs')}"
    )


def gaps(study: Study, found: Sequence[Remark]) -> str:
    """Return the coverage of the paper's experiments, and all remarks by kind."""
    heads = (f"Seeds here, of {paper.SEEDS}", *(ALGORITHMS[name].label for name in paper.COLUMNS), "Steps in the paper")
    rows = "".join(
        f"<tr><th scope='row'>{task}</th>{''.join(_cover(*counts) for counts in row.values())}"
        f"<td>{paper.steps(task):,}</td></tr>"
        for task, row in coverage(study).items()
    )
    kinds = list(dict.fromkeys(remark.kind for remark in found))
    lists = "".join(_kind(kind, [remark.text for remark in found if remark.kind == kind]) for kind in kinds)
    cover = _table("Which of the experiments in the paper are here", heads, rows, "cover")
    return f"<p>{escape(missing(study))}</p>{cover}{lists or '<p>There is nothing else to mind.</p>'}"


def pictures(found: Sequence[Picture]) -> str:
    if not found:
        return ""
    shown = "".join(
        f"<figure><figcaption>{TITLES[one.name]}</figcaption><div class='scroll'><img src='{one.source}' "
        f"alt='{TITLES[one.name]}'></div>"
        f"{as_html(one.table) if one.table else ''}</figure>"
        for one in found
    )
    title = "<h2 id='pictures-title'>Pictures</h2>"
    return f"<section id='pictures' aria-labelledby='pictures-title'>{title}{shown}</section>"


def _task_table(task: str, lines: Sequence[Line], index: Mapping[str, int]) -> str:
    heads = (
        "System", "Maximum", "Paper's maximum", "Rank: ours / paper's", "Final", "Area", "Champion, fresh episodes",
        f"IQM at {lines[0].robust_at:,} steps", "Seeds", "Steps",
    )  # fmt: skip
    sentences = list(dict.fromkeys(erratum.sentence for line in lines for erratum in line.errata))
    best = max(line.maximum.mean for line in lines)
    rows = "".join(_line(line, index[line.system], line.maximum.mean == best, sentences) for line in lines)
    notes = "".join(f"<li id='{_anchor(task, number)}'>{escape(text)}</li>" for number, text in enumerate(sentences, 1))
    known = any(line.paper for line in lines)
    first, last = min(line.ends[0] for line in lines), max(line.ends[1] for line in lines)
    mixed = f"Runs end between {first:,} and {last:,} steps: only the IQM compares them at the same step."
    late = [run for line in lines for run in line.left_out]
    without = f"<p class=note>In the IQM: {escape(words.left_out(task, lines[0].robust_at, late))}</p>" if late else ""
    return (
        f"<h3>{escape(task)}</h3>{_table(f'Returns on {task}', heads, rows, 'returns')}"
        f"{f'<p class=note>{mixed}</p>' if last > 1.2 * first else ''}{without}"
        f"{'' if known else f'<p class=note>{_APART}</p>'}"
        f"{f'<p class=note>On the values in the paper:</p><ol class=errata>{notes}</ol>' if notes else ''}"
    )


def _line(line: Line, system: int, best: bool, sentences: Sequence[str]) -> str:
    marks = "".join(
        f"<sup><a href='#{_anchor(line.task, number)}' aria-label='Note {number}'>{number}</a></sup>"
        for number in (sentences.index(erratum.sentence) + 1 for erratum in line.errata)
    )
    seeds = f"{line.seeds}<small>{line.unfinished} unfinished</small>" if line.unfinished else str(line.seeds)
    champion = _spread(line.champion)
    if line.champion and line.champions < line.seeds:
        champion += f"<small>{line.champions} of {line.seeds} seeds</small>"
    value, _, between = words.interval(line.robust).partition(" ")
    if 0 < line.robust_seeds < line.seeds:
        between += f" {line.robust_seeds} of {line.seeds} seeds"
    cells = (
        f"<td{' class=best' if best else ''}>{_spread(line.maximum)}</td>",
        f"<td class='paper'>{_spread(line.paper, marks)}</td>", f"<td>{words.ranks(line)}</td>",
        f"<td>{_spread(line.final)}</td>", f"<td>{_spread(line.area)}</td>", f"<td>{champion}</td>",
        f"<td>{value}{f'<small>{between}</small>' if between else ''}</td>",
        f"<td>{seeds}</td>", f"<td>{words.ends(line)}</td>",
    )  # fmt: skip
    return f"<tr><th scope='row'>{_named(line.system, system)}</th>{''.join(cells)}</tr>"


def _named(system: str, number: int) -> str:
    """Return an algorithm with its colour, and a variant's settings on a separate line."""
    name, _, settings = system.partition(", ")
    return f"{_key(number)}{escape(name)}{f'<small>{escape(settings)}</small>' if settings else ''}"


def _run(group: Group, record: Record, system: int, shared: set[tuple[str, str]]) -> str:
    other = {name: version for name, version in record.versions.items() if (name, version) not in shared}
    done = f"max='{max(record.planned, 1)}' value='{min(record.steps_done, record.planned)}'"
    cells = (
        f"<td class='name'>{escape(group.task)}</td>",
        f"<td class='name'>{_named(group.system, system)}</td>", f"<td>{record.seed}</td>",
        f"<td>{record.steps_done:,} of {record.planned:,}<small><progress {done} aria-label='Steps done'></progress>"
        "</small></td>",
        f"<td>{len(record.rows)}</td>", f"<td>{'-' if record.seconds is None else clock(record.seconds)}</td>",
        f"<td class='words'>{escape(settings_in_words(deviations(record))) or '-'}</td>",
        f"<td class='words'>{escape(settings_in_words(other)) or '-'}</td>",
    )  # fmt: skip
    return f"<tr><th scope='row'><code>{escape(record.name)}</code></th>{''.join(cells)}</tr>"


def _spread(value: Spread | paper.Value | None, marks: str = "") -> str:
    """Return the mean, and the deviation on a separate line because ten columns have to fit."""
    mean, _, std = words.spread(value).partition(" ± ")
    return f"{mean}{marks}<small>± {std}</small>" if std else f"{mean}{marks}"


def _cover(full: int, begun: int) -> str:
    """Return a cell with the seeds of an algorithm on a task, and how many have fewer steps than the paper's."""
    if not begun:
        return "<td class='none'>none</td>"
    if full == begun:
        return f"<td class='full'>{begun}</td>"
    return f"<td>{begun}<small>{begun - full} shorter</small></td>"


def _kind(kind: str, texts: Sequence[str]) -> str:
    """Return the remarks of one kind, folded if there are more than four."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    summary = f"<summary>{escape(kind[0].upper() + kind[1:])} ({len(texts)})</summary>"
    return f"<details{' open' if len(texts) <= 4 else ''}>{summary}<ul>{items}</ul></details>"


def _table(name: str, heads: Iterable[str], rows: str, kind: str) -> str:
    """Return a table that scrolls separately from the page where it is too wide or too long."""
    tops = "".join(f"<th scope='col'>{head}</th>" for head in heads)
    return (
        f"<div class='scroll {kind}' tabindex='0' role='region' aria-label='{escape(name)}'><table class='{kind}'>"
        f"<thead><tr>{tops}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _anchor(task: str, number: int) -> str:
    return f"note-{''.join(letter if letter.isalnum() else '-' for letter in task)}-{number}"


def _key(system: int) -> str:
    return f"<span class='key' style='--c:var(--s{system})' aria-hidden='true'></span>"


def _several(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
