"""The matrix products of a computation: read off its graph, and run alone."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.interpreters import partial_eval

from arac.learning.jit import compiled
from benchmarks.speed.machine import by_turns


class Product(NamedTuple):
    """`batch` products of (rows, inner) by (inner, columns)."""

    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.rows * self.inner * self.columns

    @property
    def mirrored(self) -> "Product":
        """The same product of the transposed matrices."""
        return self._replace(rows=self.columns, columns=self.rows)


def products_of(step: Callable[[], Any]) -> list[Product]:
    """Return the matrix products that a computation cannot avoid.

    Products that its results do not depend on are left out, and repeated products of the same values count once: XLA
    does not compute the former, and computes the latter once.
    """
    products: dict[int, Product] = {}

    def walk(jaxpr: Any, arguments: list[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))

        def value(atom: Any) -> Any:
            return str(atom) if hasattr(atom, "val") else values.setdefault(atom, (id(jaxpr), str(atom)))

        for equation in jaxpr.eqns:
            inputs = [value(atom) for atom in equation.invars]
            inner = next((p for p in map(_graph, equation.params.values()) if p is not None), None)
            if inner is not None and not equation.primitive.name.startswith("scatter"):  # its inner graph is only a sum
                outputs = walk(inner, inputs)
            else:
                meaning = hash((equation.primitive.name, str(equation.params), tuple(inputs)))
                outputs = [(meaning, place) for place in range(len(equation.outvars))]
                if equation.primitive.name == "dot_general":
                    products.setdefault(meaning, _sizes(equation))
            values.update(zip(equation.outvars, outputs, strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    graph = jax.make_jaxpr(step)().jaxpr
    graph, _ = partial_eval.dce_jaxpr(graph, [True] * len(graph.outvars), instantiate=True)
    walk(graph, list(map(str, graph.invars)))
    return list(products.values())


def _graph(parameter: Any) -> Any:
    """Return the graph inside an equation's parameter, or None if it has none."""
    inner = getattr(parameter, "jaxpr", parameter)
    return inner if hasattr(inner, "eqns") else None


def _sizes(equation: Any) -> Product:
    (contracted, _), (batch, _) = equation.params["dimension_numbers"]
    left, right = (var.aval.shape for var in equation.invars)
    batches, inner = (int(np.prod([left[axis] for axis in axes])) for axes in (batch, contracted))
    return Product(batches, int(np.prod(left)) // (batches * inner), inner, int(np.prod(right)) // (batches * inner))


def products_loop(products: list[Product]) -> Callable[[int], Any]:
    """Return a jitted loop that computes these products and nothing else, n times, each in its fastest layout."""
    counted = Counter(min(product, product.mirrored) for product in products)
    return _loop([_faster(product) for product in counted.elements()])


@cache
def _faster(product: Product) -> Product:
    """Return the product or its mirrored form, whichever is computed faster."""
    both = product, product.mirrored
    loops = [_loop([one]) for one in both]
    times = by_turns([lambda loop=loop: loop(50) for loop in loops], 5)  # type: ignore[misc]
    return both[int(np.argmin(times))]


def _loop(products: list[Product]) -> Callable[[int], Any]:
    key = jax.random.key(1)
    lefts = [jax.random.normal(key, (batch, rows, inner)) for batch, rows, inner, _ in products]
    rights = [jax.random.normal(key, (batch, inner, columns)) for batch, _, inner, columns in products]

    def once(_: int, lefts: list[jax.Array]) -> list[jax.Array]:
        following = []
        for left, right in zip(lefts, rights, strict=True):
            # The barrier keeps XLA from computing only the one number that is used, to make the next round differ.
            result = jax.lax.optimization_barrier(left @ right)
            following.append(left.at[0, 0, 0].set(1e-3 * result[0, 0, 0]))
        return following

    run = compiled(lambda n, lefts: jax.lax.fori_loop(0, n, once, lefts), static=())
    return lambda n: run(n, lefts)
