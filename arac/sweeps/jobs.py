"""Runs that should be there: what each is, and how far the one in its folder has come."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arac import checkpoint, presets, runs
from arac.algorithms import Algorithm
from arac.algorithms.shared import learning_steps
from arac.description import Description, check_seed
from arac.envs import EnvSpec
from arac.envs.tasks import full_name
from arac.errors import UserError
from arac.training import check_run


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

    @property
    def kind(self) -> str:
        """What decides how long a step of it takes."""
        return f"{system_of(self)} on {self.env}"

    def words(self, folder: Path, *, cpus: int = 1) -> list[str]:
        """The command that begins it on so many cores, or goes on with it."""
        if (folder / "config.toml").exists():
            return ["resume", str(folder), "--steps", str(self.steps)]
        words = ["train", self.env, "--algo", self.algorithm, "--steps", str(self.steps), "--seed", str(self.seed)]
        alone = {"workers": 0} if cpus == 1 else {}  # other processes would only wait for the one core
        for name, value in {**alone, **self.settings}.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                words += [f"--{flag}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]
        if self.env_kwargs:
            words += ["--env-kwargs", *(f"{name}={json.dumps(value)}" for name, value in self.env_kwargs.items())]
        if self.max_episode_steps is not None:
            words += ["--max-episode-steps", str(self.max_episode_steps)]
        return [*words, "--run-dir", str(folder)]


def system_of(job: Job) -> str:
    """What is the same on all tasks."""
    return json.dumps([job.algorithm, job.settings])


def checked(algorithm: Algorithm, env: EnvSpec, job: Job) -> Job:
    """The job, if a run of it could go well: it is refused here rather than in its log.

    Raises:
        UserError: if a setting is not allowed, or the run would end before anything is learned.
    """
    config, _ = presets.configured(algorithm.config, env.id, job.settings)
    if learning_steps(config, job.steps) == 0:
        warmup = f"{config.warmup_steps:,}, the warm-up of {algorithm.title}"
        raise UserError(f"steps must be above {warmup}, got {job.steps:,}.")
    check_run(Description(algorithm, env, check_seed(job.seed), config), job.steps)
    return job


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
        _check(job, parent / job.name)


def _check(job: Job, folder: Path) -> None:
    if not (folder / "config.toml").exists():
        return
    if runs.is_locked(folder):
        raise UserError(f"Another process is working on {folder}; wait for it or stop it first.")
    description, steps = runs.read(folder)
    env = description.env
    found = {"algorithm": description.algorithm.name, "env": env.id, "seed": description.seed, "env_kwargs": env.kwargs}
    wanted = {"algorithm": job.algorithm, "env": full_name(job.env), "seed": job.seed, "env_kwargs": job.env_kwargs}
    if job.max_episode_steps is not None:
        found["max_episode_steps"], wanted["max_episode_steps"] = env.max_episode_steps, job.max_episode_steps
    for name, value in job.settings.items():
        found[name], wanted[name] = getattr(description.config, name, None), value
    for name, value in wanted.items():
        if found[name] != value:
            raise UserError(
                f"{folder} holds a run with {name} {found[name]}, not {value}; choose another folder or remove it."
            )
    if steps > job.steps:
        raise UserError(f"{folder} holds a run of {steps:,} steps, more than {job.steps:,}; choose another folder.")
