"""The systems: each a config, a first state and a generation."""

from collections.abc import Callable
from typing import Any, NamedTuple

from arac.algorithms import arac, cem_td3, cerl, erl, sac, td3
from arac.algorithms.arac import ARACConfig
from arac.algorithms.cem_td3 import CEMTD3Config
from arac.algorithms.cerl import CERLConfig
from arac.algorithms.config import Config, SoftConfig
from arac.algorithms.erl import ERLConfig
from arac.algorithms.sac import SACConfig, SACNFConfig
from arac.algorithms.td3 import TD3Config
from arac.envs import suggestion
from arac.errors import UserError


class Algorithm(NamedTuple):
    """A state has `population`, `champion`, `generation` and `env_steps`, and is a pytree."""

    name: str
    title: str
    config: type[Config]
    init: Callable[..., Any]  # (config, env, seed) -> state; or (config, env, seed, policy) if it takes one
    generation: Callable[..., Any]  # (context, state) -> (state, evaluation or None)

    @property
    def takes_policy(self) -> bool:
        """Whether it can train a policy of the user's own: the soft actor-critics can."""
        return issubclass(self.config, SoftConfig)


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("arac", "Attraction-Repulsion Actor-Critic", ARACConfig, arac.init, arac.generation),
        Algorithm("sac", "Soft Actor-Critic", SACConfig, sac.init, sac.generation),
        Algorithm("sac_nf", "Soft Actor-Critic with a radial-flow policy", SACNFConfig, sac.init, sac.generation),
        Algorithm("td3", "Twin Delayed DDPG", TD3Config, td3.init, td3.generation),
        Algorithm("cem_td3", "CEM-TD3", CEMTD3Config, cem_td3.init, cem_td3.generation),
        Algorithm("erl", "Evolutionary Reinforcement Learning", ERLConfig, erl.init, erl.generation),
        Algorithm("cerl", "Collaborative Evolutionary Reinforcement Learning", CERLConfig, cerl.init, cerl.generation),
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
