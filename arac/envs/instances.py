"""The ways to make an environment: by its id, with a user's function, or like a user's environment object.

An object is made again in any process where Gymnasium can do so from its spec, else it is used in this process.
"""

from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec as RegisteredEnv

from arac.envs import tasks
from arac.envs.making import Maker, name_of, without_warnings
from arac.errors import UserError


class Source(NamedTuple):
    """A way to make an environment."""

    id: str
    source: str | RegisteredEnv | Maker
    kwargs: dict[str, Any]
    max_episode_steps: int | None = None
    wrappers: tuple[str, ...] = ()  # of an object, in the order in which they are applied, beside Gymnasium's defaults


def source_of(env: str | Maker | gymnasium.Env, kwargs: dict[str, Any]) -> Source:
    """Return the way to make an environment.

    Raises:
        UserError: if `env` is a vector environment or cannot be called, or an object comes with `kwargs`.
    """
    if isinstance(env, str):
        name = tasks.full_name(env)
        return Source(name, name, kwargs)
    if not isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        return Source(name_of(env), env, kwargs)
    if kwargs:
        told = "env_kwargs has no effect on an environment object: give these arguments to the object itself."
        raise UserError(told, fields=("env_kwargs",))
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise UserError(
            "A vector environment plays several episodes at once: pass one environment, its id or a function that "
            "makes it; workers sets the number of processes.",
            fields=("env",),
        )
    return _source_of_object(env)


def _source_of_object(env: gymnasium.Env) -> Source:
    with without_warnings():  # Gymnasium warns of wrappers that it cannot make again
        spec = env.spec
    if spec is None:
        return Source(name_of(type(env.unwrapped)), Held(env), {}, None, _wrappers(env))
    kwargs = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    wrappers = tuple(wrapper.name for wrapper in spec.additional_wrappers)
    if not wrappers:
        return Source(spec.id, spec.id, kwargs, spec.max_episode_steps)
    try:
        with without_warnings():
            gymnasium.make(spec, disable_env_checker=True).close()
    except Exception:  # a wrapper that Gymnasium cannot make again
        return Source(spec.id, Held(env), kwargs, spec.max_episode_steps, wrappers)
    return Source(spec.id, spec, {}, spec.max_episode_steps, wrappers)


def _wrappers(env: gymnasium.Env) -> tuple[str, ...]:
    names = []
    while isinstance(env, gymnasium.Wrapper):
        names.append(type(env).__name__)
        env = env.env
    return tuple(reversed(names))


class Held:
    """A maker that returns a user's environment object, which only this process has."""

    def __init__(self, env: gymnasium.Env) -> None:
        self._env = env

    def __call__(self, **_: Any) -> gymnasium.Env:
        return _LeftOpen(self._env)

    def __reduce__(self) -> Any:
        raise TypeError("it is an object that Gymnasium cannot make again from its spec")


class _LeftOpen(gymnasium.Wrapper):
    """A user's environment, which stays open: it is the user's to close."""

    def close(self) -> None:
        pass
