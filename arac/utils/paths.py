"""Check and make the places that a user names for files."""

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


def make_folder(parent: Path) -> None:
    """Make a folder for results: better before hours of training than after.

    Raises:
        UserError: if it cannot be made.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{parent} cannot be made ({error.strerror}); choose another folder for results.") from None
