"""The archive: earlier policies, kept diverse in fitness by niching (Algorithm 3 and Section 3.1 of the paper)."""

from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from arac.models.policies import Policy
from arac.models.stacked import put, take

Strategy: TypeAlias = Literal["proactive", "reactive"]
Targets: TypeAlias = Literal["archive", "members", "both"]
FeltBy: TypeAlias = Literal["non_elites", "all"]


@partial(jax.jit, static_argnums=1)
def _empty_slots(like: Policy, capacity: int) -> Policy:
    return jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), like)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Archive:
    """Up to `capacity` policies with their fitness. Immutable: `add` returns a new archive."""

    policies: Policy  # stacked; slots from `size` on are empty
    fitness: Float[np.ndarray, " slot"]
    born: Int[np.ndarray, " slot"]  # environment steps at which each was added
    size: int

    @staticmethod
    def empty(like: Policy, capacity: int) -> "Archive":
        """Return an empty archive for policies with the shapes of `like`, a single policy."""
        return Archive(_empty_slots(like, capacity), np.zeros(capacity), np.zeros(capacity, np.int64), 0)

    @property
    def capacity(self) -> int:
        """The number of slots."""
        return len(self.fitness)

    def add(
        self, population: Policy, fitness: Float[np.ndarray, " member"], env_steps: int, rng: np.random.Generator
    ) -> "Archive":
        """Return the archive with the members of a population added.

        Members take free slots while there are any; then each replaces a random policy of the nearest niche. A member
        whose fitness is not finite is left out: it belongs to no niche.
        """
        newcomers = np.flatnonzero(np.isfinite(fitness))
        room = min(self.capacity - self.size, len(newcomers))
        slots = np.arange(self.size, self.size + room)
        filled = self._with(slots, population, fitness, newcomers[:room], env_steps)
        latecomers = newcomers[room:]
        slots = filled._niche_slots(fitness[latecomers], rng)
        return filled._with(slots, population, fitness, latecomers, env_steps)

    def _niche_slots(self, fitness: Float[np.ndarray, " new"], rng: np.random.Generator) -> Int[np.ndarray, " new"]:
        low, high = two_means(self.fitness)
        centres = self.fitness[low].mean(), self.fitness[high].mean() if len(high) else np.inf
        niches = [low if abs(f - centres[0]) <= abs(f - centres[1]) else high for f in fitness]
        return np.array([rng.choice(niche) for niche in niches], int)

    def _with(
        self, slots: np.ndarray, population: Policy, fitness: np.ndarray, members: np.ndarray, env_steps: int
    ) -> "Archive":
        """Return the archive with `members` written into `slots`; of two members for one slot the later one is kept."""
        newest = {int(slot): int(member) for slot, member in zip(slots, members, strict=True)}
        if not newest:
            return self
        where, who = np.array(list(newest)), np.array(list(newest.values()))
        new_fitness, born = self.fitness.copy(), self.born.copy()
        new_fitness[where], born[where] = fitness[who], env_steps
        policies = put(self.policies, where, take(population, who))
        return Archive(policies, new_fitness, born, max(self.size, int(where.max()) + 1))

    def sample(self, n: int, rng: np.random.Generator) -> Int[np.ndarray, " slot"]:
        """Draw n different slots uniformly; all of them if there are fewer."""
        return rng.choice(self.size, size=min(n, self.size), replace=False)


def two_means(values: Float[np.ndarray, " value"]) -> tuple[Int[np.ndarray, " low"], Int[np.ndarray, " high"]]:
    """Return the indices of the low and the high cluster of exact two-means in one dimension.

    The best split of numbers on a line cuts their sorted order, so all cuts are tried. Equal values are never
    separated: if all values are equal, the high cluster is empty.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    cuts = np.flatnonzero(np.diff(ordered) > 0) + 1
    if len(cuts) == 0:
        return order, order[:0]

    def spread(part: Float[np.ndarray, " value"]) -> float:
        return float(((part - part.mean()) ** 2).sum())

    cut = min(cuts, key=lambda c: spread(ordered[:c]) + spread(ordered[c:]))
    return order[:cut], order[cut:]


def betas(fitness: Float[np.ndarray, " policy"], strategy: Strategy) -> Float[np.ndarray, " policy"]:
    """Return the coefficients beta of sampled policies: positive repels, negative attracts.

    With x the fitness scaled to [0, 1], proactive is `1 - 2x` (Eq. 8, its bracket placed as the text requires:
    docs/deviations.md) and reactive is `1 - x` (Eq. 9). If all policies have the same fitness, x is undefined:
    proactive then neither attracts nor repels, and reactive repels.
    """
    span = np.ptp(fitness)
    if span == 0:
        return np.full(len(fitness), 0.0 if strategy == "proactive" else 1.0)
    x = (fitness - fitness.min()) / span
    return 1 - 2 * x if strategy == "proactive" else 1 - x
