"""ARAC: the Attraction-Repulsion Actor-Critic, and the systems it is compared with."""

from importlib.metadata import version

from arac.agent import ARAC, CEMTD3, CERL, ERL, SAC, SACNF, TD3, Agent, Score, load, resume
from arac.errors import EnvironmentFailure, StorageFailure, UserError
from arac.sweeps import sweep

__version__ = version("arac-rl")

__all__ = [
    "ARAC",
    "CEMTD3",
    "CERL",
    "ERL",
    "SAC",
    "SACNF",
    "TD3",
    "Agent",
    "EnvironmentFailure",
    "Score",
    "StorageFailure",
    "UserError",
    "load",
    "resume",
    "sweep",
]
