"""Where a file that the user names may go."""

from pathlib import Path

from arac.errors import UserError


def check_place(path: Path) -> None:
    """Whether a file can be written there.

    Raises:
        UserError: if not.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file.")
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent}; make it first.")
