"""Access to the videos in a run's folder `videos`, and only to those."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

TYPES = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # opening a pipe would wait for its other end


def latest(folder: Path) -> dict[str, str] | None:
    """Return the newest video's name, type and address, which changes with the file; None if there is no video."""
    newest = max(_found(folder), key=lambda found: (found[1], found[0]), default=None)
    if newest is None:
        return None
    name, time = newest
    return {"name": name, "address": f"videos/{quote(name)}?{time}", "type": TYPES[Path(name).suffix.lower()]}


def open_video(folder: Path, name: str) -> BinaryIO:
    """Open a video by its bare name.

    Raises:
        FileNotFoundError: if there is no ordinary file of that name; links are not followed.
    """
    if not _is_video(name) or Path(name).name != name:
        raise FileNotFoundError(name)
    try:
        with _opened(folder) as inside:
            file = os.fdopen(os.open(name, _FILE, dir_fd=inside), "rb")
    except (OSError, ValueError):  # ValueError: a name with a zero byte
        raise FileNotFoundError(name) from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileNotFoundError(name)
    return file


def _found(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield names and modification times; unfinished videos are left out, as their names begin with a dot."""
    with contextlib.suppress(OSError), _opened(folder) as inside, os.scandir(inside) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if _is_video(entry.name) and stat.S_ISREG(status.st_mode) and status.st_size:
                yield entry.name, status.st_mtime_ns


def _is_video(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in TYPES and name.isprintable()


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    inside = os.open(folder / "videos", _FOLDER)
    try:
        yield inside
    finally:
        os.close(inside)
