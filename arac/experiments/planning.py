"""The size of an experiment, and the jobs that it takes."""

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
    """The size of an experiment; `envs` and `algos` are empty where the experiment leaves no choice of them."""

    seeds: int  # number of seeds, which are 0, 1, …
    steps: int | None  # of each run; None: as many as the paper gives its task
    envs: tuple[str, ...] = ()
    algos: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)  # changes to the preset of each task


def planned(
    size: Size, algorithm: str, env: str, seed: int, variant: str, settings: Mapping[str, Any] = MappingProxyType({})
) -> Job:
    """Return the job of a run, validated so that errors appear before it is started rather than in its log.

    Args:
        size: the experiment's size, with settings for all of its runs.
        algorithm: name of the algorithm.
        env: id or short name of the task.
        seed: seed of the run.
        variant: name of the algorithm, or of its variant, in the folder's name.
        settings: changes to the preset beside those of `size`, over which they take precedence.

    Raises:
        UserError: if there is no such task or algorithm, or the run would end before anything is learned.
    """
    kind, task = find(algorithm), envs.check(env)
    steps = size.steps or presets.default_steps(task.id)
    name = run_name(task.id, variant, seed)
    return checked(kind, task, Job(name, kind.name, task.id, seed, steps, {**size.settings, **settings}))


def slug(variant: str) -> str:
    """Return a variant's name in the form that is used in folder names."""
    return variant.lower().replace(", ", "-").replace(" ", "").replace("'", "")
