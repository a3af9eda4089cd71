"""Checked values from files that may be damaged or made by somebody else."""

import json
import math
import os
import reprlib
from pathlib import Path
from typing import Any, TypeVar

from arac.utils.atomic_io import read_bounded

Count = TypeVar("Count", int, float)
_LIMIT = 2**28  # the largest file of rows, in bytes; a million evaluations need less
_LONGEST = 2**20  # the longest line, in bytes
_LARGEST = 1e100  # no return comes near it, and its square does not overflow


def lines(path: Path) -> list[str]:
    """Return the complete lines of a file."""
    written, _, _ = read_bounded(path, _LIMIT).decode(errors="replace").rpartition("\n")
    return written.split("\n") if written else []


def last_line(path: Path) -> bytes:
    """Return the last complete line of a file."""
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - _LONGEST, 0))
        return file.read().rpartition(b"\n")[0].rpartition(b"\n")[2]


def parsed(text: str | bytes) -> dict[str, Any]:
    """Return the table in a JSON text.

    Raises:
        ValueError: if the text is not JSON, or not a table.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    return named(value, "content")


def named(value: Any, name: str) -> dict[str, Any]:
    """Return a value if it is a table whose values, of any type, can be printed.

    Raises:
        ValueError: if it is not.
    """
    if not isinstance(value, dict):
        raise ValueError(f"its {name} is not a table")
    json.dumps(value, default=str)  # raises for integers of thousands of digits, which cannot be printed
    return value


def whole(value: Any) -> int:
    """Return a value if it is an integer of usable size.

    Raises:
        ValueError: if it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{reprlib.repr(value)} is not a whole number")
    return _usable(value)


def number(value: Any) -> float:
    """Return a value as a float if it is a number of usable size, an infinity or NaN.

    Infinities and NaN are allowed because the return of a diverged run is one.

    Raises:
        ValueError: if it is not.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{reprlib.repr(value)} is not a number")
    return value if isinstance(value, float) and math.isinf(value) else float(_usable(value))


def _usable(value: Count) -> Count:
    """Return a number, or raise a ValueError if its square would overflow: only a damaged file has such numbers."""
    if abs(value) > _LARGEST:
        raise ValueError(f"a number in it is beyond {_LARGEST:.0e} in size, which is not usable")
    return value


def numbers(value: Any) -> tuple[float, ...]:
    """Return the numbers of a list, each as `number` does.

    Raises:
        ValueError: if it is not a list of numbers.
    """
    if not isinstance(value, list):
        raise ValueError(f"{reprlib.repr(value)} is not a list of numbers")
    return tuple(map(number, value))
