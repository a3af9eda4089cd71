"""The genetic operators of ERL and CERL, as pure functions."""

from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from arac.models.stacked import put, take, top_k

Policy = TypeVar("Policy")


class Mutation(NamedTuple):
    """The settings of mutation. Strengths are standard deviations relative to the weight."""

    fraction: float  # share of all weights that change
    strength: float
    super_strength: float
    super_probability: float  # share of the changed weights to which `super_strength` applies
    reset_probability: float  # share of the changed weights that are drawn anew
    reset_scale: float = 1.0  # standard deviation of a weight that is drawn anew
    random_share: bool = False  # change a random share of each layer, up to `fraction`; none in a quarter of them


class Crossover(NamedTuple):
    """The settings of crossover: the limit on draws in a layer, relative to the layer's size."""

    units: float = 2.0
    biases: float = 0.0


class Plan(NamedTuple):
    """The origin of each individual of the next generation. A slot is a place in the population."""

    sources: Int[np.ndarray, " slot"]  # the individual that is copied into the slot
    pairs: Int[np.ndarray, "pair 2"]  # slots that exchange units, one pair after the other
    mutants: Bool[np.ndarray, " slot"]  # the individuals that mutate
    elites: Int[np.ndarray, " elite"]  # the slots that hold the fittest, unchanged, best first
    migrants: Int[np.ndarray, " migrant"]  # the slots that learners are copied into


def plan(
    fitness: Float[np.ndarray, " individual"],
    rng: np.random.Generator,
    *,
    elites: int,
    tournament_size: int,
    crossover_probability: float,
    mutation_probability: float,
    migrants: int = 0,
) -> Plan:
    """Plan one generation of the genetic algorithm of ERL and CERL.

    Tournaments select individuals. Some of the slots that were not selected receive the learners that migrate, some
    copies of the elites, and the rest are crossed from an elite and a selected individual.

    Args:
        fitness: fitness of each individual.
        rng: the source of all random choices.
        elites: number of the fittest individuals that are copied unchanged.
        tournament_size: individuals that compete in a tournament.
        crossover_probability: probability that two selected individuals are crossed.
        mutation_probability: probability that an individual mutates; copies of elites never do.
        migrants: number of learners to copy into the population, if there is room.
    """
    size = len(fitness)
    best = top_k(fitness, elites)
    selected = np.unique([tournament(fitness, rng, tournament_size) for _ in range(size - elites)])
    others = [int(slot) for slot in rng.permutation(np.setdiff1d(np.arange(size), [*selected, *best]))]
    sources = np.arange(size)
    landing = [others.pop(0) for _ in range(min(migrants, len(others)))]
    keepers = np.array([others.pop(0) if others else int(elite) for elite in best], int)
    sources[keepers] = best
    pairs = []
    for first, second in zip(others[0::2], others[1::2], strict=False):
        sources[first], sources[second] = rng.choice(best), rng.choice(selected)
        pairs.append((first, second))
    if len(others) % 2:  # the last has no partner: it becomes a copy of a selected one, crossed with an earlier slot
        sources[others[-1]] = rng.choice(selected)
        pairs += [(others[-1], int(rng.choice(others[:-1])))] if len(others) > 1 else []
    free = [int(slot) for slot in selected if slot not in keepers]
    couples = zip(free[0::2], free[1::2], strict=False)
    pairs += [pair for pair in couples if rng.random() < crossover_probability]
    mutants = rng.random(size) < mutation_probability
    mutants[keepers] = False
    return Plan(sources, np.array(pairs, int).reshape(-1, 2), mutants, keepers, np.array(landing, int))


def tournament(fitness: Float[np.ndarray, " individual"], rng: np.random.Generator, size: int) -> int:
    """Return the fittest of `size` individuals drawn with replacement."""
    drawn = rng.integers(len(fitness), size=size)
    return int(drawn[top_k(fitness[drawn], 1)[0]])


def next_population(
    population: Policy, made: Plan, key: jax.Array, mutation: Mutation, crossing: Crossover = Crossover()
) -> Policy:
    """Return the next generation of a population: copies, crossings and mutants by the plan `made`."""
    size = len(made.sources)
    pairs = np.zeros((size + 1, 2), int)  # padded to a fixed number, so that it compiles once
    pairs[: len(made.pairs)] = made.pairs
    return _next_population(population, made.sources, pairs, len(made.pairs), made.mutants, key, mutation, crossing)


@partial(jax.jit, static_argnames=("mutation", "crossing"))
def _next_population(
    population: Any,
    sources: Int[Array, " slot"],
    pairs: Int[Array, "padded 2"],
    pair_count: int,
    mutants: Bool[Array, " slot"],
    key: jax.Array,
    mutation: Mutation,
    crossing: Crossover,
) -> Any:
    cross_key, mutation_key = jax.random.split(key)

    def cross(number: int, population: Any) -> Any:
        first, second = pairs[number, 0], pairs[number, 1]
        key = jax.random.fold_in(cross_key, number)
        new_first, new_second = crossover(key, take(population, first), take(population, second), crossing)
        return put(put(population, first, new_first), second, new_second)

    crossed = jax.lax.fori_loop(0, pair_count, cross, take(population, sources))
    mutated = jax.vmap(partial(mutate, mutation=mutation))(jax.random.split(mutation_key, len(sources)), crossed)

    def chosen(before: Array, after: Array) -> Array:
        return jnp.where(mutants.reshape(-1, *[1] * (before.ndim - 1)), after, before)

    return jax.tree.map(chosen, crossed, mutated)


def crossover(
    key: jax.Array, first: Policy, second: Policy, crossing: Crossover = Crossover()
) -> tuple[Policy, Policy]:
    """Return two individuals after crossover: in each layer, randomly drawn units of one overwrite the other's.

    A unit is a column of weights. Drawing it again has no effect, since both individuals have it after the first copy.
    """
    leaves, structure = jax.tree.flatten(first)
    others = jax.tree.leaves(second)
    pairs = [
        _crossed(jax.random.fold_in(key, number), one, other, crossing)
        for number, (one, other) in enumerate(zip(leaves, others, strict=True))
    ]
    return tuple(jax.tree.unflatten(structure, [pair[side] for pair in pairs]) for side in (0, 1))


def _crossed(key: jax.Array, one: Array, other: Array, crossing: Crossover) -> tuple[Array, Array]:
    units = one.shape[-1]
    most = int((crossing.units if one.ndim == 2 else crossing.biases) * units + 1e-9)
    if most == 0:
        return one, other
    count_key, unit_key, coin_key = jax.random.split(key, 3)
    events = jax.random.randint(unit_key, (most,), 0, units)
    happens = jnp.arange(most) < jax.random.randint(count_key, (), 0, most)
    drawn = jnp.zeros(units, bool).at[jnp.where(happens, events, units)].set(True, mode="drop")
    to_first = jax.random.bernoulli(coin_key, shape=(units,))
    return jnp.where(drawn & to_first, other, one), jnp.where(drawn & ~to_first, one, other)


def mutate(key: jax.Array, individual: Policy, mutation: Mutation) -> Policy:
    """Return the individual with a share of its weights changed: most a little, some a lot, some drawn anew.

    Biases and norms are kept.
    """
    leaves, structure = jax.tree.flatten(individual)
    changed = [_mutated(jax.random.fold_in(key, number), leaf, mutation) for number, leaf in enumerate(leaves)]
    return jax.tree.unflatten(structure, changed)


def _mutated(key: jax.Array, weight: Array, mutation: Mutation) -> Array:
    if weight.ndim != 2:
        return weight
    where_key, kind_key, noise_key = jax.random.split(key, 3)
    changes = jax.random.bernoulli(where_key, _share(where_key, mutation), weight.shape)
    kind = jax.random.uniform(kind_key, weight.shape)
    noise = jax.random.normal(noise_key, weight.shape)
    is_super = kind < mutation.super_probability
    is_reset = ~is_super & (kind < mutation.super_probability + mutation.reset_probability)
    strength = jnp.where(is_super, mutation.super_strength, mutation.strength)
    new = jnp.where(is_reset, mutation.reset_scale * noise, weight * (1 + strength * noise))
    return jnp.where(changes, jnp.clip(new, -1e6, 1e6), weight)


def _share(key: jax.Array, mutation: Mutation) -> Any:
    """Return the share of a layer's weights that changes.

    With `random_share`, as in the authors' code, it is 0 with probability 1/4 and else uniform up to the fraction.
    """
    if not mutation.random_share:
        return mutation.fraction
    share_key, happens_key = jax.random.split(jax.random.fold_in(key, 0))
    return mutation.fraction * jax.random.uniform(share_key) * jax.random.bernoulli(happens_key, 0.75)
