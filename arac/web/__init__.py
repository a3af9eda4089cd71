"""Shared parts of the pages of `arac report` and `arac watch`: charts, style, and JSON for their scripts."""

import json
import math
from importlib import resources
from typing import Any


def file(package: str, name: str) -> str:
    """Return the text of a file in one of arac's packages."""
    return resources.files(package).joinpath(name).read_text("utf-8")


def embedded(value: Any) -> str:
    """Return JSON that is safe inside a script element: it contains no `<`, and a number that is not finite is null."""
    return json.dumps(_finite(value), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    """Return the value with floats rounded to eight digits, and None for those that are not finite."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    return value
