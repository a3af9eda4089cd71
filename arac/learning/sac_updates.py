"""The updates of soft actor-critics, in loops that train on many mini-batches in one jitted call.

Episode lengths change every generation, so the number of updates is a traced number and each loop compiles once.
Update i draws its mini-batch and noise from (key, i) alone: dividing updates among several calls changes no result.
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
# Policies are compared on a quarter of a mini-batch, because each policy costs a forward pass on these states.
STATES_PER_COMPARED = 4
# If lambda is adapted: the largest change of log lambda per update, and the range of log lambda.
COEFFICIENT_STEP = 0.01
LOG_COEFFICIENT_RANGE = (math.log(1e-3), math.log(1e5))


class UpdateConfig(NamedTuple):
    """The settings that an update loop is compiled for."""

    discount: float
    tau: float
    learning_rate: float
    batch_size: int
    ar_divergence: Divergence = "bounded"
    ar_base: Base = "own"
    kl_clip: float | None = None
    ar_target: float | None = None  # divergence that lambda is adapted to, in nats; None leaves lambda as it is


class CriticLearner(NamedTuple):
    """A critic and its optimiser state."""

    critic: Critic
    optimiser: OptimiserState


class ActorLearner(NamedTuple):
    """An actor and its optimiser state, or a population of actors with a leading axis."""

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
    """Take one step of Adam; return the new parameters and the new optimiser state."""
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
    """Train the critic on one mini-batch; return it and its loss."""
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
    """Train one actor on one mini-batch by Eq. 2; return it and its metrics."""
    gradient, metrics = actor_gradient(learner.policy, critic, temperature, observation, noise)
    return ActorLearner(*gradient_step(update_config, learner.policy, gradient, learner.optimiser)), metrics


def actor_gradient(
    policy: Policy,
    critic: Critic,
    temperature: Float[Array, ""],
    observation: Float[Array, "batch obs"],
    noise: Float[Array, "batch action"],
) -> tuple[Policy, "ActorMetrics"]:
    """Return the gradient of Eq. 2, and the metrics."""

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
    """Return the gradient of `coefficient` (lambda) times Eq. 1, and the divergences."""

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
    """The attraction and repulsion that act on the members of a population during a generation."""

    log_coefficient: Float[Array, " member"]  # log lambda
    repelled: Int[Array, " repelled"]  # indices of the members that other members repel; may be empty
    elites: Int[Array, " elite"]  # indices of the members that archived policies repel or attract
    archived: TargetPolicies | None  # for each elite; None if the archive is empty or unused


class ForceMetrics(NamedTuple):
    """Divergences from the policies that repel or attract, of one update or summed over updates."""

    living: Divergences  # (repelled, 1): from another member of the population
    archived: Divergences | None  # (elite, n): from archived policies


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
    """Take one gradient step for every member: Eq. 5 with attraction or repulsion, else Eq. 2.

    Args:
        update_config: the learning rate, the divergence and the other settings.
        learners: the population, stacked.
        critic: shared by all members.
        temperature: weight of the entropy.
        forces: None for a population without attraction and repulsion.
        partners: for each member, the index of another one, which repels it if it is among `forces.repelled`.
        observation: a mini-batch for each member; policies are compared on its first quarter.
        noise: standard normal numbers for the actions on the mini-batches.

    Returns:
        The population, `forces` with lambda adapted, and the metrics.
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
    """Add attraction and repulsion to a population's gradients; return them and the divergences."""
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
    """Return log lambda of each member, raised if its divergence is below `ar_target` and lowered if it is above.

    The step depends on the ratio of divergence and target and is bounded, because divergences have heavy tails. A
    member that no other repels keeps its lambda; if no member is repelled by another, the elites' lambdas are adapted
    to their divergence from the archived policies that repel them.
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
    """Carry out updates `start` to `stop - 1` of the critic; return it and the sum of the losses.

    Args:
        update_config: the settings that the loop is compiled for.
        learner: the critic.
        policy: provides the actions for the critic's targets.
        temperature: weight of the entropy.
        view: the transitions to draw from.
        key: all random numbers of update i come from (key, i).
        start: number of the first update.
        stop: number of the update after the last one.
    """

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
    """Carry out updates `start` to `stop - 1` of all actors in parallel, each on separate mini-batches.

    Args:
        update_config: the settings that the loop is compiled for.
        learners: the actors, stacked.
        critic: shared by all actors; it is not trained.
        temperature: weight of the entropy.
        forces: attraction and repulsion, or None.
        view: the transitions to draw from.
        keys: one key for each actor.
        start: number of the first update.
        stop: number of the update after the last one.

    Returns:
        The actors, `forces` with lambda adapted, and the metrics summed over the updates.
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
    """Return metrics of zero, to which those of `population_step` are added."""
    none = ActorMetrics(*[jnp.zeros(members)] * 2)
    if forces is None:
        return none, None
    archived = None if forces.archived is None else no_divergences(*forces.archived.weights.shape)
    return none, ForceMetrics(no_divergences(len(forces.repelled), 1), archived)


def no_divergences(*shape: int) -> Divergences:
    """Return divergences of zero."""
    return Divergences(jnp.zeros(shape), jnp.zeros(shape))


def draw_partners(key: jax.Array, members: int) -> Int[Array, " member"]:
    """Draw for each member the index of another one; a single member gets its own index."""
    if members == 1:
        return jnp.zeros(1, int)
    shift = jax.random.randint(jax.random.fold_in(key, 1), (members,), 1, members)
    return (jnp.arange(members) + shift) % members


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
    start: Any, stop: Any, draw: Callable[[Any], Drawn], update: Callable[[Drawn, Carry], Carry], carry: Carry
) -> Carry:
    """Repeat `carry = update(draw(i), carry)` for i from `start` to `stop - 1`; return the last carry.

    `draw(i)` depends on i alone, so it is computed for many updates at once: the random numbers of one update
    are too few to keep the machine busy.
    """

    def some(block: Any, carry: Carry) -> Carry:
        first = start + block * _AHEAD
        drawn = jax.vmap(draw)(first + jnp.arange(_AHEAD))

        def one(number: Any, carry: Carry) -> Carry:
            return update(jax.tree.map(lambda leaf: leaf[number], drawn), carry)

        return jax.lax.fori_loop(0, jnp.minimum(_AHEAD, stop - first), one, carry)

    return jax.lax.fori_loop(0, -((start - stop) // _AHEAD), some, carry)
