"""States as named arrays, and their outline: what a state would hold, without computing or allocating it."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

State = TypeVar("State")
# Absent from files of format 1: NumPy arrays, whose first values the outline has.
_SINCE_FORMAT_2 = (".archive.born", ".log_coefficient")


def to_arrays(tree: Any) -> dict[str, np.ndarray]:
    """Every leaf under its path in the tree."""
    return {name: np.asarray(leaf, order="C") for name, leaf in _named(tree)}


def from_arrays(outline: State, arrays: dict[str, np.ndarray]) -> State:
    """Return the tree of `outline`'s shape with the leaves of `arrays`, each of the kind that the outline has.

    Raises:
        ValueError: if names, shapes or types are not the outline's.
    """
    leaves = _named(outline)
    arrays = {**{name: np.asarray(leaf) for name, leaf in leaves if name in _SINCE_FORMAT_2}, **arrays}
    if {name for name, _ in leaves} != set(arrays):
        raise ValueError("it holds other arrays than this configuration has")
    return jax.tree.unflatten(jax.tree.structure(outline), [_as(leaf, arrays[name], name) for name, leaf in leaves])


def outline(make: Callable[[], State]) -> State:
    """The tree that `make` would give, with a `jax.ShapeDtypeStruct` in place of every JAX array."""
    others: list[Any] = []

    def traced() -> Any:
        leaves, structure = jax.tree.flatten(make())
        others.extend([structure, [None if isinstance(leaf, jax.Array) else leaf for leaf in leaves]])
        return [leaf if isinstance(leaf, jax.Array) else None for leaf in leaves]

    shapes = jax.eval_shape(traced)
    structure, rest = others
    pairs = zip(shapes, rest, strict=True)
    return jax.tree.unflatten(structure, [shape if leaf is None else leaf for shape, leaf in pairs])


def size_in_bytes(tree: Any) -> int:
    """What the arrays of a tree take, or those of the tree that an outline is of."""
    return sum(_array(leaf).size * _array(leaf).dtype.itemsize for leaf in jax.tree.leaves(tree))


def not_finite(tree: Any) -> list[str]:
    """The names of the arrays with a number in them that is not finite."""
    return [name for name, array in to_arrays(tree).items() if not np.isfinite(array).all()]


def _named(tree: Any) -> list[tuple[str, Any]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]


def _array(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "dtype") else np.asarray(leaf)


def _as(leaf: Any, array: np.ndarray, name: str) -> Any:
    wanted = _array(leaf)
    if array.shape != wanted.shape or array.dtype != wanted.dtype:
        raise ValueError(f"{name} is {array.dtype}{array.shape}, not {wanted.dtype}{wanted.shape}")
    if isinstance(leaf, bool | int):
        return type(leaf)(array)
    return jnp.asarray(array) if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) else array
