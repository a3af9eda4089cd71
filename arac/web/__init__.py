"""What our pages share, the report's and that of `arac watch`: charts, style, and JSON for their scripts."""

import json
import math
from importlib import resources
from typing import Any


def file(package: str, name: str) -> str:
    """A file that lies in one of our packages."""
    return resources.files(package).joinpath(name).read_text("utf-8")


def embedded(value: Any) -> str:
    """JSON that can stand inside a script element: no tag can end it, and what is not finite is null."""
    return json.dumps(_finite(value), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    """The same with numbers of eight digits."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    return value
