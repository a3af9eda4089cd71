"""The report as one self-contained HTML page. Its parts are beside this module, style and charts in arac/web."""

from dataclasses import dataclass
from html import escape
from string import Template

from arac.algorithms.registry import Look
from arac.analysis import figures, paper
from arac.analysis.caveats import remarks
from arac.analysis.grouping import Study
from arac.analysis.report import data, parts
from arac.analysis.report.pictures import Picture
from arac.analysis.run_records import Broken
from arac.analysis.summary import Comparison, Line
from arac.web import embedded, file

TITLE = "Attraction-Repulsion Actor-Critic: what the runs show"
_SECTIONS = {
    "curves": "Learning curves", "returns": "Returns", "robust": "Systems against each other",
    "population": "Population", "pictures": "Pictures", "run-list": "What was run", "gaps": "What was not",
}  # fmt: skip


@dataclass(frozen=True)
class Contents:
    """The contents of the page."""

    study: Study
    broken: tuple[Broken, ...]
    curves: figures.Curves  # by task and system
    lines: list[Line]
    comparisons: list[Comparison]
    pictures: list[Picture]


def render(contents: Contents) -> str:
    """Return the whole page. Text from run folders is escaped."""
    study = contents.study
    index = {system: place for place, system in enumerate(study.systems)}
    looks = figures.looks(study.systems)
    sections = {key: name for key, name in _SECTIONS.items() if key != "pictures" or contents.pictures}
    return Template(file(__package__, "index.html")).substitute(
        title=TITLE,
        style=file("arac.web", "style.css"),
        colours=_colours(list(looks.values())),
        lead=parts.lead(study),
        nav=" ".join(f'<a href="#{key}">{name}</a>' for key, name in sections.items()),
        caveat=escape(paper.CAVEAT),
        tables=parts.tables(study, contents.lines, index),
        definitions=file(__package__, "definitions.html"),
        pictures=parts.pictures(contents.pictures),
        runs=parts.runs(study, index),
        gaps=parts.gaps(study, remarks(study, contents.broken)),
        footer=parts.FOOTER,
        data=embedded(data.collect(study, contents.curves, contents.comparisons, index, looks)),
        script=file("arac.web", "chart.js") + file(__package__, "page.js"),
    )


def _colours(looks: list[Look]) -> str:
    light = "".join(f"--s{place}:{look.light};" for place, look in enumerate(looks))
    dark = "".join(f"--s{place}:{look.dark};" for place, look in enumerate(looks))
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
