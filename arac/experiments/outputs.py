"""The output files that experiments share: a table and its numbers."""

import json
from pathlib import Path
from typing import Any

from arac.utils.paths import make_folder


def write(out: Path, name: str, table: str, numbers: dict[str, Any]) -> None:
    """Write the table to NAME.md and the numbers to NAME.json in `out`.

    Raises:
        UserError: if the folder cannot be created.
    """
    make_folder(out)
    (out / f"{name}.md").write_text(table)
    (out / f"{name}.json").write_text(json.dumps(numbers, indent=1) + "\n")


def so_far(finished: int, planned: int) -> str:
    """Return a line on how many runs are finished, or an empty string if all are."""
    return "" if finished == planned else f"\n**Not complete: {finished} of {planned} runs are finished.**\n"
