"""How the update loops are compiled."""

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, Generic, ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")

# XLA's own matrix products: for our shapes they are faster than YNNPACK's, which it would take (docs/performance.md).
_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": ""}


class compiled(Generic[P, R]):
    """`jax.jit`, with the compiler's options that serve the update loops.

    Which options there are is asked when a loop is first called: asking starts JAX's backend, and an import should not.
    """

    def __init__(self, function: Callable[P, R], *, static: str | tuple[str, ...]) -> None:
        self._function = function
        self._static = static
        self.__doc__ = function.__doc__

    @cached_property
    def _jitted(self) -> Any:
        return jax.jit(self._function, static_argnames=self._static, compiler_options=_known_options())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._jitted(*args, **kwargs)

    def count(self) -> int:
        """How often it was compiled."""
        return self._jitted._cache_size()


@cache
def _known_options() -> dict[str, str] | None:
    """The options, unless this version of XLA has dropped them."""
    try:
        jax.jit(lambda x: x, compiler_options=_OPTIONS).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return None
    return _OPTIONS
