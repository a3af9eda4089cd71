"""The diagonal Gaussian that policies stand on, before flows and tanh."""

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arac.models.mlp import MLP, namespace

LOG_STD_RANGE = (-20.0, 2.0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Gaussian:
    """`z = mean(s) + sigma * noise`, with sigma a fixed number or a second head of the network."""

    network: MLP
    sigma: float | None = field(metadata={"static": True})  # None: learned from the state

    @staticmethod
    def init(key: jax.Array, sizes: tuple[int, ...], sigma: float | None) -> "Gaussian":
        """`sizes` runs from the observation to the action; a learned sigma doubles the output."""
        heads = sizes[-1] if sigma is not None else 2 * sizes[-1]
        return Gaussian(MLP.init(key, (*sizes[:-1], heads)), sigma)

    def __call__(self, observation: Float[Array, "*batch obs"]) -> tuple[Any, Any]:
        """Mean and log standard deviation, both of the action's shape (the latter broadcasts if it is fixed)."""
        output = self.network(observation)
        xp = namespace(output)
        if self.sigma is not None:
            return output, xp.full_like(output, math.log(self.sigma))
        mean, log_std = _halves(output)
        return mean, xp.clip(log_std, *LOG_STD_RANGE)


def _halves(output: Any) -> Any:
    """By slices in NumPy, which are quick; by one split in JAX, whose gradient is a plain concatenation."""
    half = output.shape[-1] // 2
    if isinstance(output, np.ndarray):
        return output[..., :half], output[..., half:]
    return jnp.split(output, 2, -1)


def log_density(z: Any, mean: Any, log_std: Any) -> Any:
    """log N(z; mean, std), summed over the action."""
    xp = namespace(log_std)
    standard = (z - mean) * xp.exp(-log_std)
    return (-0.5 * standard * standard - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


def kl(mean: Any, log_std: Any, other_mean: Any, other_log_std: Any) -> Any:
    """KL(N || N') between diagonal Gaussians, in closed form."""
    xp = namespace(mean)
    ratio = xp.exp(2 * (log_std - other_log_std))
    distance = (mean - other_mean) * xp.exp(-other_log_std)
    return (other_log_std - log_std + 0.5 * (ratio + distance * distance - 1)).sum(-1)
