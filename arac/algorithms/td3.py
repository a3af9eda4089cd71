"""TD3: one agent, one episode per generation, one update per environment step."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from arac.algorithms.base import Context, Evaluation, UpdateBudget, run_chunks, single_agent_generation
from arac.algorithms.config import Config, DiscountConfig, SmoothedConfig
from arac.envs import EnvSpec
from arac.learning.td3_updates import Learner, Losses, UpdateConfig, learner_updates
from arac.models.critics import init_twin_critic
from arac.models.policies import DeterministicPolicy
from arac.models.stacked import stack
from arac.utils.rng import stream_key
from arac.utils.validation import Natural


@dataclass(frozen=True, kw_only=True)
class TD3Config(SmoothedConfig, DiscountConfig):
    """Twin Delayed DDPG."""

    warmup_steps: Natural = 25_000
    """Environment steps with uniformly random actions at the start; learning begins after them."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class State:
    """Everything that is passed from one generation to the next, except for replay."""

    learners: Learner  # one, with a leading axis
    generation: int
    env_steps: int

    @property
    def population(self) -> DeterministicPolicy:
        return self.learners.actor.policy

    @property
    def champion(self) -> int:
        return 0


def update_config(config: TD3Config) -> UpdateConfig:
    """Return the settings that the learner's update loop is compiled for."""
    return td3_update_config(config, critic_learning_rate=config.learning_rate)


def td3_update_config(config: SmoothedConfig, *, critic_learning_rate: float) -> UpdateConfig:
    """Return the settings that the update loop of TD3 learners is compiled for."""
    return UpdateConfig(
        actor_learning_rate=config.learning_rate,
        critic_learning_rate=critic_learning_rate,
        tau=config.tau,
        batch_size=config.batch_size,
        target_noise=config.target_noise,
        target_noise_clip=config.target_noise_clip,
        policy_delay=config.policy_delay,
    )


def init(config: TD3Config, env: EnvSpec, seed: int) -> State:
    """Return the state before the first generation."""
    hidden, sizes = (config.hidden_size,) * 2, (env.observation_size, env.action_size)
    key = stream_key(seed, "population")
    policy = DeterministicPolicy.init(key, *sizes, hidden=hidden, exploration=config.exploration_noise)
    critic = init_twin_critic(stream_key(seed, "critic-init"), *sizes, hidden)
    return State(stack([Learner.begin(update_config(config), policy, critic)]), generation=0, env_steps=0)


def generation(context: Context[TD3Config], state: State) -> tuple[State, Evaluation | None]:
    """Carry out one generation; return the new state, and the evaluation if one was due."""
    return single_agent_generation(context, state, update)


def update(context: Context[TD3Config], state: State, budget: UpdateBudget) -> tuple[State, dict[str, float]]:
    """Carry out the updates of the budget; return the new state and the mean losses."""
    fixed, discounts = update_config(context.config), (context.config.discount,)
    learners, losses = update_learners(context, fixed, state.learners, discounts, state.generation, budget)
    return replace(state, learners=learners), losses


def update_learners(
    context: Context[Config],
    fixed: UpdateConfig,
    learners: Learner,
    discounts: tuple[float, ...],
    generation: int,
    budget: UpdateBudget,
) -> tuple[Learner, dict[str, float]]:
    """Carry out the updates of the budget with learners in parallel, for TD3, CERL and ERL.

    Args:
        context: replay buffer, seed and progress of the run.
        fixed: the settings that the loop is compiled for.
        learners: the learners, stacked.
        discounts: discount factor of each learner.
        generation: number of the generation.
        budget: the updates of each learner.

    Returns:
        The learners, and their mean losses.
    """
    keys = jax.random.split(stream_key(context.seed, "updates", generation), len(discounts))

    def train(learners: Learner, start: int, stop: int) -> tuple[Learner, Losses]:
        numbers = budget.before + start, budget.before + stop
        return learner_updates(fixed, learners, jnp.array(discounts), context.replay.view, keys, *numbers)

    learners, losses = run_chunks(context, "update", budget.count, train, learners)
    zeros = Losses(jnp.zeros(len(discounts)), jnp.zeros(len(discounts)))
    sums = jax.tree.map(lambda *parts: sum(parts), zeros, *losses)
    return learners, sums.means(budget.before, budget.after, fixed.policy_delay)
