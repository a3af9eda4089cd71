"""Environments: checked once before training, and made in the same way in every process."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit

from arac.envs import tasks
from arac.errors import UserError
from arac.utils.text import in_a_line, suggestion

tasks.register()

Maker: TypeAlias = Callable[..., gymnasium.Env]


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


def check(env: str | Maker, *, max_episode_steps: int | None = None, kwargs: dict[str, Any] | None = None) -> EnvSpec:
    """Make the environment once, check its spaces and time limit, and return its specification.

    Args:
        env: a Gymnasium id, one of our short names, or a function or class that makes an environment.
        max_episode_steps: a time limit, needed if the environment has none.
        kwargs: keyword arguments for its constructor, or for that function.

    Raises:
        UserError: if there is no such environment, or its spaces or time limit are not what ARAC needs.
    """
    wanted = tasks.full_name(env) if isinstance(env, str) else env
    env_id = wanted if isinstance(wanted, str) else name_of(wanted)
    if max_episode_steps is not None and max_episode_steps < 1:
        told = f"max_episode_steps must be at least 1 for {env_id}, got {max_episode_steps}."
        raise UserError(told, fields=("max_episode_steps",))
    made = _make(wanted, max_episode_steps, kwargs or {})
    try:
        limit = _time_limit(made)
        if limit is None:
            raise UserError(f"{env_id} has no time limit; set max_episode_steps.", fields=("max_episode_steps",))
        actions = made.action_space
        if not isinstance(actions, Box) or not np.issubdtype(actions.dtype, np.floating):
            raise UserError(f"{env_id} has {type(actions).__name__} actions; ARAC needs a continuous Box of floats.")
        if len(actions.shape) != 1 or actions.shape[0] == 0:
            raise UserError(f"{env_id} has actions of shape {actions.shape}; ARAC needs a vector of at least one.")
        if not (np.isfinite(actions.low).all() and np.isfinite(actions.high).all()):
            raise UserError(f"{env_id} has actions without bounds; declare finite ones in its action_space.")
        observations = made.observation_space
        if not isinstance(observations, Box) or len(observations.shape) != 1 or observations.shape[0] == 0:
            raise UserError(f"{env_id} has observations {observations}; ARAC needs numbers.")
        if (shape := np.shape(_first_observation(made, env_id))) != observations.shape:
            raise UserError(f"{env_id} gives observations of shape {shape}, but its space says {observations.shape}.")
        unflattened = made.env if isinstance(made, gymnasium.wrappers.FlattenObservation) else made
        return EnvSpec(
            id=env_id,
            source=_source(env_id) if isinstance(wanted, str) else wanted,
            max_episode_steps=limit,
            observation_size=observations.shape[0],
            action_size=actions.shape[0],
            low=actions.low.astype(np.float64),
            high=actions.high.astype(np.float64),
            action_dtype=actions.dtype,
            observation_space=unflattened.observation_space,
            kwargs=dict(kwargs or {}),
        )
    finally:
        made.close()


def _source(env_id: str) -> str | RegisteredEnv:
    """Return Gymnasium's spec of an environment, or its id if other processes cannot import the spec's entry point.

    Some packages register such functions; an id `module:name` names the module that registers them.
    """
    module, _, name = env_id.rpartition(":")
    described = gymnasium.spec(name)
    return env_id if module and callable(described.entry_point) and not is_found(described.entry_point) else described


def _first_observation(env: gymnasium.Env, env_id: str) -> Any:
    try:
        return env.reset(seed=0)[0]
    except Exception as error:  # an environment may raise anything
        raise UserError(f"Cannot reset the environment {env_id!r}: {in_a_line(error)}") from None


def make(spec: EnvSpec) -> gymnasium.Env:
    """Make the environment of a specification."""
    return _make(spec.source, spec.max_episode_steps, spec.kwargs)


def name_of(maker: Callable[..., Any]) -> str:
    """Return the module and name of a function or class, for messages and for comparison.

    Raises:
        UserError: if it is another callable, which has no name.
    """
    if not hasattr(maker, "__qualname__"):
        raise UserError(
            f"env must be a name, a function or a class, got {maker!r}; arguments for it go into env_kwargs."
        )
    return f"{maker.__module__}.{maker.__qualname__}"


def can_be_imported(spec: EnvSpec) -> bool:
    """Return whether another process can import the function or class that makes the environment."""
    if isinstance(spec.source, str):
        return True
    maker = spec.source if callable(spec.source) else spec.source.entry_point
    return not callable(maker) or is_found(maker)


def not_importable(name: str) -> UserError:
    """Return the error for an object that worker processes would have to import and cannot."""
    return UserError(
        f"{name} cannot be imported by worker processes: use workers=0, or define it at the top level of a module."
    )


def is_found(maker: Callable[..., Any]) -> bool:
    """Return whether the module of a function or class has it under its name, so that another process can import it."""
    found: Any = None if maker.__module__ == "__main__" else sys.modules.get(maker.__module__)
    for part in getattr(maker, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is maker


def _time_limit(env: gymnasium.Env) -> int | None:
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return env.spec.max_episode_steps
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return env._max_episode_steps
        env = env.env
    return None


def _make(source: str | RegisteredEnv | Maker, max_episode_steps: int | None, kwargs: dict[str, Any]) -> gymnasium.Env:
    env_id = source if isinstance(source, str) else source.id if isinstance(source, RegisteredEnv) else name_of(source)
    try:
        with _without_warnings():
            if isinstance(source, str | RegisteredEnv):
                env = gymnasium.make(source, max_episode_steps=max_episode_steps, disable_env_checker=True, **kwargs)
            else:
                env = source(**kwargs)
                if max_episode_steps not in (None, _time_limit(env)):
                    env = TimeLimit(env, max_episode_steps)
    except gymnasium.error.UnregisteredEnv:
        known = [*gymnasium.registry, *tasks.TASKS]
        raise UserError(f"There is no environment {env_id!r}.{suggestion(env_id, known)}", fields=("env",)) from None
    except Exception as error:  # a constructor may raise anything
        # The command does not import modules of the current folder, so that somebody else's run folder cannot name one.
        hint = " Set PYTHONPATH=. to import modules from the current folder." if isinstance(error, ImportError) else ""
        raise UserError(f"Cannot create the environment {env_id!r}: {in_a_line(error)}{hint}") from None
    flat_box = isinstance(env.observation_space, Box) and len(env.observation_space.shape) == 1
    if flat_box or isinstance(env.observation_space, gymnasium.spaces.Discrete):
        return env
    return gymnasium.wrappers.FlattenObservation(env)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence Gymnasium's notes on newer versions, and MuJoCo's on its own models, which it also writes to a file."""
    import mujoco  # a slow import, which reading about a run or an algorithm does without

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        mujoco.set_mju_user_warning(before)
