"""Policies written by users, and the checks that they must pass before training."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from arac.envs import EnvSpec
from arac.envs.making import name_of
from arac.errors import UserError
from arac.models.policies import Policy
from arac.models.shapes import Action, LogProb, Observation
from arac.models.stacked import to_numpy, vmap_init
from arac.utils.text import in_a_line

_METHODS = ("init", "act", "sample", "log_prob", "mode")
_BATCH = 64


class CustomPolicy(Policy, Protocol):
    """The interface of a user's policy: `Policy` and `init`, registered with JAX as a pytree of float32 arrays."""

    @staticmethod
    def init(key: jax.Array, observation_size: int, action_size: int) -> "CustomPolicy":
        """Return a new policy.

        Args:
            key: a JAX key, different for each member of a population.
            observation_size: length of an observation, after flattening.
            action_size: length of an action.
        """


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class CustomPolicyAdapter:
    """A user's policy, with its class as a part of the pytree's structure.

    To JAX, two registered dataclasses with the same fields have equal structures, whatever their classes: without the
    class, code compiled for one policy could be run for the other.
    """

    policy: CustomPolicy
    kind: type[CustomPolicy] = field(metadata={"static": True})

    @staticmethod
    def init(kind: type[CustomPolicy], key: jax.Array, env: EnvSpec) -> "CustomPolicyAdapter":
        """Return a new policy of the class `kind`, for the sizes of an environment."""
        return CustomPolicyAdapter(kind.init(key, env.observation_size, env.action_size), kind)

    def act(self, observation: Observation, noise: Action) -> Action:
        return self.policy.act(observation, noise)

    def sample(self, observation: Observation, noise: Action) -> tuple[Action, LogProb]:
        return self.policy.sample(observation, noise)

    def log_prob(self, observation: Observation, action: Action) -> LogProb:
        return self.policy.log_prob(observation, action)

    def mode(self, observation: Observation) -> Action:
        return self.policy.mode(observation)


class _Answers(NamedTuple):
    act: Any
    mode: Any
    sample: Any
    sampled_log_prob: Any
    log_prob: Any


def check(kind: Any, env: EnvSpec) -> None:
    """Check a user's policy class: make a policy, and call its methods as training and workers will.

    Raises:
        UserError: if `kind` is not a policy class, or a method gives a wrong result.
    """
    policy = _made(kind, env)
    name, rng = name_of(kind), np.random.default_rng(0)
    observation, noise = (
        rng.standard_normal((_BATCH, size), np.float32) for size in (env.observation_size, env.action_size)
    )
    asked = jax.jit(partial(_asked, name))(policy, observation, noise)
    traced = _checked(name, asked, observation, noise)
    acting = to_numpy(policy)  # with NumPy leaves, as workers use it
    _checked(name, _asked(name, acting, observation[0], noise[0]), observation[0], noise[0])
    plain = _checked(name, _asked(name, acting, observation, noise), observation, noise)
    elsewhere = "does not give the same action for arrays of JAX and of NumPy"
    for one, other, what in (
        (traced.act, traced.sample, "act and sample do not give the same action for the same noise"),
        (traced.act, plain.act, f"act {elsewhere}"),
        (traced.mode, plain.mode, f"mode {elsewhere}"),
    ):
        if abs(one - other).max() > 0.01:
            raise UserError(f"{name}: {what}.")
    if np.median(abs(traced.log_prob - traced.sampled_log_prob)) > 0.01:  # close to the border, a few may differ
        raise UserError(f"{name}: log_prob and sample do not give the same log-probability.")
    _check_gradient(name, policy, observation, noise)


def _made(kind: Any, env: EnvSpec) -> Any:
    if not isinstance(kind, type):
        raise UserError(f"policy must be a class, got {kind!r}.")
    name, made = name_of(kind), []
    if missing := [method for method in _METHODS if not callable(getattr(kind, method, None))]:
        raise UserError(f"{name} has no {missing[0]}; a policy has {', '.join(_METHODS)}.")

    def init(key: jax.Array) -> Any:
        return kind.init(key, env.observation_size, env.action_size)  # type: ignore[attr-defined]

    with _explained(name, "init"):
        jax.eval_shape(lambda key: made.append(init(key)), jax.random.key(0))
    leaves = jax.tree.leaves(made[0])
    if not isinstance(made[0], kind) or any(leaf is made[0] for leaf in leaves):
        raise UserError(f"{name}.init must give a pytree: put @jax.tree_util.register_dataclass above its @dataclass.")
    for leaf in leaves:
        if not isinstance(leaf, jax.Array) or leaf.dtype != np.float32:
            raise UserError(
                f"{name} must hold float32 arrays of JAX, and something in it is {leaf!r:.60}; "
                'mark what is not learned with dataclasses.field(metadata={"static": True}).'
            )
    with _explained(name, "init"):
        population = jax.jit(partial(vmap_init, init, size=1))(jax.random.key(0))
    return jax.tree.map(lambda leaf: leaf[0], population)


def _asked(name: str, policy: Any, observation: Any, noise: Any) -> _Answers:
    def ask(method: str, *given: Any) -> Any:
        with _explained(name, method):
            return getattr(policy, method)(*given)

    sampled = ask("sample", observation, noise)
    if not isinstance(sampled, tuple) or len(sampled) != 2:
        raise UserError(f"{name}.sample must give a pair of an action and its log-probability, got {sampled!r:.60}.")
    act, mode = ask("act", observation, noise), ask("mode", observation)
    return _Answers(act, mode, *sampled, ask("log_prob", observation, sampled[0]))


def _checked(name: str, answers: _Answers, observation: np.ndarray, noise: np.ndarray) -> _Answers:
    """Return the results as NumPy arrays; raise UserError if a shape or a value is wrong."""
    numbers = observation.shape[:-1]
    methods, shapes = ("act", "mode", "sample", "sample", "log_prob"), [noise.shape] * 3 + [numbers] * 2
    found = _Answers(*(_of_shape(name, *of_one) for of_one in zip(methods, answers, shapes, strict=True)))
    for method, action in zip(methods[:3], found[:3], strict=True):
        farthest = abs(action).max()
        if farthest > 1 + 1e-6:
            raise UserError(f"{name}.{method} must give actions in [-1, 1], and one of them is {farthest:g} in size.")
    return found


def _of_shape(name: str, method: str, answer: Any, shape: tuple[int, ...]) -> np.ndarray:
    if np.shape(answer) != shape:
        raise UserError(f"{name}.{method} must give an array of shape {shape} here, got {np.shape(answer)}.")
    array = np.asarray(answer, np.float64)
    if not np.isfinite(array).all():
        raise UserError(f"{name}.{method} gives numbers that are not finite.")
    return array


def _check_gradient(name: str, policy: Any, observation: np.ndarray, noise: np.ndarray) -> None:
    """Check that sampled actions are a differentiable function of the parameters, as training needs."""

    def total(policy: Any, weight: Any, observation: Any, noise: Any) -> Any:
        action, log_prob = policy.sample(observation, noise)
        again = policy.log_prob(observation, action)
        return action.sum() + weight * (log_prob + again).sum()

    with _explained(name, "sample"):
        gradient = jax.vmap(jax.grad(total), (None, 0, None, None))
        both = jax.jit(gradient)(policy, np.array([0.0, 1.0], np.float32), observation, noise)
    of_action, of_all = ([np.asarray(leaf)[number] for leaf in jax.tree.leaves(both)] for number in range(2))
    if not any(leaf.any() for leaf in of_action):
        raise UserError(f"{name}.sample must give actions that can be differentiated: made of noise, without a draw.")
    if not all(np.isfinite(leaf).all() for leaf in of_all):
        raise UserError(f"{name} has a gradient that is not finite, in sample or log_prob.")


@contextmanager
def _explained(name: str, method: str) -> Iterator[None]:
    """Turn any exception of a user's method into a UserError of one sentence."""
    try:
        yield
    except Exception as error:
        raise UserError(f"{name}.{method} fails: {textwrap.shorten(in_a_line(error), 300)}") from None
