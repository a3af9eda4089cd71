"""Settings: the values that they may have, and steps that a user names."""

import math
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args, get_origin

import numpy as np

from arac.errors import UserError


class Bounds(NamedTuple):
    """The smallest and the largest value of a number: `field: Annotated[int, Bounds(1, 100)] = 10`."""

    low: float
    high: float = math.inf


Count: TypeAlias = Annotated[int, Bounds(1)]
Natural: TypeAlias = Annotated[int, Bounds(0)]
NonNegative: TypeAlias = Annotated[float, Bounds(0)]
Share: TypeAlias = Annotated[float, Bounds(0, 1)]


def check_value(name: str, value: Any, hint: Any) -> None:
    """Check a setting against the type of its field, with its bounds.

    Raises:
        UserError: if it has another type, or lies beyond the bounds.
    """
    kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    _check_type(name, value, kind)
    for bounds in marks:
        if isinstance(bounds, Bounds) and not isinstance(value, str | bool):
            _check_bounds(name, value, bounds)


def as_whole(value: Any) -> Any:
    """Return 1e4 as 10000, and everything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_steps(name: str, value: Any) -> int:
    """Return a number of steps as a whole number.

    Raises:
        UserError: if it is none, or below 1.
    """
    steps = as_whole(value)
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise UserError(f"{name} must be a whole number of at least 1, got {value!r}.", fields=(name,))
    return int(steps)


def _check_type(name: str, value: Any, hint: Any) -> None:
    if get_origin(hint) is tuple:
        if not isinstance(value, tuple) or any(
            isinstance(one, bool) or not isinstance(one, int | float) for one in value
        ):
            raise UserError(f"{name} must be a list of numbers, got {value!r}.", fields=(name,))
        return
    allowed = get_args(hint) or (hint,)
    kinds = tuple(kind for kind in allowed if isinstance(kind, type))
    words = [word for kind in allowed if not isinstance(kind, type) for word in (get_args(kind) or (kind,))]
    if value in words and isinstance(value, str):
        return
    if isinstance(value, bool) == (bool in kinds) and isinstance(value, kinds + ((int,) if float in kinds else ())):
        return
    described = [{int: "a whole number", float: "a number", bool: "true or false"}[kind] for kind in kinds]
    told = " or ".join([*described, *map(repr, words)])
    raise UserError(f"{name} must be {told}, got {value!r}.", fields=(name,))


def _check_bounds(name: str, value: Any, bounds: Bounds) -> None:
    low, high = bounds
    if not low <= value <= high or math.isinf(value):
        told = f"at least {low}" if math.isinf(high) else f"from {low} to {high}"
        raise UserError(f"{name} must be {told}, got {value}.", fields=(name,))
