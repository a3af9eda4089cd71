"""A new algorithm: an evolution strategy, to be put into arac/algorithms/ with a line in registry.py.

Each generation draws actors around a mean, plays an episode with each and moves the mean towards the fittest.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from arac.algorithms.base import Context, Evaluation, finish_generation, summary
from arac.algorithms.config import Config
from arac.envs import EnvSpec
from arac.models.policies import DeterministicPolicy
from arac.models.stacked import stack, take, top_k
from arac.utils.rng import stream_key


@dataclass(frozen=True, kw_only=True)
class ESConfig(Config):
    """An evolution strategy."""

    population_size: int = 10
    """Actors per generation."""
    parents: int = 3
    """Fittest actors that the next mean is made of."""
    spread: float = 0.1
    """Standard deviation of each parameter around the mean."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class State:
    """Everything that a generation hands to the next."""

    mean: DeterministicPolicy
    generation: int
    env_steps: int

    @property
    def population(self) -> DeterministicPolicy:
        """The mean alone, which is what it hands over."""
        return stack([self.mean])

    @property
    def champion(self) -> int:
        return 0


def init(config: ESConfig, env: EnvSpec, seed: int) -> State:
    key, hidden = stream_key(seed, "population"), (config.hidden_size,)
    sizes = env.observation_size, env.action_size
    return State(DeterministicPolicy.init(key, *sizes, hidden=hidden, exploration=0.0), generation=0, env_steps=0)


def generation(context: Context[ESConfig], state: State) -> tuple[State, Evaluation | None]:
    """Draw actors, judge each by an episode, and move the mean."""
    config = context.config
    key = stream_key(context.seed, "candidates", state.generation)
    actors = drawn(state.mean, key, config.population_size, config.spread)
    episodes = [episode for [episode] in context.rollouts.evaluate_fitness(actors, state.generation, 1)]
    fitness = np.array([episode.total for episode in episodes])
    parents = take(actors, top_k(fitness, config.parents))
    learned = State(
        mean=jax.tree.map(lambda leaf: leaf.mean(0), parents),
        generation=state.generation + 1,
        env_steps=state.env_steps + sum(len(episode) for episode in episodes),
    )
    context.replay.extend(episodes)
    return finish_generation(context, state, learned, summary(fitness))


def drawn(mean: DeterministicPolicy, key: jax.Array, count: int, spread: float) -> DeterministicPolicy:
    """Return `count` actors around a mean, stacked."""

    def around(number: int, leaf: jax.Array) -> jax.Array:
        noise = jax.random.normal(jax.random.fold_in(key, number), (count, *leaf.shape))
        return leaf + spread * noise

    leaves, structure = jax.tree.flatten(mean)
    return jax.tree.unflatten(structure, [around(number, jnp.asarray(leaf)) for number, leaf in enumerate(leaves)])
