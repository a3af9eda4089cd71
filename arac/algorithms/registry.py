"""The registry of algorithms: each has a config, an initial state and a generation."""

import re
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from arac.algorithms import arac, cem_td3, cerl, erl, sac, td3
from arac.algorithms.arac import ARACConfig
from arac.algorithms.base import Evaluation, State
from arac.algorithms.cem_td3 import CEMTD3Config
from arac.algorithms.cerl import CERLConfig
from arac.algorithms.config import Config, SoftConfig
from arac.algorithms.erl import ERLConfig
from arac.algorithms.sac import SACConfig, SACNFConfig
from arac.algorithms.td3 import TD3Config
from arac.errors import UserError
from arac.population.archive import Archive
from arac.utils.text import suggestion


class Look(NamedTuple):
    """The style of a curve in all figures: its colours on light and on dark backgrounds, and its marker.

    The algorithms' colours were chosen by search: as far apart as possible for people who cannot see red or green, and
    with a contrast of 3:1 to the background.
    """

    light: str
    dark: str
    marker: str


class Algorithm(NamedTuple):
    """An entry of the registry: the description of an algorithm that commands, sweeps, reports and pages use."""

    name: str
    label: str  # in tables and figures; without punctuation also the name of the Python class
    title: str
    config: type[Config]
    init: Callable[..., State]  # (config, env, seed) -> state; or (config, env, seed, policy) if it takes one
    generation: Callable[..., tuple[State, Evaluation | None]]  # (context, state) -> (state, evaluation)
    look: Look | None = None  # None: the next unused style
    # From a state: the indices of the members that ranked best, and the archive of policies, if there is one.
    elites: Callable[..., np.ndarray] = lambda state: np.array([state.champion])
    archive: Callable[..., Archive | None] = lambda state: None

    @property
    def class_name(self) -> str:
        """The name of the algorithm's Python class."""
        return re.sub(r"\W", "", self.label)

    @property
    def takes_policy(self) -> bool:
        """True if the algorithm can train a user's policy, as the soft actor-critics can."""
        return issubclass(self.config, SoftConfig)


# In the order of tables and legends, which is the paper's.
ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "arac", "ARAC", "Attraction-Repulsion Actor-Critic", ARACConfig, arac.init, arac.generation,
            Look("#f65400", "#ec7f68", "o"), attrgetter("elites"), attrgetter("archive"),
        ),
        Algorithm(
            "cem_td3", "CEM-TD3", "CEM-TD3", CEMTD3Config, cem_td3.init, cem_td3.generation,
            Look("#14a37f", "#3af080", "s"),
        ),
        Algorithm(
            "cerl", "CERL", "Collaborative Evolutionary Reinforcement Learning", CERLConfig, cerl.init, cerl.generation,
            Look("#5c5c60", "#e4e8f2", "X"),
        ),
        Algorithm(
            "erl", "ERL", "Evolutionary Reinforcement Learning", ERLConfig, erl.init, erl.generation,
            Look("#3b2400", "#8a6e00", "D"),
        ),
        Algorithm(
            "sac_nf", "SAC-NF", "Soft Actor-Critic with a radial-flow policy", SACNFConfig, sac.init, sac.generation,
            Look("#0042c4", "#575ae8", "^"),
        ),
        Algorithm(
            "sac", "SAC", "Soft Actor-Critic", SACConfig, sac.init, sac.generation, Look("#0096fd", "#77a9da", "v")
        ),
        Algorithm(
            "td3", "TD3", "Twin Delayed DDPG", TD3Config, td3.init, td3.generation, Look("#600070", "#bb2895", "P")
        ),
    )
}  # fmt: skip


def preset_names() -> tuple[str, ...]:
    """Return the names of all presets; `Config.named_presets` has those of one algorithm."""
    named = [name for algorithm in ALGORITHMS.values() for name in algorithm.config.named_presets]
    return ("paper", *dict.fromkeys(named), "none")


def find(name: str) -> Algorithm:
    """Return the algorithm of that name.

    Raises:
        UserError: if there is no such algorithm.
    """
    if name not in ALGORITHMS:
        raise UserError(
            f"There is no algorithm {name!r}.{suggestion(name, ALGORITHMS)} Known: {', '.join(ALGORITHMS)}."
        )
    return ALGORITHMS[name]
