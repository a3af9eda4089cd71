"""What the systems share around their updates: counting, scheduling and evaluation."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from arac.algorithms.config import Config, ExplorationConfig, SoftConfig
from arac.envs import EnvSpec
from arac.learning.sac_updates import UpdateConfig, sample_batch
from arac.models.policies import DeterministicPolicy
from arac.models.stacked import take, top_k
from arac.population.diversity import pairwise_kl
from arac.replay import buffer
from arac.replay.buffer import ReplayBuffer, ReplayView
from arac.replay.episode import Acting
from arac.rollout.rollouts import Rollouts
from arac.utils.progress import Progress
from arac.utils.rng import stream_key

ConfigT_co = TypeVar("ConfigT_co", bound=Config, covariant=True)


class State(Protocol):
    """A state of any algorithm: a frozen dataclass that JAX knows as a pytree, with everything that a checkpoint needs.

    What goes from one generation to the next is in it, but for replay.
    """

    @property
    def population(self) -> Any:
        """One policy whose leaves have a leading axis: the members."""

    @property
    def champion(self) -> int:
        """The member to hand over."""

    @property
    def generation(self) -> int: ...

    @property
    def env_steps(self) -> int: ...


StateT = TypeVar("StateT", bound=State)
ExplorerT = TypeVar("ExplorerT", bound=ExplorationConfig)


class Context(NamedTuple, Generic[ConfigT_co]):
    """What a generation works with, beside its state."""

    config: ConfigT_co
    env: EnvSpec
    seed: int
    total_steps: int
    replay: ReplayBuffer
    rollouts: Rollouts
    progress: Progress


class Evaluation(NamedTuple):
    """What was measured after a generation; one row of the metrics."""

    env_steps: int
    generation: int
    returns: np.ndarray  # (member, episode)
    lengths: np.ndarray  # (member, episode)
    fitness: np.ndarray  # (member,)
    elites: np.ndarray
    kl: np.ndarray  # (member, member): KL(row || column)
    archive_size: int
    losses: dict[str, float]
    repulsion: dict[str, Any] | None = None  # where repulsion came from, where there was some
    fresh_returns: np.ndarray | None = None  # (episode,): of the champion, where its fitness chose it among several

    @property
    def champion(self) -> int:
        return int(self.elites[0])

    @property
    def champion_returns(self) -> np.ndarray:
        """Returns of the champion in episodes that did not choose it."""
        return self.returns[self.champion] if self.fresh_returns is None else self.fresh_returns


def soft_update_config(config: SoftConfig) -> UpdateConfig:
    """Return the part of a config that the update loops of a soft actor-critic are compiled for."""
    return UpdateConfig(config.discount, config.tau, config.learning_rate, config.batch_size)


def learning_steps(config: Config, env_steps: int) -> int:
    """How many of the environment steps so far have earned an update: all but the warm-up."""
    return max(env_steps - config.warmup_steps, 0)


def evaluation_due(context: Context[Config], before: int, after: int) -> bool:
    """Whether the interval was crossed between two counts of environment steps, or the run is at its end."""
    interval = context.config.eval_interval
    return interval == 0 or after // interval > before // interval or after >= context.total_steps


def single_agent_generation(
    context: Context[ExplorerT],
    state: StateT,
    update: Callable[[Context[ExplorerT], StateT, int], tuple[StateT, dict[str, float]]],
) -> tuple[StateT, Evaluation | None]:
    """A generation of a single agent: one episode, the updates that it earned, and an evaluation when it is due.

    Args:
        context: what it works with.
        state: has `population`, `generation` and `env_steps`.
        update: `(context, state, environment steps now)` to the state that has learned, and what it reports.
    """
    warming_up = state.env_steps < context.config.warmup_steps
    acting: Acting = "random" if warming_up else "explore"
    hold = context.config.noise_hold
    episodes = context.rollouts.explore(state.population, state.generation, acting, noise_hold=hold)
    context.replay.extend(episodes)
    env_steps = state.env_steps + sum(len(episode) for episode in episodes)
    learned, losses = update(context, state, env_steps)
    changes: dict[str, Any] = {"generation": state.generation + 1, "env_steps": env_steps}
    learned = replace(learned, **changes)  # type: ignore[type-var]
    if not evaluation_due(context, state.env_steps, env_steps):
        return learned, None
    played = evaluate(context, learned.population, state.generation)
    return learned, measure(context, learned, played, losses)


class EvaluationReturns(NamedTuple):
    """The episodes of an evaluation."""

    returns: np.ndarray  # (member, episode)
    lengths: np.ndarray  # (member, episode)

    @property
    def fitness(self) -> np.ndarray:
        return self.returns.mean(1)


def evaluate(context: Context[Config], population: Any, generation: int) -> EvaluationReturns:
    """Episodes without noise for every member; its fitness is their mean return."""
    store = context.config.store_evaluation
    episodes = context.rollouts.evaluate(population, generation, context.config.eval_episodes, record=store)
    if store:
        context.replay.extend(episode for of_member in episodes for episode in of_member)
    return EvaluationReturns(
        returns=np.array([[episode.total for episode in of_member] for of_member in episodes]),
        lengths=np.array([[len(episode) for episode in of_member] for of_member in episodes]),
    )


def measure(
    context: Context[Config],
    state: State,
    played: EvaluationReturns,
    losses: dict[str, float],
    *,
    elites: int = 1,
    archive_size: int = 0,
) -> Evaluation:
    """The row of an evaluation, with the divergences between members on states from replay.

    Policies without a density have none: zeros stand there.
    """
    kl = np.zeros((len(played.returns),) * 2)
    if not isinstance(state.population, DeterministicPolicy):
        key = stream_key(context.seed, "diversity", state.generation)
        observation, noise = _draw_states(context.config.batch_size, context.replay.view, key)
        kl = np.asarray(pairwise_kl(state.population, observation, noise), np.float64)
    return Evaluation(
        env_steps=state.env_steps,
        generation=state.generation,
        returns=played.returns,
        lengths=played.lengths,
        fitness=played.fitness,
        elites=top_k(played.fitness, elites),
        kl=kl,
        archive_size=archive_size,
        losses=losses,
    )


def confirm(context: Context[Config], population: Any, generation: int, row: Evaluation) -> Evaluation:
    """Return the row with fresh episodes of the champion: the fittest of several was lucky in those that chose it."""
    if len(row.fitness) == 1:
        return row
    champion = take(population, np.array([row.champion]))
    [episodes] = context.rollouts.evaluate(champion, generation, context.config.eval_episodes, stream="confirm")
    return row._replace(fresh_returns=np.array([episode.total for episode in episodes]))


@partial(jax.jit, static_argnums=0)
def _draw_states(batch_size: int, view: ReplayView, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Draw states from replay and noise for the actions there."""
    drawn = sample_batch(batch_size, view, key)
    return buffer.gather(view, drawn.positions).observation, drawn.noise


def summary(fitness: np.ndarray) -> dict[str, float]:
    """Of what a population was judged by, for the metrics."""
    return {"population_best": float(fitness.max()), "population_mean": float(fitness.mean())}


def init_replay(config: Config, env: EnvSpec) -> ReplayBuffer:
    return buffer.ReplayBuffer(config.replay_capacity, env.observation_size, env.action_size)
