"""Every random number comes from (seed, stream name, counters).

No generator's state is carried from one generation to the next, so nothing random has to be saved: a run that
resumes at generation g derives the same numbers as one that never stopped.
"""

import zlib

import jax
import numpy as np


def key(seed: int, stream: str, *counters: int) -> jax.Array:
    """The JAX key of a stream at the given counters."""
    result = jax.random.key(seed, impl="threefry2x32")
    for number in (zlib.crc32(stream.encode()), *counters):
        result = jax.random.fold_in(result, number)
    return result


def rng(seed: int, stream: str, *counters: int) -> np.random.Generator:
    """The NumPy generator of a stream at the given counters."""
    # NumPy takes no notice of zeros at the end, so the number of counters stands in front of them.
    return np.random.default_rng([seed, zlib.crc32(stream.encode()), len(counters), *counters])
