"""Environments: checked once before training, and made in the same way in every process."""

import inspect
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from gymnasium.spaces import Box

from arac.envs import tasks
from arac.envs.instances import source_of
from arac.envs.making import Maker, is_found, make_from, time_limit
from arac.errors import UserError
from arac.utils.text import in_a_line

tasks.register()

# Steps after which episodes end in an environment that has no time limit.
LONGEST_EPISODE = 10_000


@dataclass(frozen=True, eq=False)
class EnvSpec:
    """The specification of an environment that passed `check`, sufficient to make it in any process."""

    id: str
    source: str | RegisteredEnv | Maker  # Gymnasium's spec, with the entry point; an id; or a function or class
    max_episode_steps: int
    observation_size: int
    action_size: int
    low: np.ndarray
    high: np.ndarray
    action_dtype: np.dtype
    observation_space: gymnasium.Space  # before it is flattened
    kwargs: dict[str, Any] = field(default_factory=dict)
    wrappers: tuple[str, ...] = ()  # of a user's environment object
    unlimited: bool = False  # it has no time limit itself

    @property
    def from_user(self) -> bool:
        """True if a function or an object of the user makes it, which a run folder cannot name."""
        return callable(self.source) or bool(self.wrappers)


def check(
    env: str | Maker | gymnasium.Env, *, max_episode_steps: int | None = None, kwargs: dict[str, Any] | None = None
) -> EnvSpec:
    """Make the environment once, check that it can be trained on, and return its specification.

    Args:
        env: a Gymnasium id, one of our short names, a function or class that makes an environment, or an environment.
        max_episode_steps: a time limit; without one, an environment that has none gets `LONGEST_EPISODE`.
        kwargs: keyword arguments for its constructor, or for that function.

    Raises:
        UserError: if there is no such environment, or its spaces or methods are not what the algorithms need.
    """
    env_id, source, kwargs, limit, wrappers = source_of(env, kwargs or {})
    if max_episode_steps is not None and max_episode_steps < 1:
        told = f"max_episode_steps must be at least 1 for {env_id}, got {max_episode_steps}."
        raise UserError(told, fields=("max_episode_steps",))
    made = make_from(source, max_episode_steps or limit, kwargs)
    try:
        unflattened = made.env if isinstance(made, gymnasium.wrappers.FlattenObservation) else made
        observations = _check_observations(env_id, unflattened.observation_space, made.observation_space)
        actions = _check_actions(env_id, made)
        _check_methods(env_id, made, actions.low)
        limit = time_limit(made)
        return EnvSpec(
            id=env_id,
            source=_source(source) if isinstance(source, str) else source,
            max_episode_steps=limit or LONGEST_EPISODE,
            observation_size=observations.shape[0],
            action_size=actions.shape[0],
            low=actions.low.astype(np.float64),
            high=actions.high.astype(np.float64),
            action_dtype=actions.dtype,
            observation_space=unflattened.observation_space,
            kwargs=dict(kwargs),
            wrappers=wrappers,
            unlimited=limit is None,
        )
    finally:
        made.close()


def _check_observations(env_id: str, space: gymnasium.Space, flat: gymnasium.Space) -> Box:
    if isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) > 1:
        shape = " x ".join(map(str, space.shape))
        raise UserError(f"{env_id} has images of {shape} bytes as observations, and no policy here reads images.")
    if not isinstance(flat, Box) or len(flat.shape) != 1 or flat.shape[0] == 0:
        raise UserError(f"{env_id} has {space} as observations; the algorithms need a Box, or a Dict or Tuple of them.")
    return flat


def _check_actions(env_id: str, env: gymnasium.Env) -> Box:
    actions = env.action_space
    if not isinstance(actions, Box):
        hint = ""
        if "continuous" in inspect.signature(type(env.unwrapped).__init__).parameters:
            hint = "; use env_kwargs={'continuous': True}"
        raise UserError(f"{env_id} has {type(actions).__name__} actions; the algorithms need a continuous Box{hint}.")
    if not np.issubdtype(actions.dtype, np.floating):
        raise UserError(f"{env_id} has actions of whole numbers ({actions.dtype}); declare a Box with dtype float32.")
    if len(actions.shape) != 1 or actions.shape[0] == 0:
        raise UserError(f"{env_id} has actions of shape {actions.shape}; the algorithms need a vector of at least one.")
    if not (np.isfinite(actions.low).all() and np.isfinite(actions.high).all()):
        raise UserError(f"{env_id} has actions without bounds; declare finite ones in its action_space.")
    return actions


def _check_methods(env_id: str, env: gymnasium.Env, action: np.ndarray) -> None:
    """Check that `reset` and `step` return what Gymnasium's interface says."""
    older = "older interfaces need a wrapper, such as shimmy's GymV21Compatibility"
    try:
        answer = env.reset(seed=0)
    except Exception as error:  # an environment may raise anything
        raise UserError(f"Cannot reset the environment {env_id!r}: {in_a_line(error)}") from None
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise UserError(f"{env_id}: reset must return (observation, info), as in Gymnasium; {older}.")
    if (shape := np.shape(answer[0])) != env.observation_space.shape:
        told = f"{env_id} gives observations of shape {shape}, but its space says {env.observation_space.shape}."
        raise UserError(told)
    try:
        values = len(env.step(action))
    except ValueError as error:
        if "values to unpack" not in str(error):
            return  # explained when the episode is played
        values = 0
    except Exception:  # explained when the episode is played, with its traceback
        return
    if values != 5:
        names = "(observation, reward, terminated, truncated, info)"
        raise UserError(f"{env_id}: step must return five values, {names}, as in Gymnasium; {older}.")


def _source(env_id: str) -> str | RegisteredEnv:
    """Return Gymnasium's spec of an environment, or its id if other processes cannot import the spec's entry point.

    Some packages register such functions; an id `module:name` names the module that registers them.
    """
    module, _, name = env_id.rpartition(":")
    described = gymnasium.spec(name)
    return env_id if module and callable(described.entry_point) and not is_found(described.entry_point) else described


def make(spec: EnvSpec) -> gymnasium.Env:
    """Make the environment of a specification."""
    return make_from(spec.source, spec.max_episode_steps, spec.kwargs)
