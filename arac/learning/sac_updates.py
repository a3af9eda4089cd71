"""The updates of soft actor-critics, in loops that train on many mini-batches in one jitted call."""

from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from arac.learning import update_loop
from arac.learning.forces import (
    ForceConfig,
    ForceMetrics,
    Forces,
    adapted,
    draw_partners,
    no_force_metrics,
    with_forces,
)
from arac.learning.jit import compiled
from arac.learning.losses import actor_loss, critic_loss, temperature_loss
from arac.learning.update_loop import BatchSample, gradient_step, repeat, sample_batch, train_on_batches
from arac.models.critics import Critic, fuse_twin_q
from arac.models.policies import Policy
from arac.replay import buffer
from arac.replay.buffer import Batch, ReplayView

ActorLearner: TypeAlias = update_loop.ActorLearner[Policy]
CriticLearner: TypeAlias = update_loop.CriticLearner[Critic]


class UpdateConfig(NamedTuple):
    """The settings that an update loop is compiled for."""

    discount: float
    tau: float
    learning_rate: float
    batch_size: int
    forces: ForceConfig = ForceConfig()


class Temperatures(NamedTuple):
    """Adaptive temperatures, one for each member of a population."""

    log: Float[Array, " member"]
    optimiser: optax.OptState


def adam(update_config: UpdateConfig) -> optax.GradientTransformation:
    """Return the optimiser of actors, critics and the temperature."""
    return optax.adam(update_config.learning_rate)


@partial(jax.jit, static_argnums=0)
def fresh_optimiser(update_config: UpdateConfig, parameters: optax.Params) -> optax.OptState:
    """Return Adam's state before the first step."""
    return adam(update_config).init(parameters)


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
    online, optimiser = gradient_step(adam(update_config), critic.online, gradient, learner.optimiser)
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
    return ActorLearner(*gradient_step(adam(update_config), learner.policy, gradient, learner.optimiser)), metrics


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


class ActorMetrics(NamedTuple):
    """Means over a mini-batch, or their sums over updates."""

    loss: Float[Array, "*member"]
    log_prob: Float[Array, "*member"]


def population_step(
    update_config: UpdateConfig,
    learners: ActorLearner,
    critic: Critic,
    temperature: "Temperature",
    forces: Forces | None,
    partners: Int[Array, " member"],
    observation: Float[Array, "member batch obs"],
    noise: Float[Array, "member batch action"],
) -> "Carry":
    """Take one gradient step for every member: Eq. 5 with attraction or repulsion, else Eq. 2.

    Args:
        update_config: the learning rate, the divergence and the other settings.
        learners: the population, stacked.
        critic: shared by all members.
        temperature: weight of the entropy; adapted to an entropy of minus the number of actions if it is adaptive.
        forces: None for a population without attraction and repulsion.
        partners: for each member, the index of another one, which repels it if it is among `forces.repelled`.
        observation: a mini-batch for each member; policies are compared on its first quarter.
        noise: standard normal numbers for the actions on the mini-batches.

    Returns:
        The population, the temperature, `forces` with lambda adapted, and the metrics.
    """
    policies = learners.policy
    weight, axis = (jnp.exp(temperature.log), 0) if isinstance(temperature, Temperatures) else (temperature, None)
    gradient, metrics = jax.vmap(actor_gradient, (0, None, axis, 0, 0))(policies, critic, weight, observation, noise)
    force_metrics = None
    if forces is not None:
        gradient, force_metrics = with_forces(
            update_config.forces, gradient, policies, forces, partners, observation, noise
        )
        forces = forces._replace(log_coefficient=adapted(update_config.forces, forces, force_metrics))
    learners = ActorLearner(
        *jax.vmap(partial(gradient_step, adam(update_config)))(policies, gradient, learners.optimiser)
    )
    if isinstance(temperature, Temperatures):
        adapt = partial(temperature_step, update_config, -float(noise.shape[-1]))
        temperature = Temperatures(*jax.vmap(adapt)(*temperature, metrics.log_prob))
    return learners, temperature, forces, (metrics, force_metrics)


def temperature_step(
    update_config: UpdateConfig,
    target_entropy: float,
    log_temperature: Float[Array, ""],
    optimiser: optax.OptState,
    log_prob: Float[Array, ""],
) -> tuple[Float[Array, ""], optax.OptState]:
    """Take one step of a temperature towards the one that gives the target entropy; return its log and optimiser."""
    gradient = jax.grad(temperature_loss)(log_temperature, log_prob, target_entropy)
    return gradient_step(adam(update_config), log_temperature, gradient, optimiser)


@partial(compiled, static="update_config")
def critic_updates(
    update_config: UpdateConfig,
    learner: CriticLearner,
    policy: Policy,
    temperature: Float[Array, ""],
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

    def step(
        learner: CriticLearner, batch: Batch, noise: Float[Array, "batch action"]
    ) -> tuple[CriticLearner, Float[Array, ""]]:
        return critic_step(update_config, learner, policy, temperature, batch, noise)

    return train_on_batches(step, learner, view, update_config.batch_size, key, start, stop)


Drawn: TypeAlias = tuple[BatchSample, Int[Array, " member"]]  # mini-batches and partners of all members
Temperature: TypeAlias = Float[Array, ""] | Temperatures
Carry: TypeAlias = tuple[ActorLearner, Temperature, Forces | None, tuple[ActorMetrics, ForceMetrics | None]]


@partial(compiled, static="update_config")
def actor_updates(
    update_config: UpdateConfig,
    learners: ActorLearner,
    critic: Critic,
    temperature: Temperature,
    forces: Forces | None,
    view: ReplayView,
    keys: jax.Array,
    start: int,
    stop: int,
) -> Carry:
    """Carry out updates `start` to `stop - 1` of all actors in parallel, each on separate mini-batches.

    Args:
        update_config: the settings that the loop is compiled for.
        learners: the actors, stacked.
        critic: shared by all actors; it is not trained.
        temperature: weight of the entropy, fixed or adaptive.
        forces: attraction and repulsion, or None.
        view: the transitions to draw from.
        keys: one key for each actor.
        start: number of the first update.
        stop: number of the update after the last one.

    Returns:
        The actors, the temperature, `forces` with lambda adapted, and the metrics summed over the updates.
    """
    critic = fuse_twin_q(critic, view.action_size)
    members = keys.shape[0]
    zero = ActorMetrics(*[jnp.zeros(members)] * 2), None if forces is None else no_force_metrics(forces)

    def draw_all(i: Int[Array, ""]) -> Drawn:
        drawn = jax.vmap(lambda key: sample_batch(update_config.batch_size, view, jax.random.fold_in(key, i)))(keys)
        return drawn, draw_partners(jax.random.fold_in(keys[0], i), members)

    def update(drawn: Drawn, carry: Carry) -> Carry:
        (positions, noise), partners = drawn
        learners, temperature, forces, totals = carry
        observation = jax.vmap(lambda where: buffer.gather(view, where).observation)(positions)
        learners, temperature, forces, metrics = population_step(
            update_config, learners, critic, temperature, forces, partners, observation, noise
        )
        return learners, temperature, forces, jax.tree.map(jnp.add, totals, metrics)

    return repeat(start, stop, draw_all, update, (learners, temperature, forces, zero))
