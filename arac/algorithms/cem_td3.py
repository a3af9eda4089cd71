"""CEM-TD3 (CEM-RL, Pourchot and Sigaud): the cross-entropy method over actors, half of which learn with TD3 first."""

from dataclasses import dataclass
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arac.algorithms.base import Context, Evaluation, finish_generation, run_chunks, summary
from arac.algorithms.config import DiscountConfig, TargetNoiseConfig
from arac.envs import EnvSpec
from arac.errors import UserError
from arac.learning.td3_updates import (
    Actor,
    CriticLearner,
    UpdateConfig,
    actor_updates,
    begin_actor,
    begin_critic,
    critic_updates,
)
from arac.models.critics import init_twin_critic
from arac.models.mlp import LayerStyle, tapered
from arac.models.policies import DeterministicPolicy
from arac.models.stacked import put, stack, take, top_k
from arac.population.cem import Distribution, ask, tell
from arac.utils.rng import stream_key
from arac.utils.validation import Bounds, Count, Natural, NonNegative, Share


@dataclass(frozen=True, kw_only=True)
class CEMTD3Config(TargetNoiseConfig, DiscountConfig):
    """CEM-RL with TD3: a Gaussian over actors, half of which are trained by gradient before all are evaluated."""

    population_size: Annotated[int, Bounds(1, 10_000)] = 10
    """Actors per generation; an even number, because actors are drawn in pairs."""
    parents: Count = 5
    """Fittest actors that the new mean and variance are made of."""
    gradient_actors: Natural = 5
    """Actors per generation that learn from the critic first."""
    initial_variance: NonNegative = 1e-3
    """Variance of each parameter at the start."""
    damping: NonNegative = 1e-3
    """Variance that is added at first, per parameter."""
    final_damping: NonNegative = 1e-5
    """Variance that is added in the end."""
    damping_decay: Share = 0.95
    """Factor of the added variance per generation."""
    hidden_size: Count = 400
    """Units of the first hidden layer; the second has three quarters of that."""
    batch_size: Count = 100
    """Transitions per mini-batch."""
    learning_rate: NonNegative = 1e-3
    """Adam's learning rate, for actors and critic."""
    warmup_steps: Natural = 10_000
    """Environment steps before the first gradient step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.population_size % 2:
            raise UserError(
                f"population_size must be even, for actors are drawn in pairs, got {self.population_size}.",
                fields=("population_size",),
            )
        for name in ("parents", "gradient_actors"):
            if getattr(self, name) > self.population_size:
                raise UserError(
                    f"{name} ({getattr(self, name)}) must not exceed population_size ({self.population_size}).",
                    fields=(name, "population_size"),
                )


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class State:
    """Everything that is passed from one generation to the next, except for replay."""

    distribution: Distribution[DeterministicPolicy]
    critic: CriticLearner  # shared by all actors
    last_steps: int  # environment steps of the previous generation
    generation: int
    env_steps: int

    @property
    def population(self) -> DeterministicPolicy:
        """The mean policy alone: it is evaluated, and it is the result of training."""
        return stack([self.distribution.mean])

    @property
    def champion(self) -> int:
        return 0


def update_config(config: CEMTD3Config) -> UpdateConfig:
    """Return the settings that the update loops of actors and critic are compiled for."""
    rates, noise = (config.learning_rate,) * 2, (config.target_noise, config.target_noise_clip)
    return UpdateConfig(*rates, config.tau, config.batch_size, *noise)


def init(config: CEMTD3Config, env: EnvSpec, seed: int) -> State:
    """Return the state before the first generation."""
    hidden, sizes = tapered(config.hidden_size), (env.observation_size, env.action_size)
    key = stream_key(seed, "population")
    mean = DeterministicPolicy.init(key, *sizes, hidden=hidden, exploration=0.0, style=LayerStyle("tanh"))
    critic = init_twin_critic(stream_key(seed, "critic-init"), *sizes, hidden, LayerStyle("leaky_relu"))
    variance = jax.tree.map(lambda leaf: jnp.full_like(leaf, config.initial_variance), mean)
    return State(
        distribution=Distribution(mean, variance, jnp.float32(config.damping)),
        critic=begin_critic(update_config(config), critic),
        last_steps=0,
        generation=0,
        env_steps=0,
    )


def generation(context: Context[CEMTD3Config], state: State) -> tuple[State, Evaluation | None]:
    """Draw actors, train the first ones, evaluate all, and update the distribution from the fittest."""
    config = context.config
    key = stream_key(context.seed, "candidates", state.generation)
    actors = ask(state.distribution, key, config.population_size)
    actors, critic, losses = teach(context, state, actors)

    # Evaluate every actor in one episode without noise, which is added to replay.
    episodes = [episode for [episode] in context.rollouts.evaluate_fitness(actors, state.generation, 1)]
    context.replay.extend(episodes)
    steps = sum(len(episode) for episode in episodes)
    fitness = np.array([episode.total for episode in episodes])

    parents = take(actors, top_k(fitness, config.parents))
    decay, final = config.damping_decay, config.final_damping
    learned = State(
        distribution=tell(state.distribution, parents, decay=decay, final_damping=final),
        critic=critic,
        last_steps=steps,
        generation=state.generation + 1,
        env_steps=state.env_steps + steps,
    )
    return finish_generation(context, state, learned, {**losses, **summary(fitness)})


def teach(
    context: Context[CEMTD3Config], state: State, actors: DeterministicPolicy
) -> tuple[DeterministicPolicy, CriticLearner, dict[str, float]]:
    """Train the first actors in turn: first the critic with the actor as target policy, then the actor by the critic.

    Each actor gets a new optimiser.

    Returns:
        The actors, the critic, and the mean losses.
    """
    config = context.config
    # Replay is empty after `load`, for example.
    can_learn = state.env_steps >= config.warmup_steps and len(context.replay) > 0
    critic, sums, updates = state.critic, np.zeros(2), np.zeros(2, int)  # of critic and actors
    for number in range(config.gradient_actors if can_learn else 0):
        policy, critic, losses = teach_one(context, state, number, take(actors, number), critic)
        actors = put(actors, number, policy)
        sums += losses
        updates += critic_and_actor_updates(config, state)
    critic_loss, actor_loss = sums / np.maximum(updates, 1)
    return actors, critic, {"critic_loss": float(critic_loss), "actor_loss": float(actor_loss)}


def teach_one(
    context: Context[CEMTD3Config], state: State, number: int, policy: DeterministicPolicy, critic: CriticLearner
) -> tuple[DeterministicPolicy, CriticLearner, tuple[float, float]]:
    """Train the critic with an actor as target policy, and then the actor; return both and their summed losses."""
    config = context.config
    fixed, view = update_config(config), context.replay.view
    critic_count, actor_count = critic_and_actor_updates(config, state)
    of_critic = stream_key(context.seed, "critic", state.generation, number)
    of_actor = stream_key(context.seed, "actors", state.generation, number)

    def train_critic(critic: CriticLearner, start: int, stop: int) -> tuple[CriticLearner, Float[Array, ""]]:
        return critic_updates(fixed, critic, policy, config.discount, view, of_critic, start, stop)

    critic, critic_losses = run_chunks(context, "critic", critic_count, train_critic, critic)

    def train_actor(actor: Actor, start: int, stop: int) -> tuple[Actor, Float[Array, ""]]:
        return actor_updates(fixed, actor, critic.critic.online, view, of_actor, start, stop)

    actor, actor_losses = run_chunks(context, "actors", actor_count, train_actor, begin_actor(fixed, policy))
    return actor.policy, critic, (sum(map(float, critic_losses)), sum(map(float, actor_losses)))


def critic_and_actor_updates(config: CEMTD3Config, state: State) -> tuple[int, int]:
    """Return how many updates an actor gets in this generation: of the critic with it, and of itself."""
    return state.last_steps // config.gradient_actors, state.last_steps
