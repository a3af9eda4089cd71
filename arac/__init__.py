"""ARAC: the Attraction-Repulsion Actor-Critic, and the algorithms that it is compared with."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from arac import envs as envs  # registers our tasks with Gymnasium

if TYPE_CHECKING:
    from arac.agents.agent import Agent
    from arac.agents.classes import ARAC, CEMTD3, CERL, ERL, SAC, SACNF, TD3, load, resume
    from arac.agents.members import Score
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
_MODULES = {
    "Agent": "arac.agents.agent",
    "Score": "arac.agents.members",
    **dict.fromkeys(("EnvironmentFailure", "StorageFailure", "UserError"), "arac.errors"),
    "sweep": "arac.sweeps",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: worker processes need none of them and start sooner."""
    classes = {} if name in __all__ or not name[0].isupper() else _agent_classes()
    if name not in __all__ and name not in classes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = classes.get(name) or getattr(import_module(_MODULES.get(name, "arac.agents.classes")), name)
    globals()[name] = value
    return value


def _agent_classes() -> dict[str, Any]:
    """Return the class of every algorithm in the registry, by its name."""
    return {kind.__name__: kind for kind in import_module("arac.agents.classes").AGENTS.values()}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
