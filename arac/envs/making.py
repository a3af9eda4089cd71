"""Making environments: by name, from a specification, or with a user's function."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import gymnasium
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit

from arac.envs import tasks
from arac.errors import UserError
from arac.utils.text import in_a_line, suggestion

Maker: TypeAlias = Callable[..., gymnasium.Env]
FromUser: TypeAlias = Maker | gymnasium.Env  # a maker or an object, which has to be given again where a run is resumed


def name_of(maker: Callable[..., Any]) -> str:
    """Return the module and name of a function or class, for messages and for comparison.

    A `functools.partial` has the name of its function, another callable object that of its class.

    Raises:
        UserError: if it cannot be called.
    """
    if not callable(maker):
        raise UserError(f"env must be a name, a function or a class, got {maker!r}.", fields=("env",))
    while isinstance(maker, partial):
        maker = maker.func
    named = maker if hasattr(maker, "__qualname__") else type(maker)
    return f"{named.__module__}.{named.__qualname__}"


def is_found(maker: Callable[..., Any]) -> bool:
    """Return whether the module of a function or class has it under its name, so that another process can import it."""
    found: Any = None if maker.__module__ == "__main__" else sys.modules.get(maker.__module__)
    for part in getattr(maker, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is maker


def time_limit(env: gymnasium.Env) -> int | None:
    """Return the largest number of steps of an episode; None if the environment has no limit."""
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return env.spec.max_episode_steps
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return env._max_episode_steps
        env = env.env
    return None


def make_from(
    source: str | RegisteredEnv | Maker, max_episode_steps: int | None, kwargs: dict[str, Any]
) -> gymnasium.Env:
    """Return the environment that an id, a spec of Gymnasium or a function makes, with flat observations.

    Raises:
        UserError: if there is no such environment, or it cannot be made.
    """
    env_id = source if isinstance(source, str) else source.id if isinstance(source, RegisteredEnv) else name_of(source)
    try:
        with without_warnings():
            if isinstance(source, str | RegisteredEnv):
                env = gymnasium.make(source, max_episode_steps=max_episode_steps, disable_env_checker=True, **kwargs)
            else:
                env = source(**kwargs)
                if max_episode_steps not in (None, time_limit(env)):
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
def without_warnings() -> Iterator[None]:
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
