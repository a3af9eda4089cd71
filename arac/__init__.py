"""ARAC: the Attraction-Repulsion Actor-Critic, and the systems it is compared with."""

from importlib.metadata import version

from arac.agent import ARAC, SAC, SACNF, Agent, Score, load, resume
from arac.errors import EnvironmentFailure, UserError

__version__ = version("arac-rl")

__all__ = ["ARAC", "SAC", "SACNF", "Agent", "EnvironmentFailure", "Score", "UserError", "load", "resume"]
