"""SAC (v1 and v2 critics) and SAC-NF: one agent, one episode per generation, one update per environment step."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from arac.algorithms.base import (
    Context,
    Evaluation,
    UpdateBudget,
    run_chunks,
    single_agent_generation,
    soft_update_config,
)
from arac.algorithms.config import SoftConfig
from arac.envs import EnvSpec
from arac.learning.jit import compiled
from arac.learning.sac_updates import (
    ActorLearner,
    CriticLearner,
    UpdateConfig,
    actor_step,
    critic_step,
    fresh_optimiser,
    temperature_step,
)
from arac.learning.update_loop import BatchSample, repeat, sample_batch
from arac.models.critics import CriticKind, fuse_twin_q, init_critic, split_twin_q
from arac.models.policies import FlowPolicy, Policy
from arac.models.policies.custom import CustomPolicy, CustomPolicyAdapter
from arac.models.stacked import stack
from arac.replay import buffer
from arac.replay.buffer import ReplayView
from arac.utils.rng import stream_key
from arac.utils.validation import Bounds, NonNegative


@dataclass(frozen=True, kw_only=True)
class SACConfig(SoftConfig):
    """Soft actor-critic: v2 by default, v1 with `critic="value", temperature=0.2`."""

    critic: CriticKind = "twin"
    temperature: Annotated[float | Literal["auto"], Bounds(0)] = "auto"
    """Weight of the entropy; auto learns it, towards an entropy of minus the action's size."""


@dataclass(frozen=True, kw_only=True)
class SACNFConfig(SoftConfig):
    """Soft actor-critic with a radial-flow policy: ARAC's agent without a population."""

    preset_fields: ClassVar[tuple[str, ...]] = ("flows", "sigma", "temperature")

    flows: Annotated[int, Bounds(0, 1000)] = 3
    """Radial flows (N)."""
    sigma: Annotated[float | Literal["learned"], Bounds(1e-06)] = 0.4
    """Standard deviation of the base Gaussian, or learned from the state."""
    temperature: NonNegative = 0.2
    """Weight of the entropy (alpha)."""


class Learner(NamedTuple):
    """The actor, the critic and the temperature, with their optimiser states."""

    actor: ActorLearner
    critic: CriticLearner
    log_temperature: Float[Array, ""]
    temperature_optimiser: optax.OptState


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class State:
    """Everything that is passed from one generation to the next, except for replay."""

    learner: Learner
    generation: int
    env_steps: int

    @property
    def population(self) -> Policy:
        return stack([self.learner.actor.policy])

    @property
    def champion(self) -> int:
        return 0


def init(config: SACConfig | SACNFConfig, env: EnvSpec, seed: int, policy: type[CustomPolicy] | None = None) -> State:
    """Return the state before the first generation; `policy` is a user's policy class, or None."""
    hidden = (config.hidden_size,) * 2
    actor = init_actor(config, env, stream_key(seed, "population"), policy)
    critic = init_critic(stream_key(seed, "critic-init"), config.critic, env.observation_size, env.action_size, hidden)
    update_config = soft_update_config(config)
    temperature = 1.0 if config.temperature == "auto" else max(config.temperature, 1e-30)  # the log of 0 is not finite
    log_temperature = jnp.log(jnp.float32(temperature))
    return State(
        learner=Learner(
            ActorLearner(actor, fresh_optimiser(update_config, actor)),
            CriticLearner(critic, fresh_optimiser(update_config, critic.online)),
            log_temperature,
            fresh_optimiser(update_config, log_temperature),
        ),
        generation=0,
        env_steps=0,
    )


def init_actor(
    config: SACConfig | SACNFConfig, env: EnvSpec, key: jax.Array, policy: type[CustomPolicy] | None
) -> Policy:
    """Return a new actor: a user's policy, or that of SAC-NF or SAC."""
    sizes, hidden = (env.observation_size, env.action_size), (config.hidden_size,) * 2
    if policy is not None:
        return CustomPolicyAdapter.init(policy, key, env)
    if isinstance(config, SACNFConfig):
        sigma = None if config.sigma == "learned" else float(config.sigma)
        return FlowPolicy.init(key, *sizes, hidden=hidden[:1], flows=config.flows, sigma=sigma)
    return FlowPolicy.init(key, *sizes, hidden=hidden, flows=0, sigma=None)


def generation(context: Context[SACConfig | SACNFConfig], state: State) -> tuple[State, Evaluation | None]:
    """Carry out one generation; return the new state, and the evaluation if one was due."""
    return single_agent_generation(context, state, update)


def update(
    context: Context[SACConfig | SACNFConfig], state: State, budget: UpdateBudget
) -> tuple[State, dict[str, float]]:
    """Carry out the updates of the budget; return the new state and the means of their metrics."""
    target_entropy = -float(context.env.action_size) if context.config.temperature == "auto" else None
    key, fixed = stream_key(context.seed, "updates", state.generation), soft_update_config(context.config)

    def train(learner: Learner, start: int, stop: int) -> tuple[Learner, Losses]:
        return sac_updates(fixed, target_entropy, learner, context.replay.view, key, start, stop)

    learner, losses = run_chunks(context, "update", budget.count, train, state.learner)
    sums = {name: sum(float(getattr(part, name)) for part in losses) for name in Losses._fields}
    return replace(state, learner=learner), {name: total / max(budget.count, 1) for name, total in sums.items()}


class Losses(NamedTuple):
    """Losses, entropy and temperature, summed over updates."""

    critic_loss: Float[Array, ""]
    actor_loss: Float[Array, ""]
    entropy: Float[Array, ""]
    temperature: Float[Array, ""]


@partial(compiled, static=("update_config", "target_entropy"))
def sac_updates(
    update_config: UpdateConfig,
    target_entropy: float | None,
    learner: Learner,
    view: ReplayView,
    key: jax.Array,
    start: int,
    stop: int,
) -> tuple[Learner, Losses]:
    """Carry out updates `start` to `stop - 1` of critic, actor and, given a target entropy, temperature.

    Args:
        update_config: the settings that the loop is compiled for.
        target_entropy: the entropy that the temperature is adapted to; None keeps the temperature.
        learner: the actor, the critic and the temperature.
        view: the transitions to draw from.
        key: all random numbers of update i come from (key, i).
        start: number of the first update.
        stop: number of the update after the last one.

    Returns:
        The learner, and the sums of the updates' metrics.
    """

    def draw_one(i: Int[Array, ""]) -> tuple[BatchSample, Float[Array, "batch action"]]:
        critic_key, actor_key = jax.random.split(jax.random.fold_in(key, i))
        drawn = sample_batch(update_config.batch_size, view, critic_key)
        return drawn, jax.random.normal(actor_key, drawn.noise.shape)

    def one(
        drawn: tuple[BatchSample, Float[Array, "batch action"]], carry: tuple[Learner, Losses]
    ) -> tuple[Learner, Losses]:
        (positions, noise), actor_noise = drawn
        learner, sums = carry
        batch = buffer.gather(view, positions)
        temperature = jnp.exp(learner.log_temperature)
        critic, critic_loss = critic_step(
            update_config, learner.critic, learner.actor.policy, temperature, batch, noise
        )
        actor, metrics = actor_step(
            update_config, learner.actor, critic.critic, temperature, batch.observation, actor_noise
        )
        tuned = learner.log_temperature, learner.temperature_optimiser
        if target_entropy is not None:
            tuned = temperature_step(update_config, target_entropy, *tuned, metrics.log_prob)
        new = Losses(critic_loss, metrics.loss, -metrics.log_prob, temperature)
        return Learner(actor, critic, *tuned), jax.tree.map(jnp.add, sums, new)

    zero = jnp.zeros(())
    wide = fuse_twin_q(learner, view.action_size)
    wide, sums = repeat(start, stop, draw_one, one, (wide, Losses(zero, zero, zero, zero)))
    return split_twin_q(wide), sums
