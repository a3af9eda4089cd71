"""ARAC: the Attraction-Repulsion Actor-Critic, and the systems it is compared with."""

from importlib.metadata import version

from arac.agent import Agent, Score
from arac.errors import EnvironmentFailure, StorageFailure, UserError
from arac.sweeps import sweep
from arac.systems import ARAC, CEMTD3, CERL, ERL, SAC, SACNF, TD3, load, resume

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
