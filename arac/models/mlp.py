"""The multilayer perceptron that every policy and critic is made of.

By the array API it runs in JAX for jitted updates, and in NumPy for workers, which is faster for one observation.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def namespace(array: Any) -> Any:
    """Return the namespace of an array: `numpy` or `jax.numpy`."""
    return array.__array_namespace__()


def relu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return max(x, 0)."""
    # In NumPy `where` is slow; in JAX the gradient of `maximum` is slow.
    return np.maximum(x, 0.0) if isinstance(x, np.ndarray) else jnp.where(x > 0, x, 0.0)


def tanh(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return tanh(x)."""
    return namespace(x).tanh(x)


def leaky_relu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return x where it is positive, else 0.01 x."""
    return namespace(x).where(x > 0, x, 0.01 * x)


def elu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return x where it is positive, else exp(x) - 1."""
    xp = namespace(x)
    return xp.where(x > 0, x, xp.expm1(xp.minimum(x, 0.0)))  # the branch not taken must be finite too


def matmul(x: Float[Array, "*batch in"], weight: Float[Array, "in out"]) -> Float[Array, "*batch out"]:
    """Return `x @ weight`; for JAX mini-batches, with a gradient that is computed faster."""
    return _product(x, weight) if x.ndim == 2 and not isinstance(x, np.ndarray) else x @ weight


@jax.custom_vjp
def _product(x: Float[Array, "batch in"], weight: Float[Array, "in out"]) -> Float[Array, "batch out"]:
    return x @ weight


def _product_forward(x: Float[Array, "batch in"], weight: Float[Array, "in out"]) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight, (x, weight)


def _product_backward(saved: tuple[Array, Array], gradient: Float[Array, "batch out"]) -> tuple[Array, Array]:
    """Return the gradients of `x` and `weight`.

    The barriers keep some transposes out of the products where that was measured to be faster: rows of 256 numbers fall
    onto the same cache lines when they are read by columns, and a product with few columns is faster as its transpose.
    """
    x, weight = saved
    fan_in, fan_out = weight.shape
    barrier = jax.lax.optimization_barrier
    crosswise = barrier(x.T) if fan_in % 64 == 0 else x.T
    for_weight = barrier(gradient.T @ x).T if fan_out < 64 else crosswise @ gradient
    return gradient @ barrier(weight.T), for_weight


_product.defvjp(_product_forward, _product_backward)

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": relu, "tanh": tanh, "leaky_relu": leaky_relu, "elu": elu}


class LayerStyle(NamedTuple):
    """The activation and the layer norm between linear layers."""

    activation: Literal["relu", "tanh", "leaky_relu", "elu"] = "relu"
    norm: Literal["none", "before", "after"] = "none"  # a layer norm, before or after the activation


def tapered(hidden_size: int) -> tuple[int, int]:
    """Return the sizes of two hidden layers: `hidden_size` and three quarters of it, such as 400 and 300."""
    return hidden_size, max(hidden_size * 3 // 4, 1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class LayerNorm:
    """A layer norm with learned scale and shift."""

    scale: Float[Array, " size"]
    shift: Float[Array, " size"]

    @staticmethod
    def init(size: int) -> "LayerNorm":
        """Return a layer norm with scale 1 and shift 0."""
        return LayerNorm(jnp.ones(size), jnp.zeros(size))

    def __call__(self, x: Float[Array, "*batch size"]) -> Float[Array, "*batch size"]:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return self.scale * centred / namespace(x).sqrt(variance + 1e-5) + self.shift


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class MLP:
    """Linear layers with an activation between them, and a layer norm if the style has one."""

    weights: tuple[Float[Array, "in out"], ...]
    biases: tuple[Float[Array, " out"], ...]
    norms: tuple[LayerNorm, ...] = ()  # of the hidden layers
    style: LayerStyle = field(default=LayerStyle(), metadata={"static": True})

    @staticmethod
    @partial(jax.jit, static_argnums=(1, 2))
    def init(key: jax.Array, sizes: tuple[int, ...], style: LayerStyle = LayerStyle()) -> "MLP":
        """Draw weights and biases uniformly from ±1/sqrt(fan in), as PyTorch does for linear layers."""
        weights, biases = [], []
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            weight_key, bias_key = jax.random.split(jax.random.fold_in(key, layer))
            bound = fan_in**-0.5
            weights.append(jax.random.uniform(weight_key, (fan_in, fan_out), minval=-bound, maxval=bound))
            biases.append(jax.random.uniform(bias_key, (fan_out,), minval=-bound, maxval=bound))
        norms = () if style.norm == "none" else tuple(LayerNorm.init(size) for size in sizes[1:-1])
        return MLP(tuple(weights), tuple(biases), norms, style)

    def with_last_scaled(self, factor: float) -> "MLP":
        """Return the network with the weights and biases of its last layer multiplied by `factor`."""
        *weights, weight = self.weights
        *biases, bias = self.biases
        return replace(self, weights=(*weights, factor * weight), biases=(*biases, factor * bias))

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        return self.onward(matmul(x, self.weights[0]) + self.biases[0], self.weights[1:], self.biases[1:])

    def onward(
        self, x: Float[Array, "*batch hidden"], weights: tuple[Array, ...], biases: tuple[Array, ...]
    ) -> Float[Array, "*batch out"]:
        """Apply the remaining layers, `weights` and `biases`, to the output `x` of the first linear layer."""
        activation = _ACTIVATIONS[self.style.activation]
        for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            if self.style.norm == "before":
                x = self.norms[layer](x)
            x = activation(x)
            if self.style.norm == "after":
                x = self.norms[layer](x)
            x = matmul(x, weight) + bias
        return x
