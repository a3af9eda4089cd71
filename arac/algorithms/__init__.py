"""The systems: each a config, a first state and a generation."""

from collections.abc import Callable
from typing import Any, NamedTuple

from arac.algorithms import arac, sac
from arac.config import ARACConfig, Config, SACConfig, SACNFConfig
from arac.envs import suggestion
from arac.errors import UserError


class Algorithm(NamedTuple):
    """A state has `population`, `champion`, `generation` and `env_steps`, and is a pytree."""

    name: str
    title: str
    config: type[Config]
    init: Callable[..., Any]  # (config, env, seed) -> state
    generation: Callable[..., Any]  # (context, state) -> (state, evaluation or None)


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("arac", "Attraction-Repulsion Actor-Critic", ARACConfig, arac.init, arac.generation),
        Algorithm("sac", "Soft Actor-Critic", SACConfig, sac.init, sac.generation),
        Algorithm("sac_nf", "Soft Actor-Critic with a radial-flow policy", SACNFConfig, sac.init, sac.generation),
    )
}


def find(name: str) -> Algorithm:
    """The algorithm of that name.

    Raises:
        UserError: if there is none.
    """
    if name not in ALGORITHMS:
        raise UserError(
            f"There is no algorithm {name!r}.{suggestion(name, ALGORITHMS)} Known: {', '.join(ALGORITHMS)}."
        )
    return ALGORITHMS[name]
