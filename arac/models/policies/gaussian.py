"""The diagonal Gaussian at the base of stochastic policies, before flows and tanh."""

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arac.models.mlp import MLP, namespace
from arac.models.shapes import Action, LogProb, Observation

LOG_STD_RANGE = (-20.0, 2.0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Gaussian:
    """The Gaussian `z = mean(s) + sigma * noise`; sigma is a fixed number or a second output of the network."""

    network: MLP
    sigma: float | None = field(metadata={"static": True})  # None: an output of the network

    @staticmethod
    def init(key: jax.Array, sizes: tuple[int, ...], sigma: float | None) -> "Gaussian":
        """Return a new Gaussian. `sizes` run from observation to action; a learned sigma doubles the last."""
        heads = sizes[-1] if sigma is not None else 2 * sizes[-1]
        return Gaussian(MLP.init(key, (*sizes[:-1], heads)), sigma)

    def __call__(self, observation: Observation) -> tuple[Action, Action]:
        """Return the mean and the log standard deviation, both of the action's shape."""
        output = self.network(observation)
        xp = namespace(output)
        if self.sigma is not None:
            return output, xp.full_like(output, math.log(self.sigma))
        mean, log_std = _halves(output)
        return mean, xp.clip(log_std, *LOG_STD_RANGE)


def _halves(output: Float[Array, "*batch both"]) -> tuple[Action, Action]:
    """Split in two: by slices in NumPy, which are fast; in JAX by `split`, whose gradient is one concatenation."""
    half = output.shape[-1] // 2
    if isinstance(output, np.ndarray):
        return output[..., :half], output[..., half:]
    first, second = jnp.split(output, 2, -1)
    return first, second


def log_density(z: Action, mean: Action, log_std: Action) -> LogProb:
    """Return log N(z; mean, std), summed over the action's dimensions."""
    xp = namespace(log_std)
    standard = (z - mean) * xp.exp(-log_std)
    return (-0.5 * standard * standard - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


def kl(mean: Action, log_std: Action, other_mean: Action, other_log_std: Action) -> LogProb:
    """Return KL(N || N') between diagonal Gaussians in closed form."""
    xp = namespace(mean)
    ratio = xp.exp(2 * (log_std - other_log_std))
    distance = (mean - other_mean) * xp.exp(-other_log_std)
    return (other_log_std - log_std + 0.5 * (ratio + distance * distance - 1)).sum(-1)
