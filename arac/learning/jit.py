"""Compilation of the update loops, and the cache of compiled code."""

import os
import platform
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")

# XLA's own matrix products: for our shapes they are faster than YNNPACK's, the default (docs/performance.md).
_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": ""}


class compiled(Generic[P, R]):
    """`jax.jit` with compiler options that make the update loops faster.

    The options are checked when a loop is first called: checking starts JAX's backend, which an import should not do.
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

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Lower the function, like the method of `jax.jit`'s functions, to inspect the code to be compiled."""
        return self._jitted.lower(*args, **kwargs)

    def _cache_size(self) -> int:
        """Return the number of compiled versions, under the name that `jax.jit`'s functions use."""
        return self._jitted._cache_size()


@cache
def _known_options() -> dict[str, str] | None:
    """Return the compiler options, or None if this version of XLA does not know them."""
    try:
        jax.jit(lambda x: x, compiler_options=_OPTIONS).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return None
    return _OPTIONS


@contextmanager
def timed_compiling() -> Iterator[Callable[[], float]]:
    """Measure compilation: yield a function that returns the seconds JAX has spent on it since the context began.

    Tracing is left out, because JAX reports it twice where one traced function calls another.
    """
    spent = [0.0]

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event in ("/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration"):
            spent[0] += duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield lambda: spent[0]
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def keep_between_runs() -> None:
    """Share compiled code between processes in the user's cache folder; for commands, not when used as a library.

    A cache folder that the user has configured for JAX is kept.
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home) / "arac" / f"compiled-{_machine():08x}"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # there is no home folder, or it cannot be written
        return
    if os.access(folder, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def _machine() -> int:
    """Return a hash of JAX's version and the processor: a home folder may be shared by different machines."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    kind = {line for line in lines if line.startswith(("model name", "flags"))} or {platform.processor()}
    return zlib.crc32("\n".join([jax.__version__, platform.machine(), *sorted(kind)]).encode())
