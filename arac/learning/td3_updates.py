"""TD3's updates: a critic step, an actor step, and loops of them that compile once.

TD3, CEM-TD3 and CERL use them; ERL's DDPG is the special case of one Q network, no smoothing and no delay.
"""

from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from arac.learning import update_loop
from arac.learning.jit import compiled
from arac.learning.losses import deterministic_actor_loss, q_loss, smoothed_target
from arac.learning.update_loop import BatchSample, gradient_step, repeat, sample_batch, train_on_batches
from arac.models.critics import CriticTarget, Q, TwinCritic, fuse_twin_q, soft_update, split_twin_q
from arac.models.policies import DeterministicPolicy
from arac.replay import buffer
from arac.replay.buffer import Batch, ReplayView

Actor: TypeAlias = update_loop.ActorLearner[DeterministicPolicy]
CriticLearner: TypeAlias = update_loop.CriticLearner[TwinCritic]


class UpdateConfig(NamedTuple):
    """The settings that an update loop is compiled for. Noise is in units of actions in [-1, 1]."""

    actor_learning_rate: float
    critic_learning_rate: float
    tau: float
    batch_size: int
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    policy_delay: int = 2
    gradient_clip: float | None = None  # the largest norm of the critic's gradient
    critic_target: CriticTarget = "delayed"


class Learner(NamedTuple):
    """An actor with its target network and a critic; or several such learners, with a leading axis."""

    actor: Actor
    target_policy: DeterministicPolicy
    critic: CriticLearner

    @staticmethod
    def begin(update_config: UpdateConfig, policy: DeterministicPolicy, critic: TwinCritic) -> "Learner":
        """Return a learner with new optimisers, its target policy equal to `policy`."""
        return Learner(begin_actor(update_config, policy), policy, begin_critic(update_config, critic))


@partial(jax.jit, static_argnums=0)
def begin_actor(update_config: UpdateConfig, policy: DeterministicPolicy) -> Actor:
    """Return the actor with a new optimiser."""
    return Actor(policy, optax.adam(update_config.actor_learning_rate).init(policy))


@partial(jax.jit, static_argnums=0)
def begin_critic(update_config: UpdateConfig, critic: TwinCritic) -> CriticLearner:
    """Return the critic with a new optimiser."""
    return CriticLearner(critic, critic_optimiser(update_config).init(critic.online))


def critic_optimiser(update_config: UpdateConfig) -> optax.GradientTransformation:
    """Return the critic's optimiser: Adam, on clipped gradients if the settings set a limit."""
    adam, limit = optax.adam(update_config.critic_learning_rate), update_config.gradient_clip
    return adam if limit is None else optax.chain(optax.clip_by_global_norm(limit), adam)


def critic_step(
    update_config: UpdateConfig,
    learner: CriticLearner,
    target_policy: DeterministicPolicy,
    discount: Float[Array, ""],
    batch: Batch,
    noise: Float[Array, "batch action"],
) -> tuple[CriticLearner, Float[Array, ""]]:
    """Train the critic on one mini-batch; return it and its loss. Target networks are not updated."""
    critic = learner.critic
    smoothing = jnp.clip(
        update_config.target_noise * noise, -update_config.target_noise_clip, update_config.target_noise_clip
    )
    target = smoothed_target(critic.target, target_policy, batch, smoothing, discount)
    loss, gradient = jax.value_and_grad(q_loss)(critic.online, target, batch)
    online, optimiser = gradient_step(critic_optimiser(update_config), critic.online, gradient, learner.optimiser)
    return CriticLearner(TwinCritic(online, critic.target), optimiser), loss


def _with_soft_target(learner: CriticLearner, tau: float) -> CriticLearner:
    """Return the learner with its critic's target moved towards the trained networks by `tau`."""
    return learner._replace(critic=learner.critic.with_soft_target(learner.critic.online, tau))


def actor_step(
    update_config: UpdateConfig, actor: Actor, q: Q, observation: Float[Array, "batch obs"]
) -> tuple[Actor, Float[Array, ""]]:
    """Train the actor on one mini-batch; return it and its loss."""
    loss, gradient = jax.value_and_grad(deterministic_actor_loss)(actor.policy, q, observation)
    adam = optax.adam(update_config.actor_learning_rate)
    return Actor(*gradient_step(adam, actor.policy, gradient, actor.optimiser)), loss


class Losses(NamedTuple):
    """Losses summed over updates; the actor's over the updates that trained it."""

    critic: Float[Array, " learner"]
    actor: Float[Array, " learner"]

    def means(self, before: int, after: int, delay: int) -> dict[str, float]:
        """Return the means over updates `before` to `after - 1` and over all learners; `delay` is the policy delay."""
        actor_steps = after // delay - before // delay
        return {
            "critic_loss": float(self.critic.mean()) / max(after - before, 1),
            "actor_loss": float(self.actor.mean()) / max(actor_steps, 1),
        }


@partial(compiled, static="update_config")
def learner_updates(
    update_config: UpdateConfig,
    learners: Learner,
    discounts: Float[Array, " learner"],
    view: ReplayView,
    keys: jax.Array,
    start: int,
    stop: int,
) -> tuple[Learner, Losses]:
    """Carry out updates `start` to `stop - 1` of several learners in parallel; return them and their summed losses.

    Updates are numbered from the run's beginning, so that every `policy_delay`-th one trains the actor and moves the
    targets, wherever a generation ends.

    Args:
        update_config: the settings that the loop is compiled for.
        learners: the learners, stacked.
        discounts: discount factor of each learner.
        view: the transitions to draw from.
        keys: one key for each learner.
        start: number of the first update.
        stop: number of the update after the last one.
    """

    def draw_all(i: Int[Array, ""]) -> tuple[Int[Array, ""], BatchSample]:
        return i, jax.vmap(lambda key: sample_batch(update_config.batch_size, view, jax.random.fold_in(key, i)))(keys)

    def update(drawn: tuple[Int[Array, ""], BatchSample], carry: tuple[Learner, Losses]) -> tuple[Learner, Losses]:
        i, draws = drawn
        learners, sums = carry
        moves_actor = (i + 1) % update_config.policy_delay == 0

        def one(learner: Learner, discount: Float[Array, ""], drawn: BatchSample) -> tuple[Learner, Losses]:
            batch = buffer.gather(view, drawn.positions)
            critic, critic_loss = critic_step(
                update_config, learner.critic, learner.target_policy, discount, batch, drawn.noise
            )
            if update_config.critic_target == "every":
                critic = _with_soft_target(critic, update_config.tau)

            def delayed(_: None) -> tuple[Learner, Float[Array, ""]]:
                actor, loss = actor_step(update_config, learner.actor, critic.critic.online, batch.observation)
                moved_critic = (
                    _with_soft_target(critic, update_config.tau) if update_config.critic_target == "delayed" else critic
                )
                return Learner(
                    actor, soft_update(learner.target_policy, actor.policy, update_config.tau), moved_critic
                ), loss

            def kept(_: None) -> tuple[Learner, Float[Array, ""]]:
                return learner._replace(critic=critic), jnp.zeros(())

            learner, actor_loss = jax.lax.cond(moves_actor, delayed, kept, None)
            return learner, Losses(critic_loss, actor_loss)

        learners, losses = jax.vmap(one)(learners, discounts, draws)
        return learners, jax.tree.map(jnp.add, sums, losses)

    zeros = jnp.zeros(discounts.shape)
    wide = jax.vmap(lambda learner: fuse_twin_q(learner, view.action_size))(learners)
    wide, sums = repeat(start, stop, draw_all, update, (wide, Losses(zeros, zeros)))
    return jax.vmap(split_twin_q)(wide), sums


@partial(compiled, static="update_config")
def critic_updates(
    update_config: UpdateConfig,
    learner: CriticLearner,
    policy: DeterministicPolicy,
    discount: float,
    view: ReplayView,
    key: jax.Array,
    start: int,
    stop: int,
) -> tuple[CriticLearner, Float[Array, ""]]:
    """Carry out updates of a critic alone, with `policy` as target policy; return it and the sum of its losses.

    The other arguments are those of `train_on_batches`.
    """

    def step(
        learner: CriticLearner, batch: Batch, noise: Float[Array, "batch action"]
    ) -> tuple[CriticLearner, Float[Array, ""]]:
        learner, loss = critic_step(update_config, learner, policy, jnp.float32(discount), batch, noise)
        return _with_soft_target(learner, update_config.tau), loss

    return train_on_batches(step, learner, view, update_config.batch_size, key, start, stop)


@partial(compiled, static="update_config")
def actor_updates(
    update_config: UpdateConfig,
    actor: Actor,
    q: Q,
    view: ReplayView,
    key: jax.Array,
    start: int,
    stop: int,
) -> tuple[Actor, Float[Array, ""]]:
    """Carry out updates of an actor alone, with a fixed critic; return it and the sum of its losses.

    The other arguments are those of `train_on_batches`.
    """
    wide = fuse_twin_q(q, view.action_size)

    def step(actor: Actor, batch: Batch, noise: Float[Array, "batch action"]) -> tuple[Actor, Float[Array, ""]]:
        return actor_step(update_config, actor, wide, batch.observation)

    return train_on_batches(step, actor, view, update_config.batch_size, key, start, stop)
