"""ERL (Khadka and Tumer): a genetic algorithm over actors, and one DDPG learner that is copied among them."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float, Int

from arac.algorithms.base import Context, Evaluation, UpdateBudget, finish_generation, summary
from arac.algorithms.config import Config, DiscountConfig, ExplorationConfig
from arac.algorithms.evolutionary import GeneticConfig, breed, evaluate_fitness
from arac.algorithms.td3 import update_learners
from arac.envs import EnvSpec
from arac.learning.td3_updates import Learner, UpdateConfig
from arac.models.critics import BranchedQ, TwinCritic, TwinQ
from arac.models.mlp import LayerStyle
from arac.models.policies import DeterministicPolicy
from arac.models.stacked import put, stack, vmap_init
from arac.utils.rng import stream_key
from arac.utils.validation import Bounds, Count, Natural, NonNegative, Share

_BRANCH, _JOINT = 200, 300  # units of the critic
_STYLE = LayerStyle("tanh", norm="before")  # of the actors


@dataclass(frozen=True, kw_only=True)
class ERLConfig(GeneticConfig, ExplorationConfig, DiscountConfig):
    """Evolutionary Reinforcement Learning: a genetic algorithm and one DDPG learner."""

    preset_table: ClassVar[str] = "erl"
    preset_fields: ClassVar[tuple[str, ...]] = ("elite_fraction", "trials", "synchronisation_interval")
    named_presets: ClassVar[dict[str, dict[str, Any]]] = {
        **Config.named_presets,
        "published": {"mutation_share": "fixed", "crossover_biases": 0.0, "last_layer_scale": 1.0},
        "public-code": {"mutation_share": "random", "crossover_biases": 1.0, "last_layer_scale": 0.1},
    }

    trials: Annotated[int, Bounds(1, 10_000)] = 1
    """Episodes that an individual's fitness is the mean of."""
    synchronisation_interval: Count = 10
    """Generations between copies of the learner into the worst individual."""
    exploration_noise: NonNegative = 0.3
    """Scale of the learner's Ornstein-Uhlenbeck noise, in units of actions in [-1, 1]."""
    hidden_size: Count = 128
    """Units per hidden layer of the actors; the critic has 200 for the state, 200 for the action and 300."""
    batch_size: Count = 128
    """Transitions per mini-batch."""
    tau: Share = 0.001
    """Step of the slowly moving target networks towards the trained ones."""
    gradient_clip: Annotated[float, Bounds(1e-06)] = 10.0
    """The largest norm of the critic's gradient."""
    last_layer_scale: NonNegative = 1.0
    """Factor on the last layers of the learner's actor and critic at the start."""
    warmup_steps: Natural = 640
    """Environment steps before the first gradient step: five mini-batches."""
    eval_episodes: Count = 5
    """Episodes without noise of the champion at an evaluation."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class State:
    """Everything that is passed from one generation to the next, except for replay."""

    individuals: DeterministicPolicy  # stacked
    learners: Learner  # one, with a leading axis
    champion: int  # the individual that was fittest in the last generation
    generation: int
    env_steps: int

    @property
    def population(self) -> DeterministicPolicy:
        return self.individuals


def update_config(config: ERLConfig) -> UpdateConfig:
    """Return the settings of DDPG as a special case of TD3: one Q network, no smoothing, no delay."""
    rates, clip = (config.learning_rate, config.critic_learning_rate), config.gradient_clip
    return UpdateConfig(*rates, config.tau, config.batch_size, target_noise=0.0, policy_delay=1, gradient_clip=clip)


def init(config: ERLConfig, env: EnvSpec, seed: int) -> State:
    """Return the state before the first generation."""
    sizes, hidden = (env.observation_size, env.action_size), (config.hidden_size,) * 2

    def init_actor(key: jax.Array) -> DeterministicPolicy:
        return DeterministicPolicy.init(key, *sizes, hidden=hidden, exploration=config.exploration_noise, style=_STYLE)

    def init_q(key: jax.Array) -> BranchedQ:
        return BranchedQ.init(key, *sizes, branch=_BRANCH, joint=_JOINT)

    q = TwinQ(vmap_init(init_q, stream_key(seed, "critic-init"), 1))
    q = replace(q, networks=q.networks.with_last_scaled(config.last_layer_scale))
    actor = init_actor(stream_key(seed, "learner"))
    actor = replace(actor, network=actor.network.with_last_scaled(config.last_layer_scale))
    learner = Learner.begin(update_config(config), actor, TwinCritic(q, q))
    individuals = vmap_init(init_actor, stream_key(seed, "population"), config.population_size)
    return State(individuals, stack([learner]), champion=0, generation=0, env_steps=0)


def generation(context: Context[ERLConfig], state: State) -> tuple[State, Evaluation | None]:
    """Evaluate and breed individuals, train the learner, and at intervals copy it into the population."""
    config = context.config
    fitness, steps = evaluate_fitness(context, state.individuals, state.generation, config.trials)
    individuals, made = breed(context, state.individuals, fitness, state.generation)

    learner = state.learners.actor.policy
    [episode] = context.rollouts.explore(learner, state.generation, "drift", noise_hold=config.noise_hold)
    context.replay.extend([episode])
    env_steps = state.env_steps + steps + len(episode)

    # As many updates as the generation had environment steps, once the warm-up is over.
    count = env_steps - state.env_steps if env_steps > config.warmup_steps else 0
    learners, losses = update_learners(
        context, update_config(config), state.learners, (config.discount,), state.generation, UpdateBudget(0, count)
    )

    if (state.generation + 1) % config.synchronisation_interval == 0:
        individuals = put(individuals, np.array([worst(fitness, made.elites)]), learners.actor.policy)
    learned = State(individuals, learners, int(made.elites[0]), state.generation + 1, env_steps)
    losses |= {"learner_return": episode.total, **summary(fitness)}
    return finish_generation(context, state, learned, losses)


def worst(fitness: Float[np.ndarray, " individual"], elites: Int[np.ndarray, " elite"]) -> int:
    """Return the least fit slot of those that do not hold a copy of an elite."""
    return int(next(slot for slot in np.argsort(fitness, kind="stable") if slot not in elites))
