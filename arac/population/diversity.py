"""Measures of how differently the members of a population behave."""

import jax
import numpy as np
from jaxtyping import Array, Float

from arac.learning.losses import sampled_kl
from arac.models.policies import Policy


@jax.jit
def pairwise_kl(
    population: Policy, observation: Float[Array, "batch obs"], noise: Float[Array, "batch action"]
) -> Float[Array, "member member"]:
    """Return KL(row || column) between the members' whole policies, averaged over the observations."""

    def row(policy: Policy) -> Float[Array, " member"]:
        return jax.vmap(lambda other: sampled_kl(policy, other, observation, noise))(population)

    return jax.vmap(row)(population)


def mean_kl(matrix: Float[np.ndarray, "member member"]) -> float | None:
    """Return the mean over pairs of different members, or None if there is only one member."""
    members = len(matrix)
    return float(matrix[~np.eye(members, dtype=bool)].mean()) if members > 1 else None
