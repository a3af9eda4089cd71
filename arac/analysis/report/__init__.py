"""The report on runs: one HTML page, figures and tables, from run folders alone."""

from collections.abc import Sequence
from pathlib import Path

from arac.analysis import figures, summary, tables
from arac.analysis.curves import curve
from arac.analysis.grouping import group
from arac.analysis.report import page, pictures
from arac.storage.run_records import collect
from arac.utils.paths import make_folder


def write(folders: Sequence[Path], out: Path) -> str:
    """Write a report on runs: index.html, the figures (PNG, PDF), table.csv and table.md.

    Args:
        folders: run folders, or folders that contain run folders at any depth.
        out: the folder to write to, created if it does not exist; files of these names in it are replaced.

    Returns:
        The table in Markdown.

    Raises:
        UserError: if there is no run to report on, or `out` cannot be created.
    """
    found = collect(folders)
    study = group(found.records)
    curves = {(one.task, one.variant): curve(one.measured) for one in study.groups if one.measured}
    lines = summary.lines(study)
    contents = page.Contents(study, found.broken, curves, lines, summary.comparisons(study), pictures.find(folders))
    make_folder(out)
    (out / "index.html").write_text(page.render(contents), encoding="utf-8")
    (out / "table.csv").write_text(tables.as_csv(lines), encoding="utf-8")
    markdown = tables.as_markdown(lines)
    (out / "table.md").write_text(markdown, encoding="utf-8")
    figures.draw(study, curves, out)
    return markdown
