"""The parts that ERL and CERL share: evaluating individuals, breeding the next ones, and measuring the fittest."""

from dataclasses import dataclass
from typing import Annotated, Literal

import jax
import numpy as np
from jaxtyping import Float

from arac.algorithms.base import Context
from arac.algorithms.config import Config
from arac.errors import UserError
from arac.models.policies import DeterministicPolicy
from arac.models.stacked import put, take
from arac.population.genetic import Crossover, Mutation, Plan, next_population, plan
from arac.utils.rng import stream_key, stream_rng
from arac.utils.validation import Bounds, NonNegative, Share


@dataclass(frozen=True, kw_only=True)
class GeneticConfig(Config):
    """The settings that ERL and CERL share."""

    population_size: Annotated[int, Bounds(1, 10_000)] = 10
    """Individuals that evolve."""
    elite_fraction: Share = 0.1
    """Share of the individuals that pass on unchanged."""
    tournament_size: Annotated[int, Bounds(1, 10_000)] = 3
    """Individuals that compete for a place among the parents."""
    crossover_probability: Share = 0.0
    """Probability that two selected parents exchange units."""
    crossover_units: Annotated[float, Bounds(0, 100)] = 2.0
    """Units that a crossover draws in a layer, at most, relative to how many there are; 2 exchanges 57 % on average."""
    crossover_biases: Annotated[float, Bounds(0, 100)] = 0.0
    """Biases and norms that a crossover draws in a layer, at most, relative to how many there are."""
    mutation_probability: Share = 0.9
    """Probability that an individual mutates."""
    mutation_strength: NonNegative = 0.1
    """Standard deviation of a mutation, relative to the weight."""
    mutation_fraction: Share = 0.1
    """Share of the weights that a mutation changes."""
    mutation_share: Literal["fixed", "random"] = "fixed"
    """fixed: a mutation changes `mutation_fraction` of the weights; random: of each layer a random share up to that,
    and none in a quarter of the layers, as the authors' code does."""
    super_mutation_strength: NonNegative = 10.0
    """Standard deviation of a super-mutation, relative to the weight."""
    super_mutation_probability: Share = 0.05
    """Share of the changed weights that get a super-mutation."""
    reset_probability: Share = 0.05
    """Share of the changed weights that are drawn anew."""
    reset_scale: NonNegative = 1.0
    """Standard deviation of weights that are drawn anew."""
    learning_rate: NonNegative = 5e-5
    """Adam's learning rate, for actors."""
    critic_learning_rate: NonNegative = 5e-4
    """Adam's learning rate, for the critic."""

    @property
    def elite_count(self) -> int:
        return max(int(self.elite_fraction * self.population_size + 1e-9), 1)  # 0.29 of 100 is 29 despite rounding

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elite_count >= self.population_size:
            raise UserError(
                f"elite_fraction ({self.elite_fraction}) of population_size ({self.population_size}) leaves no "
                "individual to evolve: lower the one or raise the other.",
                fields=("elite_fraction", "population_size"),
            )
        if self.super_mutation_probability + self.reset_probability > 1:
            raise UserError(
                f"super_mutation_probability ({self.super_mutation_probability}) and reset_probability "
                f"({self.reset_probability}) must not exceed 1 together.",
                fields=("super_mutation_probability", "reset_probability"),
            )


def evaluate_fitness(
    context: Context[GeneticConfig], individuals: DeterministicPolicy, generation: int, trials: int
) -> tuple[Float[np.ndarray, " individual"], int]:
    """Evaluate each individual in `trials` episodes, which are added to replay.

    Returns:
        The mean return of each individual, and the number of environment steps.
    """
    played = context.rollouts.evaluate_fitness(individuals, generation, trials)
    context.replay.extend(episode for episodes in played for episode in episodes)
    fitness = np.array([np.mean([episode.total for episode in episodes]) for episodes in played])
    return fitness, sum(len(episode) for episodes in played for episode in episodes)


def breed(
    context: Context[GeneticConfig],
    individuals: DeterministicPolicy,
    fitness: Float[np.ndarray, " individual"],
    generation: int,
    migrants: DeterministicPolicy | None = None,
) -> tuple[DeterministicPolicy, Plan]:
    """Breed the individuals of the next generation.

    Args:
        context: config and seed of the run.
        individuals: the current individuals, stacked.
        fitness: fitness of each individual.
        generation: number of the generation.
        migrants: learners that may be copied into the population, stacked; None if none migrate.

    Returns:
        The new individuals, and the plan that they were made by.
    """
    config = context.config
    rng = stream_rng(context.seed, "evolution", generation)
    migrant_count = 0 if migrants is None else len(jax.tree.leaves(migrants)[0])
    made = plan(
        fitness,
        rng,
        elites=config.elite_count,
        tournament_size=config.tournament_size,
        crossover_probability=config.crossover_probability,
        mutation_probability=config.mutation_probability,
        migrants=migrant_count,
    )
    if len(made.migrants):  # if there is not room for all, a random subset migrates
        moving = rng.permutation(migrant_count)[: len(made.migrants)]
        individuals = put(individuals, made.migrants, take(migrants, moving))
    mutation = Mutation(
        fraction=config.mutation_fraction,
        strength=config.mutation_strength,
        super_strength=config.super_mutation_strength,
        super_probability=config.super_mutation_probability,
        reset_probability=config.reset_probability,
        reset_scale=config.reset_scale,
        random_share=config.mutation_share == "random",
    )
    crossing = Crossover(config.crossover_units, config.crossover_biases)
    key = stream_key(context.seed, "breeding", generation)
    return next_population(individuals, made, key, mutation, crossing), made
