"""What every experiment leaves: a table, its numbers and a picture."""

import json
from pathlib import Path
from typing import Any

from arac.utils.paths import make_folder


def write(out: Path, name: str, table: str, numbers: dict[str, Any]) -> None:
    """NAME.md and NAME.json."""
    make_folder(out)
    (out / f"{name}.md").write_text(table)
    (out / f"{name}.json").write_text(json.dumps(numbers, indent=1) + "\n")


def so_far(finished: int, planned: int) -> str:
    """Return a line that says that runs are missing; nothing if none are."""
    return "" if finished == planned else f"\n**Not complete: {finished} of {planned} runs are finished.**\n"
