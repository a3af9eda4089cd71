"""The multilayer perceptron that every policy and critic is made of.

It is written against the array API, so one definition serves JAX in the jitted updates and NumPy in the
workers, where a call for a single observation costs a fraction of a jitted one.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
from jaxtyping import Array, Float


def namespace(array: Any) -> Any:
    """`numpy` or `jax.numpy`, whichever the array belongs to."""
    return array.__array_namespace__()


def relu(x: Any) -> Any:
    return namespace(x).where(x > 0, x, 0.0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class MLP:
    """Linear layers with ReLU between them."""

    weights: tuple[Float[Array, "in out"], ...]
    biases: tuple[Float[Array, " out"], ...]

    @staticmethod
    def init(key: jax.Array, sizes: tuple[int, ...]) -> "MLP":
        """Uniform in ±1/sqrt(fan in), for weights and biases alike, as PyTorch's layers start."""
        weights, biases = [], []
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            weight_key, bias_key = jax.random.split(jax.random.fold_in(key, layer))
            bound = fan_in**-0.5
            weights.append(jax.random.uniform(weight_key, (fan_in, fan_out), minval=-bound, maxval=bound))
            biases.append(jax.random.uniform(bias_key, (fan_out,), minval=-bound, maxval=bound))
        return MLP(tuple(weights), tuple(biases))

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = relu(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]
