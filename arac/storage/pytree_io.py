"""States as named arrays, and outlines: a state's structure, shapes and types, without computing or allocating it."""

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Tree = TypeVar("Tree")


def to_arrays(tree: object) -> dict[str, np.ndarray]:
    """Return every leaf as an array, by its path in the tree."""
    return {name: np.asarray(leaf, order="C") for name, leaf in _named(tree)}


def from_arrays(outline: Tree, arrays: dict[str, np.ndarray], optional: Collection[str] = ()) -> Tree:
    """Return a tree with the structure of `outline` and the leaves of `arrays`.

    The NumPy leaves named in `optional` may be missing: the outline holds their initial values.

    Raises:
        ValueError: if names, shapes or types are not the outline's.
    """
    leaves = _named(outline)
    arrays = {**{name: np.asarray(leaf) for name, leaf in leaves if name in optional}, **arrays}
    if {name for name, _ in leaves} != set(arrays):
        raise ValueError("it holds other arrays than this configuration has")
    return jax.tree.unflatten(jax.tree.structure(outline), [_as(leaf, arrays[name], name) for name, leaf in leaves])


def outline(make: Callable[[], Tree]) -> Tree:
    """Return the tree that `make` would return, with a `jax.ShapeDtypeStruct` in place of every JAX array."""
    others: list[Any] = []

    def traced() -> Any:
        leaves, structure = jax.tree.flatten(make())
        others.extend([structure, [None if isinstance(leaf, jax.Array) else leaf for leaf in leaves]])
        return [leaf if isinstance(leaf, jax.Array) else None for leaf in leaves]

    shapes = jax.eval_shape(traced)
    structure, rest = others
    pairs = zip(shapes, rest, strict=True)
    return jax.tree.unflatten(structure, [shape if leaf is None else leaf for shape, leaf in pairs])


def size_in_bytes(tree: object) -> int:
    """Return the size of a tree's arrays; for an outline, the size that they would have."""
    return sum(_array(leaf).size * _array(leaf).dtype.itemsize for leaf in jax.tree.leaves(tree))


def not_finite(tree: object) -> list[str]:
    """Return the names of the arrays that contain a NaN or an infinity."""
    return [name for name, array in to_arrays(tree).items() if not np.isfinite(array).all()]


def _named(tree: object) -> list[tuple[str, Any]]:
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
