"""The cross-entropy method over policies (CEM-RL), as pure functions."""

from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Policy = TypeVar("Policy")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Distribution(Generic[Policy]):
    """A Gaussian over policies, with a variance for each parameter."""

    mean: Policy
    variance: Policy
    damping: Float[Array, ""]  # variance added in the last update


@partial(jax.jit, static_argnames="count")
def ask(distribution: Distribution[Policy], key: jax.Array, count: int) -> Policy:
    """Draw `count` policies, an even number, stacked; i and i + count / 2 lie symmetrically about the mean."""
    means, structure = jax.tree.flatten(distribution.mean)
    variances = jax.tree.leaves(distribution.variance)

    def drawn(number: int, mean: Array, variance: Array) -> Array:
        half = jax.random.normal(jax.random.fold_in(key, number), (count // 2, *mean.shape))
        return mean + jnp.sqrt(variance) * jnp.concatenate([half, -half])

    both = zip(means, variances, strict=True)
    return jax.tree.unflatten(structure, [drawn(number, *pair) for number, pair in enumerate(both)])


@partial(jax.jit, static_argnames=("decay", "final_damping"))
def tell(
    distribution: Distribution[Policy], parents: Policy, *, decay: float, final_damping: float
) -> Distribution[Policy]:
    """Return the distribution updated from its fittest samples.

    The variance is taken around the old mean and, as in CEM-RL, divided by the number of parents once more although
    the weights add up to one.

    Args:
        distribution: the distribution that the samples were drawn from.
        parents: the fittest samples, stacked, best first.
        decay: share of the damping that is kept in each update.
        final_damping: value that the damping decays to.
    """
    count = len(jax.tree.leaves(parents)[0])
    weights = cem_weights(count)
    damping = decay * distribution.damping + (1 - decay) * final_damping

    def weighted(stacked: Array) -> Array:
        return jnp.tensordot(weights, stacked, 1)

    def spread(stacked: Array, old_mean: Array) -> Array:
        return weighted((stacked - old_mean) ** 2) / count + damping

    return Distribution(
        jax.tree.map(weighted, parents), jax.tree.map(spread, parents, distribution.mean), jnp.float32(damping)
    )


def cem_weights(parents: int) -> Float[Array, " parent"]:
    """Return the weights of the parents by rank: log((1 + parents) / rank), normalised to sum to one."""
    raw = jnp.log(1 + parents) - jnp.log(jnp.arange(1, parents + 1))
    return raw / raw.sum()
