"""Observations as policies take them: flat, a single one or a batch."""

from typing import Any

import numpy as np
from gymnasium import Space, spaces

from arac.envs import EnvSpec
from arac.errors import UserError


def flattened(spec: EnvSpec, observation: Any) -> np.ndarray:
    """Return an observation, or a batch along leading axes, as flat vectors along the last axis.

    Args:
        spec: the environment.
        observation: an observation of the environment or of a vector of such environments, flat or not.

    Raises:
        UserError: if it is something else.
    """
    space, size = spec.observation_space, spec.observation_size
    try:
        if isinstance(observation, dict | tuple):
            count = _count(space, observation)
            if count is None:
                return np.asarray(spaces.flatten(space, observation), np.float32)
            each = [spaces.flatten(space, _nth(space, observation, n)) for n in range(count)]
            return np.array(each, np.float32).reshape(count, size)
        array = np.asarray(observation, np.float32)
        leading = array.shape[: array.ndim - len(space.shape or ())]
        if isinstance(space, spaces.Box) and array.shape == (*leading, *space.shape):
            return array.reshape(*leading, size)
        if array.shape[-1:] == (size,):
            return array
        given = str(array.shape)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        given = f"something else ({error!r})"
    raise UserError(f"{spec.id} has observations of {size} numbers; predict got {given}.")


def _count(space: Space, observation: Any) -> int | None:
    """Return the number of observations in a batch, or None for a single one, without a leading axis."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        counts = {_count(part, observation[name]) for name, part in _parts(space)}
        if len(counts) != 1:
            raise ValueError("its parts do not have the shapes of the environment's")
        return counts.pop()
    shape = np.shape(observation)
    if shape == space.shape:
        return None
    if shape[1:] != space.shape:
        raise ValueError(f"a part of it has the shape {shape}, not {space.shape}")
    return shape[0]


def _nth(space: Space, observation: Any, n: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _nth(part, observation[name], n) for name, part in _parts(space)}
    if isinstance(space, spaces.Tuple):
        return tuple(_nth(part, observation[name], n) for name, part in _parts(space))
    return observation[n]


def _parts(space: spaces.Dict | spaces.Tuple) -> list[tuple[Any, Space]]:
    return list(space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces))
