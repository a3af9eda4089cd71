"""Operations on populations: a population is one pytree whose leaves have a leading axis over its members."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

Tree = TypeVar("Tree")


def vmap_init(init: Callable[[jax.Array], Tree], key: jax.Array, size: int) -> Tree:
    """Return a population of `size` members, each made by `init` with a different key."""
    return jax.vmap(init)(jax.random.split(key, size))


@jax.jit
def stack(members: Sequence[Tree]) -> Tree:
    """Return the population of these members."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)


@jax.jit
def take(population: Tree, index: Any) -> Tree:
    """Return member `index`, or the sub-population of an array of indices."""
    return jax.tree.map(lambda leaf: leaf[index], population)


@jax.jit
def put(population: Tree, index: Any, members: Tree) -> Tree:
    """Return the population with `members` written at `index`: one member, or several for an array of indices."""
    return jax.tree.map(lambda leaf, new: leaf.at[index].set(new), population, members)


def to_numpy(population: Tree) -> Tree:
    """Return the population with NumPy leaves."""
    return jax.tree.map(np.asarray, population)


def members(population: Tree) -> list[Tree]:
    """Return a list of the members with NumPy leaves, as workers need them."""
    arrays = to_numpy(population)
    size = len(jax.tree.leaves(arrays)[0])
    return [jax.tree.map(lambda leaf, m=member: np.array(leaf[m]), arrays) for member in range(size)]


def top_k(fitness: Float[np.ndarray, " member"], k: int) -> Int[np.ndarray, " k"]:
    """Return the indices of the k fittest, best first; ties go to the lower index and NaN ranks last."""
    return np.argsort(-np.nan_to_num(fitness, nan=-np.inf), kind="stable")[:k]
