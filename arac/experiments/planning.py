"""How much of an experiment to do, and the runs that this takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from arac import envs
from arac.algorithms import presets
from arac.algorithms.registry import find
from arac.sweeps.jobs import Job, checked, run_name


@dataclass(frozen=True)
class Size:
    """How much of an experiment to do. An experiment that has no choice of environments or algorithms names none."""

    seeds: int  # 0, 1, …
    steps: int | None  # of each run; None: as many as the paper gives its task
    envs: tuple[str, ...] = ()
    algos: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)  # other than the preset of each task


def planned(
    size: Size, algorithm: str, env: str, seed: int, system: str, settings: Mapping[str, Any] = MappingProxyType({})
) -> Job:
    """A run of a system on a task: refused here, rather than in its log, if it could not go well.

    Raises:
        UserError: if there is no such task or algorithm, or the run would end before anything is learned.
    """
    kind, task = find(algorithm), envs.check(env)
    steps = size.steps or presets.default_steps(task.id)
    name = run_name(task.id, system, seed)
    return checked(kind, task, Job(name, kind.name, task.id, seed, steps, {**size.settings, **settings}))


def slug(system: str) -> str:
    """A system's name as part of a folder's."""
    return system.lower().replace(", ", "-").replace(" ", "").replace("'", "")
