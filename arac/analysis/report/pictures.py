"""Pictures of arac's other experiments in the given folders, with the tables beside them."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from arac.storage.run_records import walk
from arac.utils.atomic_io import read_bounded
from arac.utils.safe_json import parsed

# The title of each picture.
TITLES = {
    "didactic": "Policy shapes under repulsion",
    "repulsion": "Actions of the members, with and without attraction and repulsion",
    "deceptive": "A task with a trap: the paths of the members",
}
_LIMIT = 2**24


class Picture(NamedTuple):
    name: str
    source: str  # a data URI
    rows: Sequence[Sequence[str]]  # of the table below it, the head first; empty without one
    notes: Sequence[str]  # paragraphs below the table

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
        rows, notes = _table(path.with_suffix(".json"))
    except (OSError, ValueError):
        return None
    if not data.startswith(b"\x89PNG"):
        return None
    return Picture(path.stem, f"data:image/png;base64,{base64.b64encode(data).decode()}", rows, notes)


def _table(path: Path) -> tuple[list[list[str]], list[str]]:
    """Return the rows and notes that an experiment wrote; none without such a file, or in one of an earlier version.

    Raises:
        OSError, ValueError: if the file cannot be read, or is not what an experiment writes.
    """
    if not path.is_file():
        return [], []
    table = parsed(read_bounded(path, _LIMIT)).get("table", {"rows": [], "notes": []})
    match table:
        case {"rows": [*rows], "notes": [*notes]} if all(isinstance(row, list) for row in rows):
            return [[str(cell) for cell in row] for row in rows], [str(note) for note in notes]
    raise ValueError(f"{path} has no table of an experiment")
