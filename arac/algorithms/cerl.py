"""CERL (Khadka et al.): TD3 learners of several horizons share their experience with a genetic algorithm."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float, Int

from arac.algorithms.base import Context, Evaluation, UpdateBudget, finish_generation, summary
from arac.algorithms.config import Config, SmoothedConfig
from arac.algorithms.evolutionary import GeneticConfig, breed, evaluate_fitness
from arac.algorithms.td3 import td3_update_config, update_learners
from arac.envs import EnvSpec
from arac.errors import UserError
from arac.learning.td3_updates import Learner, UpdateConfig
from arac.models.critics import CriticTarget, init_twin_critic
from arac.models.mlp import LayerStyle, tapered
from arac.models.policies import DeterministicPolicy
from arac.models.stacked import take, vmap_init
from arac.population.bandit import allocate, ucb_scores
from arac.replay.episode import Episode
from arac.utils.rng import stream_key, stream_rng
from arac.utils.validation import Bounds, Count, Natural, NonNegative, Share

_STYLE = LayerStyle("elu", norm="after")


@dataclass(frozen=True, kw_only=True)
class CERLConfig(GeneticConfig, SmoothedConfig):
    """Collaborative Evolutionary Reinforcement Learning: a genetic algorithm and TD3 learners of several horizons."""

    named_presets: ClassVar[dict[str, dict[str, Any]]] = {
        **Config.named_presets,
        "published": {
            "mutation_probability": 0.9, "crossover_probability": 0.15, "crossover_units": 2.0,
            "mutation_strength": 0.1, "mutation_fraction": 0.05, "mutation_share": "fixed",
            "super_mutation_strength": 10.0, "super_mutation_probability": 0.05, "reset_probability": 0.02,
            "reset_scale": 1.0, "critic_target": "delayed", "exploration_noise": 0.1, "target_noise": 0.2,
            "target_noise_clip": 0.5,
        },
        # The authors' code scales noise for actions in [0, 1]; for [-1, 1] it is twice as large.
        "public-code": {
            "mutation_probability": 0.2, "crossover_probability": 0.01, "crossover_units": 0.3,
            "mutation_strength": 0.02, "mutation_fraction": 0.03, "mutation_share": "random",
            "super_mutation_strength": 1.0, "super_mutation_probability": 0.1, "reset_probability": 0.1,
            "reset_scale": 0.1, "critic_target": "every", "exploration_noise": 0.2, "target_noise": 0.4,
            "target_noise_clip": 1.0,
        },
    }  # fmt: skip

    elite_fraction: Share = 0.2
    """Share of the individuals that pass on unchanged."""
    crossover_probability: Share = 0.15
    """Probability that two selected parents exchange units."""
    mutation_fraction: Share = 0.05
    """Share of the weights that a mutation changes."""
    reset_probability: Share = 0.02
    """Share of the changed weights that are drawn anew."""
    critic_target: CriticTarget = "delayed"
    """delayed: the critic's target moves with every update of the actor, as in TD3; every: with every update."""
    learner_rollouts: Annotated[int, Bounds(1, 10_000)] = 10
    """Episodes of the learners per generation, shared out by their upper confidence bounds."""
    migration_interval: Count = 5
    """Generations between copies of the learners into the population."""
    ucb_coefficient: NonNegative = 0.9
    """Weight of the exploration among learners."""
    value_step: Share = 0.2
    """Weight of the newest return in a learner's value."""
    hidden_size: Count = 400
    """Units of the first hidden layer; the second has three quarters of that."""
    learning_rate: NonNegative = 1e-3
    """Adam's learning rate, for actors."""
    critic_learning_rate: NonNegative = 1e-3
    """Adam's learning rate, for the critics."""
    warmup_steps: Natural = 2_560
    """Environment steps before the first gradient step: ten mini-batches."""
    discounts: tuple[float, ...] = (0.9, 0.99, 0.997, 0.9995)
    """Discount factor of each learner."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.discounts or not all(0 <= discount <= 1 for discount in self.discounts):
            raise UserError(
                f"discounts must be numbers from 0 to 1, at least one, got {self.discounts}.", fields=("discounts",)
            )
        if self.learner_rollouts < len(self.discounts):
            raise UserError(
                f"learner_rollouts ({self.learner_rollouts}) must be at least one for each of the "
                f"{len(self.discounts)} learners.",
                fields=("learner_rollouts", "discounts"),
            )


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class State:
    """Everything that is passed from one generation to the next, except for replay."""

    individuals: DeterministicPolicy  # stacked
    learners: Learner  # the portfolio, stacked
    values: Float[np.ndarray, " learner"]  # moving averages of their returns
    visits: Int[np.ndarray, " learner"]  # number of episodes each has played
    allocation: Int[np.ndarray, " episode"]  # the learner that plays each of the next generation's episodes
    champion: int  # the individual that was fittest in the last generation
    updates: int  # updates of each learner so far
    last_steps: int  # environment steps of the previous generation
    generation: int
    env_steps: int

    @property
    def population(self) -> DeterministicPolicy:
        return self.individuals


def update_config(config: CERLConfig) -> UpdateConfig:
    """Return the settings that the learners' update loop is compiled for."""
    of_td3 = td3_update_config(config, critic_learning_rate=config.critic_learning_rate)
    return of_td3._replace(critic_target=config.critic_target)


def init(config: CERLConfig, env: EnvSpec, seed: int) -> State:
    """Return the state before the first generation."""
    hidden = tapered(config.hidden_size)
    sizes = env.observation_size, env.action_size

    def init_actor(key: jax.Array) -> DeterministicPolicy:
        return DeterministicPolicy.init(key, *sizes, hidden=hidden, exploration=config.exploration_noise, style=_STYLE)

    def init_learner(key: jax.Array) -> Learner:
        actor_key, critic_key = jax.random.split(key)
        critic = init_twin_critic(critic_key, *sizes, hidden, _STYLE)
        return Learner.begin(update_config(config), init_actor(actor_key), critic)

    learners = len(config.discounts)
    return State(
        individuals=vmap_init(init_actor, stream_key(seed, "population"), config.population_size),
        learners=vmap_init(init_learner, stream_key(seed, "learner"), learners),
        values=np.zeros(learners),
        visits=np.zeros(learners, int),
        allocation=np.arange(config.learner_rollouts) % learners,
        champion=0,
        updates=0,
        last_steps=0,
        generation=0,
        env_steps=0,
    )


def generation(context: Context[CERLConfig], state: State) -> tuple[State, Evaluation | None]:
    """Evaluate individuals, train learners, breed (at intervals with learners too), and allocate the next episodes."""
    config = context.config
    fitness, steps = evaluate_fitness(context, state.individuals, state.generation, 1)
    policies = take(state.learners.actor.policy, state.allocation)
    episodes = context.rollouts.explore(policies, state.generation, noise_hold=config.noise_hold)
    context.replay.extend(episodes)
    steps += sum(len(episode) for episode in episodes)
    env_steps = state.env_steps + steps
    values, visits = valued(config, state, episodes)

    # As many updates as the previous generation had steps, once the warm-up is over.
    updates = state.updates + (state.last_steps if env_steps > config.warmup_steps else 0)
    budget = UpdateBudget(state.updates, updates)
    learners, losses = update_learners(
        context, update_config(config), state.learners, config.discounts, state.generation, budget
    )

    migrants = None if (state.generation + 1) % config.migration_interval else learners.actor.policy
    individuals, made = breed(context, state.individuals, fitness, state.generation, migrants)
    rng = stream_rng(context.seed, "allocation", state.generation)
    learned = State(
        individuals=individuals,
        learners=learners,
        values=values,
        visits=visits,
        allocation=allocate(ucb_scores(values, visits, config.ucb_coefficient), config.learner_rollouts, rng),
        champion=int(made.elites[0]),
        updates=updates,
        last_steps=steps,
        generation=state.generation + 1,
        env_steps=env_steps,
    )
    shares = {f"rollouts_of_learner_{learner}": float(count) for learner, count in enumerate(visits)}
    returns = {f"value_of_learner_{learner}": float(value) for learner, value in enumerate(values)}
    return finish_generation(context, state, learned, {**losses, **shares, **returns, **summary(fitness)})


def valued(
    config: CERLConfig, state: State, episodes: list[Episode]
) -> tuple[Float[np.ndarray, " learner"], Int[np.ndarray, " learner"]]:
    """Return the learners' values and visits after new episodes; a learner's first value is its first return."""
    values, visits = state.values.copy(), state.visits.copy()
    for learner, episode in zip(state.allocation, episodes, strict=True):
        step = config.value_step if visits[learner] else 1.0
        values[learner] += step * (episode.total - values[learner])
        visits[learner] += 1
    return values, visits
