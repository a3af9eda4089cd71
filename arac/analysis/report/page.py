"""The report as one self-contained HTML page. Its templates are beside this module, style and charts in arac/web."""

from dataclasses import dataclass
from functools import partial

from arac.analysis import figures, paper, tables
from arac.analysis.caveats import remarks
from arac.analysis.grouping import Study
from arac.analysis.report import data, views
from arac.analysis.report.pictures import Picture
from arac.analysis.summary import Comparison, Line
from arac.storage.run_records import Broken
from arac.training.display import clock
from arac.web import embedded, file


@dataclass(frozen=True)
class Contents:
    """The contents of the page."""

    study: Study
    broken: tuple[Broken, ...]
    curves: figures.Curves
    lines: list[Line]
    comparisons: list[Comparison]
    pictures: list[Picture]


def render(contents: Contents) -> str:
    """Return the whole page. Text from run folders is escaped."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # only a report needs it

    study = contents.study
    numbers = {variant: number for number, variant in enumerate(study.variants)}
    looks = figures.looks(study.variants)
    environment = Environment(
        loader=FunctionLoader(partial(file, __package__)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        {one.__name__: one for one in (tables.spread, tables.interval, tables.ranks, tables.ends, clock)}
    )
    return environment.get_template("index.html").render(
        lead=views.lead(study),
        caveat=paper.CAVEAT,
        seeds=paper.SEEDS,
        numbers=numbers,
        looks=list(looks.values()),
        returns=views.returns(study, contents.lines),
        pictures=contents.pictures,
        runs=views.runs(study),
        gaps=views.gaps(study, remarks(study, contents.broken)),
        data=embedded(data.collect(study, contents.curves, contents.comparisons, numbers, looks)),
        style=file("arac.web", "style.css"),
        script=file("arac.web", "chart.js") + file(__package__, "page.js"),
    )
