"""Pictures of arac's other experiments in the given folders, with the tables beside them."""

import base64
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeAlias

from arac.storage.run_records import walk
from arac.utils.atomic_io import read_bounded

# The title of each picture.
TITLES = {
    "didactic": "Policy shapes under repulsion",
    "repulsion": "Actions of the agents, with and without attraction and repulsion",
    "deceptive": "A task with a trap: where the agents go",
}
_LIMIT = 2**24
Pieces: TypeAlias = Sequence[str]  # plain text and emphasised text in turn


class Block(NamedTuple):
    """A paragraph of text; or a table, whose first row is its head."""

    text: Pieces = ()
    rows: Sequence[Sequence[Pieces]] = ()


class Picture(NamedTuple):
    name: str
    source: str  # a data URI
    blocks: Sequence[Block]  # the text below it

    @property
    def title(self) -> str:
        return TITLES[self.name]


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
        text = read_bounded(beside, 2**18).decode(errors="replace") if beside.is_file() else ""
    except (OSError, ValueError):
        return None
    if not data.startswith(b"\x89PNG"):
        return None
    return Picture(path.stem, f"data:image/png;base64,{base64.b64encode(data).decode()}", _blocks(text))


def _blocks(markdown: str) -> list[Block]:
    """Return the tables and paragraphs of Markdown, which are all that arac's experiments write."""
    blocks = []
    for kind, lines in groupby(markdown.splitlines(), lambda line: "|" if line.startswith("|") else bool(line.strip())):
        if kind == "|":
            blocks.append(Block(rows=_rows(lines)))
        elif kind:
            blocks.append(Block(text=_pieces(" ".join(lines))))
    return blocks


def _rows(lines: Iterable[str]) -> list[list[Pieces]]:
    cells = [line.strip().strip("|").split("|") for line in lines]
    return [[_pieces(cell) for cell in row] for row in cells if not all(set(one.strip()) <= set("-:") for one in row)]


def _pieces(text: str) -> Pieces:
    """Split a text at *emphasis*; a single star, or one with space on its inner side, stays a star."""
    return re.split(r"\*(?=\S)([^*]+)(?<=\S)\*", text.strip())
