"""A report on runs: one HTML page, figures and tables, from run folders alone."""

from collections.abc import Sequence
from pathlib import Path

from arac.analysis import figures, summary, tables
from arac.analysis.curves import curve
from arac.analysis.grouping import group
from arac.analysis.report import page, pictures
from arac.analysis.run_records import collect
from arac.utils.paths import make_folder


def write(folders: Sequence[Path], out: Path) -> str:
    """Writes index.html, the figures (PNG, PDF), table.csv and table.md into `out`; the table in Markdown.

    Args:
        folders: run folders, or folders that hold some at any depth.
        out: a folder, made if it is not there; files of these names in it are replaced.

    Raises:
        UserError: if there is no run to report on, or `out` cannot be made.
    """
    found = collect(folders)
    study = group(found.records)
    curves = {(one.task, one.system): curve(one.measured) for one in study.groups if one.measured}
    lines = summary.lines(study)
    contents = page.Contents(study, found.broken, curves, lines, summary.comparisons(study), pictures.find(folders))
    make_folder(out)
    (out / "index.html").write_text(page.render(contents), encoding="utf-8")
    (out / "table.csv").write_text(tables.as_csv(lines), encoding="utf-8")
    markdown = tables.as_markdown(lines)
    (out / "table.md").write_text(markdown, encoding="utf-8")
    figures.draw(study, curves, out)
    return markdown
