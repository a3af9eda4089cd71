"""Agents with random parameters, for which nothing is compiled."""

import jax
import jax.numpy as jnp
import numpy as np

from arac import envs
from arac.agents.classes import AGENTS
from arac.storage.run_spec import RunSpec


def drawn(name: str, env_id: str = "InvertedPendulum-v5", **env_settings):
    """Return an agent of an algorithm with all parameters drawn at random."""
    kind, rng = AGENTS[name], np.random.default_rng(0)
    config = kind.algorithm.config(hidden_size=16, workers=0)
    description = RunSpec(kind.algorithm, envs.check(env_id, **env_settings), 0, config)

    def numbers(leaf):
        is_outline = isinstance(leaf, jax.ShapeDtypeStruct)
        return jnp.asarray(rng.normal(0, 0.5, leaf.shape), leaf.dtype) if is_outline else leaf

    return kind._made(description, jax.tree.map(numbers, description.outline()))
