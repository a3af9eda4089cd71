"""Checks of the paths that a user names for files, and folders for results."""

from pathlib import Path

from arac.errors import UserError


def check_place(path: Path) -> None:
    """Check that a path can be that of a new file.

    Raises:
        UserError: if it is a folder, or its folder does not exist.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file.")
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent}; create it first.")


def make_folder(parent: Path) -> None:
    """Create a folder for results; called before training, so that a failure does not come after hours of it.

    Raises:
        UserError: if it cannot be created.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot create {parent} ({error.strerror}); choose another folder.") from None
