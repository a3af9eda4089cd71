"""The output files that experiments share: a table and its numbers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arac.utils.paths import make_folder


class Table(NamedTuple):
    """A table, whose first row is its head, and the paragraphs below it."""

    rows: Sequence[Sequence[str]]
    notes: Sequence[str]

    def __str__(self) -> str:
        """Return the table as Markdown."""
        head, *body = ("| " + " | ".join(row) + " |" for row in self.rows)
        rule = "| " + " | ".join(["---"] * len(self.rows[0])) + " |"
        return "\n".join([head, rule, *body, *(f"\n{note}" for note in self.notes)]) + "\n"


def write(out: Path, name: str, table: Table, numbers: dict[str, Any]) -> str:
    """Write the table to NAME.md, and table and numbers to NAME.json in `out`; return the table as Markdown.

    Raises:
        UserError: if the folder cannot be created.
    """
    make_folder(out)
    (out / f"{name}.md").write_text(str(table))
    (out / f"{name}.json").write_text(json.dumps({**numbers, "table": table._asdict()}, indent=1) + "\n")
    return str(table)


def so_far(finished: int, planned: int) -> list[str]:
    """Return a note on the number of finished runs, unless all are."""
    return [] if finished == planned else [f"Not complete: {finished} of {planned} runs are finished."]
