"""The update loops: many mini-batches in one jitted call, at the machine's matrix-multiply rate.

Episode lengths change every generation, so the number of updates is a traced number and each loop compiles once.
Update i draws its mini-batch and noise from (key, i) alone: how a count is cut into calls changes nothing.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from arac.learning.jit import compiled
from arac.learning.losses import (
    Base,
    Divergence,
    Divergences,
    TargetPolicies,
    actor_loss,
    attraction_repulsion_loss,
    critic_loss,
)
from arac.models.critics import Critic, fuse_twin_q, split_twin_q
from arac.models.policies import Policy
from arac.models.stacked import take
from arac.replay import buffer
from arac.replay.buffer import Batch, ReplayView

OptimiserState: TypeAlias = Any
Carry = TypeVar("Carry")
Drawn = TypeVar("Drawn")
_AHEAD = 32  # updates whose random numbers are drawn at once
# Policies are compared on one state in four of a mini-batch: other policies cost a forward pass each.
STATES_PER_COMPARED = 4
# Of lambda, where it is adapted: the largest change of its logarithm per update, and the range of the logarithm.
COEFFICIENT_STEP = 0.01
LOG_COEFFICIENT_RANGE = (math.log(1e-3), math.log(1e5))


class UpdateConfig(NamedTuple):
    """The numbers that a compiled loop is made for."""

    discount: float
    tau: float
    learning_rate: float
    batch_size: int
    ar_divergence: Divergence = "bounded"
    ar_base: Base = "own"
    kl_clip: float | None = None
    ar_target: float | None = None  # divergence that lambda is adapted to, in nats; None leaves lambda as it is


class CriticLearner(NamedTuple):
    critic: Critic
    optimiser: OptimiserState


class ActorLearner(NamedTuple):
    """One actor, or a population of them with a leading axis."""

    policy: Policy
    optimiser: OptimiserState


def adam(update_config: UpdateConfig) -> optax.GradientTransformation:
    return optax.adam(update_config.learning_rate)


@partial(jax.jit, static_argnums=0)
def fresh_optimiser(update_config: UpdateConfig, parameters: Any) -> OptimiserState:
    """Return Adam's state before the first step."""
    return adam(update_config).init(parameters)


def gradient_step(
    update_config: UpdateConfig, parameters: Any, gradient: Any, optimiser: OptimiserState
) -> tuple[Any, Any]:
    """One step of Adam: the new parameters and the new optimiser state."""
    change, optimiser = adam(update_config).update(gradient, optimiser)
    return optax.apply_updates(parameters, change), optimiser


def critic_step(
    update_config: UpdateConfig,
    learner: CriticLearner,
    policy: Policy,
    temperature: Float[Array, ""],
    batch: Batch,
    noise: Float[Array, "batch action"],
) -> tuple[CriticLearner, Float[Array, ""]]:
    """One mini-batch for the critic, and its loss."""
    critic = learner.critic
    loss, gradient = jax.value_and_grad(critic_loss)(
        critic.online, critic, policy, temperature, batch, noise, update_config.discount
    )
    online, optimiser = gradient_step(update_config, critic.online, gradient, learner.optimiser)
    return CriticLearner(critic.with_soft_target(online, update_config.tau), optimiser), loss


def actor_step(
    update_config: UpdateConfig,
    learner: ActorLearner,
    critic: Critic,
    temperature: Float[Array, ""],
    observation: Float[Array, "batch obs"],
    noise: Float[Array, "batch action"],
) -> tuple[ActorLearner, "ActorMetrics"]:
    """Take one step of Eq. 2 for one actor."""
    gradient, metrics = actor_gradient(learner.policy, critic, temperature, observation, noise)
    return ActorLearner(*gradient_step(update_config, learner.policy, gradient, learner.optimiser)), metrics


def actor_gradient(
    policy: Policy,
    critic: Critic,
    temperature: Float[Array, ""],
    observation: Float[Array, "batch obs"],
    noise: Float[Array, "batch action"],
) -> tuple[Policy, "ActorMetrics"]:
    """Return the gradient of Eq. 2."""

    def loss(policy: Policy) -> tuple[Float[Array, ""], ActorMetrics]:
        total, log_prob = actor_loss(policy, critic.q, temperature, observation, noise)
        return total, ActorMetrics(total, log_prob)

    return jax.grad(loss, has_aux=True)(policy)


def force_gradient(
    update_config: UpdateConfig,
    policy: Policy,
    felt: TargetPolicies,
    coefficient: Float[Array, ""],
    observation: Float[Array, "batch obs"],
    noise: Float[Array, "batch action"],
) -> tuple[Policy, Divergences]:
    """Return the gradient of lambda times Eq. 1, and the distances."""

    def loss(policy: Policy) -> tuple[Float[Array, ""], Divergences]:
        value, divergences = attraction_repulsion_loss(
            policy,
            felt,
            observation,
            noise,
            divergence=update_config.ar_divergence,
            base=update_config.ar_base,
            kl_clip=update_config.kl_clip,
        )
        return coefficient * value, divergences

    return jax.grad(loss, has_aux=True)(policy)


class ActorMetrics(NamedTuple):
    """Means over a mini-batch, or their sums over updates."""

    loss: Float[Array, "*member"]
    log_prob: Float[Array, "*member"]


class Forces(NamedTuple):
    """What attracts and repels the members of a population during a generation."""

    log_coefficient: Float[Array, " member"]  # log lambda
    repelled: Int[Array, " repelled"]  # the members that other members repel; possibly none
    elites: Int[Array, " elite"]  # the members that feel archived policies
    archived: TargetPolicies | None  # for each elite; None while there are none, or they are not felt


class ForceMetrics(NamedTuple):
    """Sums over updates."""

    living: Divergences  # (repelled, 1): from another member
    archived: Divergences | None  # (elite, n)


def population_step(
    update_config: UpdateConfig,
    learners: ActorLearner,
    critic: Critic,
    temperature: Float[Array, ""],
    forces: Forces | None,
    partners: Int[Array, " member"],
    observation: Float[Array, "member batch obs"],
    noise: Float[Array, "member batch action"],
) -> tuple[ActorLearner, Forces | None, tuple[ActorMetrics, ForceMetrics | None]]:
    """Take one step for every member: Eq. 2, and Eq. 5 where there are forces.

    Args:
        rules: the divergence and what feels it, among others.
        learners: the population, stacked.
        critic: shared by all.
        temperature: weight of the entropy.
        forces: None for a population without attraction and repulsion.
        partners: for each member, another one, which repels it if it is among `forces.repelled`.
        observation: a mini-batch for each member; its first quarter serves to compare policies.
        noise: standard normal numbers for the actions on it.
    """
    policies = learners.policy
    gradient, metrics = jax.vmap(partial(actor_gradient, critic=critic, temperature=temperature))(
        policies, observation=observation, noise=noise
    )
    force_metrics = None
    if forces is not None:
        gradient, force_metrics = with_forces(update_config, gradient, policies, forces, partners, observation, noise)
        forces = forces._replace(log_coefficient=adapted(update_config, forces, force_metrics))
    learners = ActorLearner(*jax.vmap(partial(gradient_step, update_config))(policies, gradient, learners.optimiser))
    return learners, forces, (metrics, force_metrics)


def with_forces(
    update_config: UpdateConfig,
    gradient: Policy,
    policies: Policy,
    forces: Forces,
    partners: Int[Array, " member"],
    observation: Float[Array, "member batch obs"],
    noise: Float[Array, "member batch action"],
) -> tuple[Policy, ForceMetrics]:
    """Add attraction and repulsion to the gradients of a population, and return how far it is from what it feels."""
    compared = max(observation.shape[1] // STATES_PER_COMPARED, 1)
    observation, noise = observation[:, :compared], noise[:, :compared]
    coefficient = jnp.exp(forces.log_coefficient)

    def add(gradient: Policy, members: Int[Array, " some"], felt: TargetPolicies) -> tuple[Policy, Divergences]:
        force, divergences = jax.vmap(partial(force_gradient, update_config))(
            take(policies, members), felt, coefficient[members], observation[members], noise[members]
        )
        return jax.tree.map(lambda all_, some: all_.at[members].add(some), gradient, force), divergences

    repelled, living, archived = forces.repelled, no_divergences(len(forces.repelled), 1), None
    if len(repelled):
        others = jax.tree.map(lambda leaf: leaf[partners[repelled]][:, None], policies)
        gradient, living = add(gradient, repelled, TargetPolicies(others, jnp.ones((len(repelled), 1))))
    if forces.archived is not None:
        gradient, archived = add(gradient, forces.elites, forces.archived)
    return gradient, ForceMetrics(living, archived)


def adapted(update_config: UpdateConfig, forces: Forces, measured: ForceMetrics) -> Float[Array, " member"]:
    """Return log lambda of each member, raised where it is nearer to others than the target and lowered beyond.

    The step depends on the ratio of divergence and target and is bounded, because divergences have heavy tails. A
    member that no other repels keeps its lambda; where members repel nobody, elites follow archived policies.
    """
    before = forces.log_coefficient
    if update_config.ar_target is None:
        return before

    def after(log_coefficient: Any, kl: Any) -> Any:
        step = COEFFICIENT_STEP * jnp.clip(1 - kl / update_config.ar_target, -1.0, 1.0)
        return jnp.clip(log_coefficient + step, *LOG_COEFFICIENT_RANGE)

    if len(forces.repelled):
        return before.at[forces.repelled].set(after(before[forces.repelled], measured.living.kl[:, 0]))
    if forces.archived is None or measured.archived is None:
        return before
    repelled = forces.archived.weights > 0
    nothing = ~repelled.any(1)
    mean = (measured.archived.kl * repelled).sum(1) / jnp.maximum(repelled.sum(1), 1)
    elites = forces.elites
    return before.at[elites].set(jnp.where(nothing, before[elites], after(before[elites], mean)))


@partial(compiled, static="update_config")
def critic_updates(
    update_config: UpdateConfig,
    learner: CriticLearner,
    policy: Policy,
    temperature: float,
    view: ReplayView,
    key: jax.Array,
    start: int,
    stop: int,
) -> tuple[CriticLearner, Float[Array, ""]]:
    """Updates `start` to `stop - 1` of the critic with one policy, and the sum of their losses."""

    def update(
        drawn: BatchSample, carry: tuple[CriticLearner, Float[Array, ""]]
    ) -> tuple[CriticLearner, Float[Array, ""]]:
        learner, total = carry
        batch = buffer.gather(view, drawn.positions)
        learner, loss = critic_step(update_config, learner, policy, jnp.float32(temperature), batch, drawn.noise)
        return learner, total + loss

    def draw_one(i: Any) -> BatchSample:
        return sample_batch(update_config.batch_size, view, jax.random.fold_in(key, i))

    wide = fuse_twin_q(learner, view.action_size)
    wide, total = repeat(start, stop, draw_one, update, (wide, jnp.zeros(())))
    return split_twin_q(wide), total


@partial(compiled, static="update_config")
def actor_updates(
    update_config: UpdateConfig,
    learners: ActorLearner,
    critic: Critic,
    temperature: float,
    forces: Forces | None,
    view: ReplayView,
    keys: jax.Array,
    start: int,
    stop: int,
) -> tuple[ActorLearner, Forces | None, tuple[ActorMetrics, ForceMetrics | None]]:
    """Updates `start` to `stop - 1` of all actors side by side, each on mini-batches of its own.

    `keys` has one key for each actor. Without `forces` nothing of attraction and repulsion is computed. The metrics are
    sums over the updates.
    """
    critic = fuse_twin_q(critic, view.action_size)
    members = keys.shape[0]

    def draw_all(i: Any) -> tuple[BatchSample, Int[Array, " member"]]:
        drawn = jax.vmap(lambda key: sample_batch(update_config.batch_size, view, jax.random.fold_in(key, i)))(keys)
        return drawn, draw_partners(jax.random.fold_in(keys[0], i), members)

    def update(drawn: Any, carry: Any) -> Any:
        (positions, noise), partners = drawn
        learners, forces, totals = carry
        observation = jax.vmap(lambda where: buffer.gather(view, where).observation)(positions)
        learners, forces, metrics = population_step(
            update_config, learners, critic, jnp.float32(temperature), forces, partners, observation, noise
        )
        return learners, forces, jax.tree.map(jnp.add, totals, metrics)

    return repeat(start, stop, draw_all, update, (learners, forces, no_metrics(members, forces)))


def no_metrics(members: int, forces: Forces | None) -> tuple[ActorMetrics, ForceMetrics | None]:
    """Return the metrics of no updates, which `population_step`'s are added to."""
    none = ActorMetrics(*[jnp.zeros(members)] * 2)
    if forces is None:
        return none, None
    archived = None if forces.archived is None else no_divergences(*forces.archived.weights.shape)
    return none, ForceMetrics(no_divergences(len(forces.repelled), 1), archived)


def no_divergences(*shape: int) -> Divergences:
    return Divergences(jnp.zeros(shape), jnp.zeros(shape))


def draw_partners(key: jax.Array, members: int) -> Int[Array, " member"]:
    """Draw another member for each; its own index where it is alone."""
    if members == 1:
        return jnp.zeros(1, int)
    shift = jax.random.randint(jax.random.fold_in(key, 1), (members,), 1, members)
    return (jnp.arange(members) + shift) % members


class BatchSample(NamedTuple):
    """The chance in an update."""

    positions: Int[Array, " batch"]  # of the mini-batch in replay
    noise: Float[Array, "batch action"]  # standard normal, for the actions of a policy on it


def sample_batch(batch_size: int, view: ReplayView, key: jax.Array) -> BatchSample:
    batch_key, noise_key = jax.random.split(key)
    noise = jax.random.normal(noise_key, (batch_size, view.action_size))
    return BatchSample(buffer.positions(view, batch_key, batch_size), noise)


def repeat(
    start: Any, stop: Any, sample_batch: Callable[[Any], Drawn], update: Callable[[Drawn, Carry], Carry], carry: Carry
) -> Carry:
    """`carry = update(draw(i), carry)` for i from `start` to `stop - 1`.

    What is drawn depends on i alone, so it is drawn for many updates at once: the random numbers of one are too few to
    keep the machine busy.
    """

    def some(block: Any, carry: Carry) -> Carry:
        first = start + block * _AHEAD
        drawn = jax.vmap(sample_batch)(first + jnp.arange(_AHEAD))

        def one(number: Any, carry: Carry) -> Carry:
            return update(jax.tree.map(lambda leaf: leaf[number], drawn), carry)

        return jax.lax.fori_loop(0, jnp.minimum(_AHEAD, stop - first), one, carry)

    return jax.lax.fori_loop(0, -((start - stop) // _AHEAD), some, carry)
