"""Environments: found, checked once before anything is trained, and made the same everywhere."""

import difflib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from gymnasium.spaces import Box

from arac.errors import UserError


@dataclass(frozen=True, eq=False)
class EnvSpec:
    """An environment that passed the checks: enough to make it in any process, registered there or not."""

    id: str
    registered: RegisteredEnv  # Gymnasium's own description, with the entry point
    max_episode_steps: int
    observation_size: int
    action_size: int
    low: np.ndarray
    high: np.ndarray
    kwargs: dict[str, Any] = field(default_factory=dict)


def check(env_id: str, *, max_episode_steps: int | None = None, kwargs: dict[str, Any] | None = None) -> EnvSpec:
    """Makes the environment once and reads its spaces.

    Raises:
        UserError: if there is no such environment, or its spaces or time limit are not what ARAC needs.
    """
    if max_episode_steps is not None and max_episode_steps < 1:
        raise UserError(f"max_episode_steps must be at least 1 for {env_id}, got {max_episode_steps}.")
    env = _make(env_id, max_episode_steps, kwargs or {})
    try:
        limit = env.spec.max_episode_steps if env.spec else None
        if limit is None:
            raise UserError(f"{env_id} has no time limit; give one with max_episode_steps (--max-episode-steps).")
        actions = env.action_space
        if not isinstance(actions, Box) or not np.issubdtype(actions.dtype, np.floating):
            raise UserError(f"{env_id} has {type(actions).__name__} actions; ARAC needs a continuous Box of floats.")
        if len(actions.shape) != 1 or actions.shape[0] == 0:
            raise UserError(f"{env_id} has actions of shape {actions.shape}; ARAC needs a vector of at least one.")
        if not (np.isfinite(actions.low).all() and np.isfinite(actions.high).all()):
            raise UserError(f"{env_id} has actions without bounds; wrap it in gymnasium's RescaleAction or clip them.")
        observations = env.observation_space
        if not isinstance(observations, Box) or len(observations.shape) != 1 or observations.shape[0] == 0:
            raise UserError(f"{env_id} has observations {observations}; ARAC needs numbers.")
        if (shape := np.shape(_first_observation(env, env_id))) != observations.shape:
            raise UserError(f"{env_id} gives observations of shape {shape}, but its space says {observations.shape}.")
        return EnvSpec(
            id=env_id,
            registered=gymnasium.spec(env_id.rsplit(":", maxsplit=1)[-1]),
            max_episode_steps=limit,
            observation_size=observations.shape[0],
            action_size=actions.shape[0],
            low=actions.low.astype(np.float64),
            high=actions.high.astype(np.float64),
            kwargs=dict(kwargs or {}),
        )
    finally:
        env.close()


def _first_observation(env: gymnasium.Env, env_id: str) -> Any:
    try:
        return env.reset(seed=0)[0]
    except Exception as error:  # whatever somebody else's environment raises
        raise UserError(f"The environment {env_id!r} cannot be reset: {_in_a_line(error)}") from None


def make(spec: EnvSpec) -> gymnasium.Env:
    return _make(spec.registered, spec.max_episode_steps, spec.kwargs)


def _make(env_id: str | RegisteredEnv, max_episode_steps: int | None, kwargs: dict[str, Any]) -> gymnasium.Env:
    try:
        with _without_warnings():
            env = gymnasium.make(env_id, max_episode_steps=max_episode_steps, disable_env_checker=True, **kwargs)
    except gymnasium.error.UnregisteredEnv:
        raise UserError(f"There is no environment {env_id!r}.{suggestion(str(env_id), gymnasium.registry)}") from None
    except Exception as error:  # whatever somebody else's constructor raises
        raise UserError(f"The environment {env_id!r} cannot be made: {_in_a_line(error)}") from None
    flat_box = isinstance(env.observation_space, Box) and len(env.observation_space.shape) == 1
    if flat_box or isinstance(env.observation_space, gymnasium.spaces.Discrete):
        return env
    return gymnasium.wrappers.FlattenObservation(env)


def _in_a_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hushes Gymnasium's notes on newer versions, and MuJoCo's on its own models, which it also writes to a file."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        mujoco.set_mju_user_warning(before)


def suggestion(name: str, known: Any) -> str:
    """` Did you mean …?` for a name that is close to a known one, else nothing."""
    folded = {str(candidate).lower(): str(candidate) for candidate in known}
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(folded[match] for match in close)}?" if close else ""
