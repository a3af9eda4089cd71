"""Values from files that may be damaged, or made by somebody else."""

import json
import math
import os
import reprlib
from pathlib import Path
from typing import Any, TypeVar

from arac.utils.atomic_io import read_bounded

Count = TypeVar("Count", int, float)
_LIMIT = 2**28  # bytes of a file of rows; a million evaluations have fewer
_LONGEST = 2**20  # bytes of a line of rows
_LARGEST = 1e100  # no return comes near it, and its square is still a number


def lines(path: Path) -> list[str]:
    """All whole ones of a file."""
    written, _, _ = read_bounded(path, _LIMIT).decode(errors="replace").rpartition("\n")
    return written.split("\n") if written else []


def last_line(path: Path) -> bytes:
    """The last whole one of a file."""
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - _LONGEST, 0))
        return file.read().rpartition(b"\n")[0].rpartition(b"\n")[2]


def parsed(text: str | bytes) -> dict[str, Any]:
    """A table, from JSON."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    return named(value, "content")


def named(value: Any, name: str) -> dict[str, Any]:
    """A table; its values are whatever they are, as long as they can be shown."""
    if not isinstance(value, dict):
        raise ValueError(f"its {name} is not a table")
    json.dumps(value, default=str)  # a whole number of thousands of digits has no words
    return value


def whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{reprlib.repr(value)} is not a whole number")
    return _usable(value)


def number(value: Any) -> float:
    """A number as files have it; it may be infinite or none at all, as a return is that went wrong."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{reprlib.repr(value)} is not a number")
    return value if isinstance(value, float) and math.isinf(value) else float(_usable(value))


def _usable(value: Count) -> Count:
    """Refuses what would overflow as soon as it is squared: no run has such numbers, only a damaged file."""
    if abs(value) > _LARGEST:
        raise ValueError(f"a number in it is beyond {_LARGEST:.0e} in size, which is not usable")
    return value


def numbers(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{reprlib.repr(value)} is not a list of numbers")
    return tuple(map(number, value))
