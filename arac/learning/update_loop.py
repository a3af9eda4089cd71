"""Actors and critics with their optimisers, and a loop of updates in one jitted call.

The loop draws its random numbers ahead, and compiles once for any length.

Episode lengths change every generation, so the number of updates is a traced number.
Update i draws its mini-batch and noise from (key, i) alone: dividing updates among several calls changes no result.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from arac.models.critics import fuse_twin_q, split_twin_q
from arac.replay import buffer
from arac.replay.buffer import Batch, ReplayView

Carry = TypeVar("Carry")
Drawn = TypeVar("Drawn")
Learner = TypeVar("Learner")
Parameters = TypeVar("Parameters")
PolicyT = TypeVar("PolicyT")
CriticT = TypeVar("CriticT")
_AHEAD = 32  # updates whose random numbers are drawn at once


class ActorLearner(NamedTuple, Generic[PolicyT]):
    """An actor and its optimiser state, or several actors with a leading axis."""

    policy: PolicyT
    optimiser: optax.OptState


class CriticLearner(NamedTuple, Generic[CriticT]):
    """A critic and its optimiser state."""

    critic: CriticT
    optimiser: optax.OptState


def gradient_step(
    rule: optax.GradientTransformation, parameters: Parameters, gradient: Parameters, optimiser: optax.OptState
) -> tuple[Parameters, optax.OptState]:
    """Take one step of an optimiser; return the new parameters and the new optimiser state."""
    change, optimiser = rule.update(gradient, optimiser)
    return optax.apply_updates(parameters, change), optimiser


class BatchSample(NamedTuple):
    """The random numbers of an update."""

    positions: Int[Array, " batch"]  # positions of the mini-batch's transitions in replay
    noise: Float[Array, "batch action"]  # standard normal, for the actions of a policy on it


def sample_batch(batch_size: int, view: ReplayView, key: jax.Array) -> BatchSample:
    """Draw the random numbers of an update."""
    batch_key, noise_key = jax.random.split(key)
    noise = jax.random.normal(noise_key, (batch_size, view.action_size))
    return BatchSample(buffer.positions(view, batch_key, batch_size), noise)


def repeat(
    start: int,
    stop: int,
    draw: Callable[[Int[Array, ""]], Drawn],
    update: Callable[[Drawn, Carry], Carry],
    carry: Carry,
) -> Carry:
    """Repeat `carry = update(draw(i), carry)` for i from `start` to `stop - 1`; return the last carry.

    `draw(i)` depends on i alone, so it is computed for many updates at once: the random numbers of one update
    are too few to keep the machine busy.
    """

    def some(block: Int[Array, ""], carry: Carry) -> Carry:
        first = start + block * _AHEAD
        drawn = jax.vmap(draw)(first + jnp.arange(_AHEAD))

        def one(number: Int[Array, ""], carry: Carry) -> Carry:
            return update(jax.tree.map(lambda leaf: leaf[number], drawn), carry)

        return jax.lax.fori_loop(0, jnp.minimum(_AHEAD, stop - first), one, carry)

    return jax.lax.fori_loop(0, -((start - stop) // _AHEAD), some, carry)


def train_on_batches(
    step: Callable[[Learner, Batch, Float[Array, "batch action"]], tuple[Learner, Float[Array, ""]]],
    learner: Learner,
    view: ReplayView,
    batch_size: int,
    key: jax.Array,
    start: int,
    stop: int,
) -> tuple[Learner, Float[Array, ""]]:
    """Repeat `learner, loss = step(learner, batch, noise)` for updates `start` to `stop - 1`.

    Args:
        step: one update, on a mini-batch and standard normal noise for actions on it.
        learner: parameters and optimiser state; a twin critic in it has its fused form in `step`.
        view: the transitions to draw from.
        batch_size: transitions per mini-batch.
        key: all random numbers of update i come from (key, i).
        start: number of the first update.
        stop: number of the update after the last one.

    Returns:
        The learner, and the sum of the losses.
    """

    def draw(i: Int[Array, ""]) -> BatchSample:
        return sample_batch(batch_size, view, jax.random.fold_in(key, i))

    def update(drawn: BatchSample, carry: tuple[Learner, Float[Array, ""]]) -> tuple[Learner, Float[Array, ""]]:
        learner, total = carry
        learner, loss = step(learner, buffer.gather(view, drawn.positions), drawn.noise)
        return learner, total + loss

    learner, total = repeat(start, stop, draw, update, (fuse_twin_q(learner, view.action_size), jnp.zeros(())))
    return split_twin_q(learner), total
