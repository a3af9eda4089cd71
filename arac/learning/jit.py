"""How the update loops are compiled, and where what was compiled is kept."""

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

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """As `jax.jit` has it: for a look at what is compiled."""
        return self._jitted.lower(*args, **kwargs)

    def _cache_size(self) -> int:
        """How often it was compiled; JAX calls it so."""
        return self._jitted._cache_size()


@cache
def _known_options() -> dict[str, str] | None:
    """The options, unless this version of XLA has dropped them."""
    try:
        jax.jit(lambda x: x, compiler_options=_OPTIONS).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return None
    return _OPTIONS


@contextmanager
def timed_compiling() -> Iterator[Callable[[], float]]:
    """Measure compiling: within it, the function given tells the seconds that JAX has compiled for so far.

    Tracing is left out, because JAX tells of it twice where one traced function calls another.
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
    """Lets this process find what others have compiled, in the user's cache folder; for commands, not for a library.

    A folder that the user has set for JAX, in its own ways, stays.
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
    """A number for what code is compiled for: a home folder may be shared by machines of several kinds."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    kind = {line for line in lines if line.startswith(("model name", "flags"))} or {platform.processor()}
    return zlib.crc32("\n".join([jax.__version__, platform.machine(), *sorted(kind)]).encode())
