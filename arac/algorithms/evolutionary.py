"""What ERL and CERL share: judging individuals, breeding the next ones, and measuring the fittest."""

from typing import Any

import numpy as np

from arac.algorithms.base import Context, Evaluation, evaluate, measure, summary
from arac.algorithms.config import GeneticConfig
from arac.models.policies import DeterministicPolicy
from arac.models.stacked import put, take
from arac.population.evolution import Crossover, Mutation, Plan, bred, plan
from arac.utils.rng import stream_key, stream_rng


def judge(context: Context, individuals: DeterministicPolicy, generation: int, trials: int) -> tuple[np.ndarray, int]:
    """The mean return of each individual over whole episodes, which replay keeps; and how many steps they took."""
    played = context.rollouts.judge(individuals, generation, trials)
    context.replay.extend(episode for episodes in played for episode in episodes)
    fitness = np.array([np.mean([episode.total for episode in episodes]) for episodes in played])
    return fitness, sum(len(episode) for episodes in played for episode in episodes)


def breed(
    context: Context,
    individuals: DeterministicPolicy,
    fitness: np.ndarray,
    generation: int,
    migrants: DeterministicPolicy | None = None,
    migrant_count: int = 0,
) -> tuple[DeterministicPolicy, Plan]:
    """The individuals of the next generation, with learners among them if some migrate."""
    config: GeneticConfig = context.config
    rng = stream_rng(context.seed, "evolution", generation)
    made = plan(
        fitness,
        rng,
        elites=config.elite_count,
        tournament_size=config.tournament_size,
        crossover_probability=config.crossover_probability,
        mutation_probability=config.mutation_probability,
        migrants=migrant_count,
    )
    if len(made.migrants):  # where not all find room, chance decides who does
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
    return bred(individuals, made, stream_key(context.seed, "breeding", generation), mutation, crossing), made


def measure_champion(context: Context, state: Any, fitness: np.ndarray, losses: dict[str, float]) -> Evaluation:
    """The fittest individual of the last generation over fresh episodes; what all were judged by stands beside it."""
    played = evaluate(context, take(state.population, np.array([state.champion])), state.generation - 1)
    return measure(context, state, played, 0, {**losses, **summary(fitness)})
