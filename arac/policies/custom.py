"""Policies that a user brings: looked over before anything is trained with them."""

import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from arac.envs import EnvSpec, in_a_line, name_of
from arac.errors import UserError
from arac.policies import Policy
from arac.population import over_members, to_numpy

_METHODS = ("init", "act", "sample", "log_prob", "mode")
_BATCH = 64


class CustomPolicy(Policy, Protocol):
    """A class to train with: `Policy` and how it begins, registered with JAX as a pytree of float arrays."""

    @staticmethod
    def init(key: jax.Array, observation_size: int, action_size: int) -> "CustomPolicy":
        """A first policy; the members of a population are made with a key each."""


class _Answers(NamedTuple):
    act: np.ndarray
    mode: np.ndarray
    sample: np.ndarray
    sampled_log_prob: np.ndarray
    log_prob: np.ndarray


def check(kind: Any, env: EnvSpec) -> None:
    """Makes a policy and asks it everything that training and acting will ask.

    Raises:
        UserError: if it is no policy, or its answers cannot be right.
    """
    policy = _made(kind, env)
    name, rng = name_of(kind), np.random.default_rng(0)
    observation, noise = (
        rng.standard_normal((_BATCH, size), np.float32) for size in (env.observation_size, env.action_size)
    )
    traced = _asked(name, policy, observation, noise, jax.jit)
    acting = _asked(name, to_numpy(policy), observation, noise)
    _asked(name, to_numpy(policy), observation[0], noise[0])
    for one, other, what in (
        (traced.act, traced.sample, "act and sample do not give the same action for the same noise"),
        (traced.mode, acting.mode, "mode does not give the same action for JAX's arrays and NumPy's"),
        (traced.log_prob, traced.sampled_log_prob, "log_prob and sample do not give the same log-probability"),
    ):
        if np.median(abs(one - other)) > 0.01:
            raise UserError(f"{name}: {what}.")
    _check_gradient(name, policy, observation, noise)


def _made(kind: Any, env: EnvSpec) -> Any:
    if not isinstance(kind, type):
        raise UserError(f"policy must be a class, got {kind!r}.")
    name = name_of(kind)
    if missing := [method for method in _METHODS if not callable(getattr(kind, method, None))]:
        raise UserError(f"{name} has no {missing[0]}; a policy has {', '.join(_METHODS)}.")
    key, sizes = jax.random.key(0), (env.observation_size, env.action_size)
    with _explained(name, "init"):
        policy: Any = kind.init(key, *sizes)  # type: ignore[attr-defined]
    leaves = jax.tree.leaves(policy)
    if not isinstance(policy, kind) or any(leaf is policy for leaf in leaves):
        raise UserError(f"{name}.init must give a pytree: put @jax.tree_util.register_dataclass above its @dataclass.")
    for leaf in leaves:
        if not isinstance(leaf, jax.Array) or leaf.dtype != np.float32:
            raise UserError(f"{name} must hold float32 arrays of JAX and nothing else, got {leaf!r:.60}; "
                            'dataclasses.field(metadata={"static": True}) marks what is not learned.')  # fmt: skip
    with _explained(name, "init"):
        over_members(lambda key: kind.init(key, *sizes), key, 2)  # type: ignore[attr-defined]
    return policy


def _asked(
    name: str, policy: Any, observation: np.ndarray, noise: np.ndarray, run: Callable[..., Any] = lambda call: call
) -> _Answers:
    """What the methods answer, if it has the right shapes and values."""

    def ask(method: str, *given: Any) -> Any:
        with _explained(name, method):
            return run(lambda policy, *given: getattr(policy, method)(*given))(policy, *given)

    def actions(method: str, answer: Any) -> np.ndarray:
        array = _of_shape(name, method, answer, noise.shape)
        if abs(array).max() > 1 + 1e-6:
            raise UserError(
                f"{name}.{method} gives actions outside [-1, 1], such as {array.flat[abs(array).argmax()]:g}."
            )
        return array

    act, mode = (actions("act", ask("act", observation, noise)), actions("mode", ask("mode", observation)))
    sampled = ask("sample", observation, noise)
    if not isinstance(sampled, tuple) or len(sampled) != 2:
        raise UserError(f"{name}.sample must give a pair of an action and its log-probability, got {sampled!r:.60}.")
    numbers = observation.shape[:-1]
    return _Answers(
        act=act,
        mode=mode,
        sample=actions("sample", sampled[0]),
        sampled_log_prob=_of_shape(name, "sample", sampled[1], numbers),
        log_prob=_of_shape(name, "log_prob", ask("log_prob", observation, sampled[0]), numbers),
    )


def _of_shape(name: str, method: str, answer: Any, shape: tuple[int, ...]) -> np.ndarray:
    if np.shape(answer) != shape:
        raise UserError(f"{name}.{method} must give an array of shape {shape} here, got {np.shape(answer)}.")
    array = np.asarray(answer, np.float64)
    if not np.isfinite(array).all():
        raise UserError(f"{name}.{method} gives numbers that are not finite.")
    return array


def _check_gradient(name: str, policy: Any, observation: np.ndarray, noise: np.ndarray) -> None:
    """Learning goes through sampled actions: they must be a differentiable function of the parameters."""

    def total(policy: Any, weight: float) -> Any:
        action, log_prob = policy.sample(observation, noise)
        again = policy.log_prob(observation, action)
        return action.sum() + weight * (log_prob + again).sum()

    with _explained(name, "sample"):
        gradients = [jax.tree.leaves(jax.jit(jax.grad(total))(policy, weight)) for weight in (0.0, 1.0)]
    if not any(np.any(leaf) for leaf in gradients[0]):
        raise UserError(f"{name}.sample must give actions that can be differentiated: made of noise, without a draw.")
    if not all(np.isfinite(leaf).all() for leaf in gradients[1]):
        raise UserError(f"{name} has a gradient that is not finite, in sample or log_prob.")


@contextmanager
def _explained(name: str, method: str) -> Iterator[None]:
    """Whatever somebody else's method raises becomes one sentence."""
    try:
        yield
    except Exception as error:
        raise UserError(f"{name}.{method} fails: {textwrap.shorten(in_a_line(error), 300)}") from None
