"""What every experiment leaves: a table, its numbers and a picture."""

import json
from pathlib import Path
from typing import Any

from arac.errors import UserError


def prepare(out: Path) -> None:
    """Makes the folder that results go to: better before hours of training than after.

    Raises:
        UserError: if it cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out} cannot be made ({error.strerror}); choose another --out.") from None


def write(out: Path, name: str, table: str, numbers: dict[str, Any]) -> None:
    """NAME.md and NAME.json."""
    prepare(out)
    (out / f"{name}.md").write_text(table)
    (out / f"{name}.json").write_text(json.dumps(numbers, indent=1) + "\n")
