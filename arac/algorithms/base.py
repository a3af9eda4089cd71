"""The parts that algorithms share apart from their updates: counting, scheduling and evaluation."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import jax
import numpy as np
from jaxtyping import Float, Int

from arac.algorithms.config import Config, ExplorationConfig, SoftConfig
from arac.envs import EnvSpec
from arac.learning.sac_updates import UpdateConfig
from arac.learning.update_loop import sample_batch
from arac.models.policies import DeterministicPolicy, Policy
from arac.models.stacked import take, top_k
from arac.population.diversity import pairwise_kl
from arac.replay import buffer
from arac.replay.buffer import ReplayBuffer, ReplayView
from arac.replay.episode import Acting, Episode
from arac.utils.progress import Progress
from arac.utils.rng import stream_key

ConfigT_co = TypeVar("ConfigT_co", bound=Config, covariant=True)


class State(Protocol):
    """The interface of an algorithm's state: a frozen dataclass registered with JAX as a pytree.

    It holds everything that is passed from one generation to the next and that a checkpoint needs, except for replay.
    """

    @property
    def population(self) -> Policy:
        """The members: one policy whose leaves have a leading axis."""

    @property
    def champion(self) -> int:
        """The index of the member that is used as the trained agent."""

    @property
    def generation(self) -> int:
        """The number of complete generations."""

    @property
    def env_steps(self) -> int:
        """The number of environment steps so far."""


StateT = TypeVar("StateT", bound=State)
ExplorerT = TypeVar("ExplorerT", bound=ExplorationConfig)
Carry = TypeVar("Carry")
Metrics = TypeVar("Metrics")
Repulsion: TypeAlias = dict[str, float | dict[str, float]]  # numbers by name, and shares by source


class Rollouts(Protocol):
    """Plays the episodes of a generation: see `arac.rollout.rollouts`."""

    def explore(
        self, population: Policy, generation: int, acting: Acting = "explore", *, noise_hold: int = 1
    ) -> list[Episode]:
        """Play one episode with exploration noise for each member."""

    def evaluate_fitness(self, population: Policy, generation: int, episodes: int) -> list[list[Episode]]:
        """Play episodes without noise for each member, to select by and to learn from."""

    def evaluate(
        self, population: Policy, generation: int, episodes: int, *, record: bool = False, stream: str = "evaluate"
    ) -> list[list[Episode]]:
        """Play episodes without noise for each member, all members from the same start states."""


class Context(NamedTuple, Generic[ConfigT_co]):
    """The inputs of a generation besides its state."""

    config: ConfigT_co
    env: EnvSpec
    seed: int
    total_steps: int
    replay: ReplayBuffer
    rollouts: Rollouts
    progress: Progress


class Evaluation(NamedTuple):
    """The measurements after a generation; one row of the metrics."""

    env_steps: int
    generation: int
    returns: Float[np.ndarray, "member episode"]
    lengths: Int[np.ndarray, "member episode"]
    fitness: Float[np.ndarray, " member"]
    elites: Int[np.ndarray, " elite"]
    kl: Float[np.ndarray, "member member"]  # KL(row || column)
    archive_size: int
    losses: dict[str, float]
    repulsion: Repulsion | None = None  # sources of repulsion, if there was any
    fresh_returns: Float[np.ndarray, " episode"] | None = None  # of a champion chosen by fitness among several

    @property
    def champion(self) -> int:
        return int(self.elites[0])

    @property
    def champion_returns(self) -> Float[np.ndarray, " episode"]:
        """The champion's returns in episodes that it was not chosen by."""
        return self.returns[self.champion] if self.fresh_returns is None else self.fresh_returns


def soft_update_config(config: SoftConfig) -> UpdateConfig:
    """Return the settings that the update loops of a soft actor-critic are compiled for."""
    return UpdateConfig(config.discount, config.tau, config.learning_rate, config.batch_size)


def learning_steps(config: Config, env_steps: int) -> int:
    """Return the number of updates due so far: one for each environment step after the warm-up."""
    return max(env_steps - config.warmup_steps, 0)


@dataclass(frozen=True)
class UpdateBudget:
    """The updates that a generation has earned: numbers `before` to `after - 1`, counted from the run's beginning.

    Fractions are carried over to the next generation, since shares are differences of rounded totals.
    """

    before: int
    after: int

    @classmethod
    def earned(cls, config: Config, before: int, after: int) -> "UpdateBudget":
        """Return one update for each environment step after the warm-up, between two counts of environment steps."""
        return cls(learning_steps(config, before), learning_steps(config, after))

    @property
    def count(self) -> int:
        return self.after - self.before

    def share(self, slot: int, slots: int) -> int:
        """Return how many updates belong to a slot; the shares of all slots add up to `count`."""
        return (self.after + slot) // slots - (self.before + slot) // slots

    def scaled(self, factor: float, divisor: int) -> int:
        """Return `count * factor / divisor` as a whole number."""
        return int(self.after * factor / divisor) - int(self.before * factor / divisor)


def run_chunks(
    context: Context[Config],
    phase: str,
    count: int,
    update: Callable[[Carry, int, int], tuple[Carry, Metrics]],
    carry: Carry,
) -> tuple[Carry, list[Metrics]]:
    """Carry out `count` updates in calls of about a second, after which progress is shown and Ctrl-C takes effect.

    Args:
        context: shows the progress of the run.
        phase: name of the phase in progress and timings.
        count: number of updates.
        update: maps `(carry, start, stop)` to the carry after updates `start` to `stop - 1`, and their summed metrics.
        carry: what is trained.

    Returns:
        The last carry, and the metrics of each call as NumPy arrays.
    """
    metrics = []
    for start, stop in context.progress.chunks(phase, count):
        carry, summed = update(carry, start, stop)
        metrics.append(jax.device_get(summed))  # this waits, so that progress counts finished updates
    return carry, metrics


def evaluation_due(context: Context[Config], before: int, after: int) -> bool:
    """Return True if an evaluation interval ended between two counts of environment steps, or the run has ended."""
    interval = context.config.eval_interval
    return interval == 0 or after // interval > before // interval or after >= context.total_steps


def finish_generation(
    context: Context[Config], before: State, learned: StateT, losses: dict[str, float]
) -> tuple[StateT, Evaluation | None]:
    """Return the state after a generation, and the evaluation of its champion if one is due.

    Args:
        context: config, rollouts and other inputs.
        before: the state before the generation.
        learned: the state after it.
        losses: metrics of the generation.
    """
    if not evaluation_due(context, before.env_steps, learned.env_steps):
        return learned, None
    champion = take(learned.population, np.array([learned.champion]))
    return learned, measure(context, learned, evaluate(context, champion, before.generation), losses)


def single_agent_generation(
    context: Context[ExplorerT],
    state: StateT,
    update: Callable[[Context[ExplorerT], StateT, UpdateBudget], tuple[StateT, dict[str, float]]],
) -> tuple[StateT, Evaluation | None]:
    """Carry out a generation of a single agent: one episode, one update per step of it, and an evaluation if due.

    Args:
        context: config, replay buffer, rollouts and other inputs.
        state: the state before the generation.
        update: maps `(context, state, budget)` to the state after the updates of the budget and their metrics.

    Returns:
        The new state, and the evaluation if one was due.
    """
    episodes = explore(context, state)
    env_steps = state.env_steps + sum(len(episode) for episode in episodes)
    learned, losses = update(context, state, UpdateBudget.earned(context.config, state.env_steps, env_steps))
    learned = replace(learned, generation=state.generation + 1, env_steps=env_steps)  # type: ignore[type-var]
    return finish_generation(context, state, learned, losses)


def explore(context: Context[ExplorerT], state: State) -> list[Episode]:
    """Play one episode with each member, with random actions during the warm-up, and add it to replay."""
    acting: Acting = "random" if state.env_steps < context.config.warmup_steps else "explore"
    hold = context.config.noise_hold
    episodes = context.rollouts.explore(state.population, state.generation, acting, noise_hold=hold)
    context.replay.extend(episodes)
    return episodes


class EvaluationReturns(NamedTuple):
    """The returns and lengths of an evaluation's episodes."""

    returns: Float[np.ndarray, "member episode"]
    lengths: Int[np.ndarray, "member episode"]

    @property
    def fitness(self) -> Float[np.ndarray, " member"]:
        return self.returns.mean(1)


def evaluate(context: Context[Config], population: Policy, generation: int) -> EvaluationReturns:
    """Play episodes without noise with every member; a member's fitness is its mean return."""
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
    """Return the row of an evaluation, with the divergences between members on states from replay.

    Deterministic policies have no density; their divergences are reported as 0.

    Args:
        context: config, replay buffer and seed of the run.
        state: the state after the generation.
        played: returns and lengths of the evaluation's episodes.
        losses: metrics of the generation.
        elites: number of members that the row lists as elites.
        archive_size: number of policies in the archive.
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


def confirm(context: Context[Config], population: Policy, generation: int, row: Evaluation) -> Evaluation:
    """Return the row with fresh episodes of the champion: the episodes that it was chosen by overestimate it."""
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


def summary(fitness: Float[np.ndarray, " member"]) -> dict[str, float]:
    """Return the best and the mean fitness of a population, for the metrics."""
    return {"population_best": float(fitness.max()), "population_mean": float(fitness.mean())}


def init_replay(config: Config, env: EnvSpec) -> ReplayBuffer:
    """Return an empty replay buffer for an environment."""
    return buffer.ReplayBuffer(config.replay_capacity, env.observation_size, env.action_size)
