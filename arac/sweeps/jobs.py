"""Jobs: the runs that a sweep or an experiment wants, and the progress of those in their folders."""

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
    """A wanted run: its algorithm, task, seed, length and settings."""

    name: str  # of its folder
    algorithm: str
    env: str
    seed: int
    steps: int
    settings: dict[str, Any] = field(
        default_factory=dict
    )  # changes to the task's preset, or `preset` and changes to it
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None

    @cached_property
    def kind(self) -> str:
        """Algorithm, settings and task as one string; a step takes equally long in all runs of one kind."""
        return f"{variant_of(self)} on {self.env}"


def variant_of(job: Job) -> str:
    """Return the algorithm and its settings as one string, which is the same on all tasks."""
    return json.dumps([job.algorithm, job.settings])


def checked(algorithm: Algorithm, env: EnvSpec, job: Job) -> Job:
    """Validate a job and return it, so that errors appear before it is started rather than in its log.

    Raises:
        UserError: if a setting is not allowed, or the run would end before anything is learned.
    """
    description = _described(algorithm, env, job)
    warmup = description.config.warmup_steps
    if learning_steps(description.config, job.steps) == 0:
        told = f"steps must be above {warmup:,}, the warm-up of {algorithm.title}, got {job.steps:,}."
        raise UserError(told, fields=("warmup_steps", "steps"))
    check_run(description, job.steps)
    return job


def _described(algorithm: Algorithm, env: EnvSpec, job: Job) -> RunSpec:
    settings = dict(job.settings)
    config, _ = presets.configured(algorithm.config, env.id, settings, preset=settings.pop("preset", "paper"))
    return RunSpec(algorithm, env, check_seed(job.seed), config)


def run_name(env: str, variant: str, seed: int) -> str:
    """Return the name of a run's folder; `variant` names the algorithm and the settings that vary."""
    return f"{re.sub('[/:]', '_', full_name(env))}-{variant}-seed{seed}"


def is_finished(job: Job, folder: Path) -> bool:
    """Return True if a job's run in a folder has a checkpoint at the job's last step or later."""
    return has_reached(folder, job.steps)


def has_reached(folder: Path, steps: int) -> bool:
    """Return whether the run in a folder has a checkpoint at `steps` environment steps or more."""
    return saved_steps(folder) >= steps


def saved_steps(folder: Path) -> int:
    """Return the environment steps of the newest checkpoint in a folder; 0 if there is none."""
    saved = checkpoint.list_checkpoints(folder)
    return int(saved[-1].name) if saved else 0


def steps_of(folder: Path) -> int:
    """Return the environment steps of the run in a folder by its timings.jsonl; 0 if there is none."""
    try:
        lines = (folder / "timings.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return 0
    for line in reversed(lines[-2:]):
        with suppress(ValueError):  # the last line may be half written
            return int(json.loads(line)["env_steps"])
    return 0


def check(jobs: Sequence[Job], parent: Path) -> None:
    """Check that no folder holds another run than its job, whose numbers would be mistaken for the job's.

    Raises:
        UserError: if a folder does, or another process works on it.
    """
    for job in jobs:
        folder = parent / job.name
        if not (folder / "config.toml").exists():
            continue
        if not becomes_free(folder, _DYING):
            raise UserError(f"Another process is working on {folder}; wait for it or stop it first.")
        check_found(job, folder)


def check_found(job: Job, folder: Path) -> int:
    """Check that the run in a folder is the job's, and return the number of steps that it was started for.

    Raises:
        UserError: if it is another run, or was started for more steps than the job.
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
    """Return whether no process works on a run, after waiting up to `patience` seconds for one to end."""
    give_up = time.monotonic() + patience
    while run_folder.is_locked(folder):
        if time.monotonic() > give_up:
            return False
        time.sleep(0.1)
    return True
