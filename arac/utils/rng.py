"""Random numbers, each of which is determined by seed, stream name and counters.

No generator's state is carried from one generation to the next, so nothing random has to be saved: a run that
resumes at generation g derives the same numbers as one that never stopped.
"""

import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import jax

_MOST = 8  # numbers that a key is made of, at most, in addition to the seed


def stream_key(seed: int, stream: str, *counters: int) -> "jax.Array":
    """Return the JAX key of a stream at the given counters."""
    import jax  # here, because processes that only act need no keys and start sooner without JAX

    numbers = np.zeros(_MOST, np.uint32)
    numbers[: 1 + len(counters)] = zlib.crc32(stream.encode()), *counters
    return _folding()(jax.random.key(seed, impl="threefry2x32"), numbers, 1 + len(counters))


@cache
def _folding() -> Any:
    """Return a function that folds numbers one after the other into a key, in one call that compiles once."""
    import jax

    @jax.jit
    def folded(key: jax.Array, numbers: np.ndarray, count: int) -> jax.Array:
        return jax.lax.fori_loop(0, count, lambda i, folded: jax.random.fold_in(folded, numbers[i]), key)

    return folded


def stream_rng(seed: int, stream: str, *counters: int) -> np.random.Generator:
    """Return the NumPy generator of a stream at the given counters."""
    # NumPy ignores trailing zeros, so the number of counters precedes them.
    return np.random.default_rng([seed, zlib.crc32(stream.encode()), len(counters), *counters])
