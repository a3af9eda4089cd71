"""Runs that should be there: what each is, and how far the one in its folder has come."""

import json
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from arac import envs
from arac.algorithms import presets
from arac.algorithms.base import learning_steps
from arac.algorithms.registry import Algorithm, find
from arac.envs import EnvSpec
from arac.envs.tasks import full_name
from arac.errors import UserError
from arac.storage import checkpoint, run_folder
from arac.storage.run_spec import RunSpec, check_seed
from arac.training.loop import check_run

# Seconds that a process may still hold its run's lock while it is being killed.
_DYING = 3.0


@dataclass(frozen=True)
class Job:
    """A run that should be there."""

    name: str  # of its folder
    algorithm: str
    env: str
    seed: int
    steps: int
    settings: dict[str, Any] = field(default_factory=dict)  # other than the preset of its task
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None

    @cached_property
    def kind(self) -> str:
        """What decides how long a step of it takes."""
        return f"{system_of(self)} on {self.env}"


def system_of(job: Job) -> str:
    """What is the same on all tasks."""
    return json.dumps([job.algorithm, job.settings])


def checked(algorithm: Algorithm, env: EnvSpec, job: Job) -> Job:
    """The job, if a run of it could go well: it is refused here rather than in its log.

    Raises:
        UserError: if a setting is not allowed, or the run would end before anything is learned.
    """
    description = _described(algorithm, env, job)
    warmup = description.config.warmup_steps
    if learning_steps(description.config, job.steps) == 0:
        raise UserError(f"steps must be above {warmup:,}, the warm-up of {algorithm.title}, got {job.steps:,}.")
    check_run(description, job.steps)
    return job


def _described(algorithm: Algorithm, env: EnvSpec, job: Job) -> RunSpec:
    config, _ = presets.configured(algorithm.config, env.id, job.settings)
    return RunSpec(algorithm, env, check_seed(job.seed), config)


def run_name(env: str, system: str, seed: int) -> str:
    """Of a run's folder."""
    return f"{re.sub('[/:]', '_', full_name(env))}-{system}-seed{seed}"


def is_finished(job: Job, folder: Path) -> bool:
    return has_reached(folder, job.steps)


def has_reached(folder: Path, steps: int) -> bool:
    """Whether the run in a folder has saved a checkpoint at that many steps or more."""
    return saved_steps(folder) >= steps


def saved_steps(folder: Path) -> int:
    """How far the newest checkpoint in a folder is; 0 where there is none."""
    saved = checkpoint.list_checkpoints(folder)
    return int(saved[-1].name) if saved else 0


def steps_of(folder: Path) -> int:
    """How far the run in a folder is; 0 where there is none."""
    try:
        lines = (folder / "timings.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return 0
    for line in reversed(lines[-2:]):
        with suppress(ValueError):  # the last line may be in the middle of being written
            return int(json.loads(line)["env_steps"])
    return 0


def check(jobs: Sequence[Job], parent: Path) -> None:
    """Refuses folders with runs that are not the jobs': their numbers would be taken for the jobs'.

    Raises:
        UserError: if there is such a folder, or another process works in one.
    """
    for job in jobs:
        folder = parent / job.name
        if not (folder / "config.toml").exists():
            continue
        if not becomes_free(folder, _DYING):
            raise UserError(f"Another process is working on {folder}; wait for it or stop it first.")
        check_found(job, folder)


def check_found(job: Job, folder: Path) -> int:
    """Return how long the run in a folder is to be.

    Raises:
        UserError: if it is not the job's, or is to be longer.
    """
    found, steps = run_folder.read(folder)
    task = _task(job.env, json.dumps(job.env_kwargs), job.max_episode_steps)
    if differences := _described(find(job.algorithm), task, job).differences(found.identity()):
        what = "; ".join(differences[:3])
        raise UserError(f"{folder} holds another run ({what}); choose another folder or remove it.")
    if steps > job.steps:
        raise UserError(f"{folder} holds a run of {steps:,} steps, more than {job.steps:,}; choose another folder.")
    return steps


@cache
def _task(env: str, kwargs: str, limit: int | None) -> EnvSpec:
    return envs.check(env, max_episode_steps=limit, kwargs=json.loads(kwargs))


def becomes_free(folder: Path, patience: float) -> bool:
    """Whether nobody works on a run, or soon nobody does any more."""
    give_up = time.monotonic() + patience
    while run_folder.is_locked(folder):
        if time.monotonic() > give_up:
            return False
        time.sleep(0.1)
    return True
