"""ARAC: the Attraction-Repulsion Actor-Critic, and the systems it is compared with."""

from arac.agent import ARAC, SAC, SACNF, Agent, Score, load
from arac.errors import EnvironmentFailure, UserError

__version__ = "0.1.0"

__all__ = ["ARAC", "SAC", "SACNF", "Agent", "EnvironmentFailure", "Score", "UserError", "load"]
