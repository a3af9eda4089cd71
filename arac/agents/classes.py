"""The class of each algorithm, and functions that load or resume an agent of any algorithm."""

import os
from pathlib import Path
from typing import Any

from arac.agents.agent import Agent
from arac.algorithms import arac, cem_td3, cerl, erl, registry, sac, td3
from arac.storage import agent_file, run_folder


class ARAC(Agent[arac.ARACConfig, arac.State]):
    """Attraction-Repulsion Actor-Critic."""

    algorithm = registry.ALGORITHMS["arac"]


class SAC(Agent[sac.SACConfig, sac.State]):
    """Soft Actor-Critic."""

    algorithm = registry.ALGORITHMS["sac"]


class SACNF(Agent[sac.SACNFConfig, sac.State]):
    """Soft Actor-Critic with a radial-flow policy."""

    algorithm = registry.ALGORITHMS["sac_nf"]


class TD3(Agent[td3.TD3Config, td3.State]):
    """Twin Delayed DDPG."""

    algorithm = registry.ALGORITHMS["td3"]


class CEMTD3(Agent[cem_td3.CEMTD3Config, cem_td3.State]):
    """The cross-entropy method over actors, half of which learn with TD3."""

    algorithm = registry.ALGORITHMS["cem_td3"]


class ERL(Agent[erl.ERLConfig, erl.State]):
    """Evolutionary Reinforcement Learning: a genetic algorithm and a DDPG learner."""

    algorithm = registry.ALGORITHMS["erl"]


class CERL(Agent[cerl.CERLConfig, cerl.State]):
    """Collaborative Evolutionary Reinforcement Learning: a genetic algorithm and a portfolio of TD3 learners."""

    algorithm = registry.ALGORITHMS["cerl"]


def _class_of(algorithm: registry.Algorithm) -> type[Agent]:
    """Return the class of an algorithm: one of those above, or a new one."""
    written = {kind.algorithm.name: kind for kind in (ARAC, SAC, SACNF, TD3, CEMTD3, ERL, CERL)}
    contents = {"algorithm": algorithm, "__doc__": f"{algorithm.title}.", "__module__": "arac"}  # where pickle finds it
    return written.get(algorithm.name) or type(algorithm.class_name, (Agent,), contents)


# The class of each algorithm, by the algorithm's name.
AGENTS = {name: _class_of(algorithm) for name, algorithm in registry.ALGORITHMS.items()}


def load(path: str | os.PathLike[str], **options: Any) -> Agent:
    """Load an agent of any algorithm from a run folder or a saved file.

    Args:
        path: the folder or the file.
        **options: the keyword arguments of `Agent.load`.

    Returns:
        The agent.

    Raises:
        UserError: if there is no agent at `path`.
    """
    path = Path(path)
    return _kind(run_folder.read_config(path) if path.is_dir() else agent_file.read_table(path)).load(path, **options)


def resume(run_dir: str | os.PathLike[str], **options: Any) -> Agent:
    """Resume a run of any algorithm.

    Args:
        run_dir: the run's folder.
        **options: the keyword arguments of `Agent.resume`.

    Returns:
        The agent, after training.

    Raises:
        UserError: if the folder holds no run.
    """
    return _kind(run_folder.read_config(Path(run_dir))).resume(run_dir, **options)


def _kind(table: dict[str, Any]) -> type[Agent]:
    return AGENTS[registry.find(str(table.get("algorithm"))).name]
