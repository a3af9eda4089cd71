"""Pictures of arac's other experiments in the given folders, with the tables beside them."""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from arac.analysis.run_records import walk
from arac.utils.atomic_io import read_bounded

# The title of each picture.
TITLES = {
    "didactic": "Policy shapes under repulsion",
    "repulsion": "Actions of the agents, with and without attraction and repulsion",
    "deceptive": "A task with a trap: where the agents go",
}
_LIMIT = 2**24


@dataclass(frozen=True)
class Picture:
    name: str
    source: str  # a data URI
    table: str | None  # Markdown


def find(folders: Sequence[Path]) -> list[Picture]:
    """Return each picture once, in the order of TITLES; skip files that are no PNG or too large for a page."""
    found: dict[str, Picture] = {}
    for root in folders:
        for folder, files in walk(root):
            for name in (name for name in TITLES if f"{name}.png" in files and name not in found):
                picture = _read(folder / f"{name}.png")
                found |= {name: picture} if picture else {}
    return [found[name] for name in TITLES if name in found]


def _read(path: Path) -> Picture | None:
    try:
        data = read_bounded(path, _LIMIT)
        beside = path.with_suffix(".md")
        table = read_bounded(beside, 2**18).decode(errors="replace") if beside.is_file() else None
    except (OSError, ValueError):
        return None
    if not data.startswith(b"\x89PNG"):
        return None
    return Picture(path.stem, f"data:image/png;base64,{base64.b64encode(data).decode()}", table)


def as_html(markdown: str) -> str:
    """Convert Markdown to HTML: tables and paragraphs, which is all that arac's experiments write."""
    parts = []
    for kind, lines in groupby(
        markdown.splitlines(), lambda line: "|" if line.startswith("|") else line.strip() and "p"
    ):
        if kind == "|":
            parts.append(_table([line.strip().strip("|").split("|") for line in lines]))
        elif kind == "p":
            parts.append(f"<p>{_words(' '.join(lines))}</p>")
    return "".join(parts)


def _words(text: str) -> str:
    """Escape a text and convert *emphasis*; a single star, or one with space on its inner side, stays a star."""
    return re.sub(r"\*(?=\S)([^*]+)(?<=\S)\*", r"<em>\1</em>", escape(text.strip()))


def _table(rows: list[list[str]]) -> str:
    head, *body = [row for row in rows if not all(set(cell.strip()) <= set("-:") for cell in row)] or [[]]
    tops = "".join(f'<th scope="col">{_words(cell)}</th>' for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{_words(cell)}</td>" for cell in row) + "</tr>" for row in body)
    return f'<div class="scroll"><table><thead><tr>{tops}</tr></thead><tbody>{lines}</tbody></table></div>'
