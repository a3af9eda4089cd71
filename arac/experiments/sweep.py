"""Many ordinary runs side by side: what is finished is left alone, what was stopped goes on."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import rich.progress

from arac import checkpoint, envs, presets, runs
from arac.algorithms import find
from arac.algorithms.shared import learning_steps
from arac.display import Pace
from arac.envs.tasks import full_name
from arac.errors import EnvironmentFailure, UserError
from arac.progress import Progress
from arac.rollout.local import cores

_HEARTBEAT = 15.0  # seconds between lines where the output is not a terminal


@dataclass(frozen=True)
class Size:
    """How much of an experiment to do. An experiment that has no choice of environments or algorithms names none."""

    seeds: int  # 0, 1, …
    steps: int | None  # of each run; None: as many as the paper gives its task
    envs: tuple[str, ...] = ()
    algos: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)  # other than the preset of each task


@dataclass(frozen=True)
class Job:
    """A run that should be there."""

    name: str  # of its folder
    algorithm: str
    env: str
    seed: int
    steps: int
    settings: dict[str, Any] = field(default_factory=dict)

    def words(self, folder: Path) -> list[str]:
        """The command that begins it, or goes on with it."""
        if (folder / "config.toml").exists():
            return ["resume", str(folder), "--steps", str(self.steps)]
        words = ["train", self.env, "--algo", self.algorithm, "--steps", str(self.steps), "--seed", str(self.seed)]
        for name, value in self.settings.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                words += [f"--{flag}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]
        return [*words, "--workers", "0", "--run-dir", str(folder)]


def planned(
    size: Size, algorithm: str, env: str, seed: int, system: str, settings: Mapping[str, Any] = MappingProxyType({})
) -> Job:
    """A run of a system on a task: refused here, rather than in its log, if it could not go well.

    Raises:
        UserError: if there is no such task or algorithm, or the run would end before anything is learned.
    """
    kind, task = find(algorithm), envs.check(full_name(env))
    steps = size.steps or presets.default_steps(task.id)
    chosen = {**size.settings, **settings}
    config, _ = presets.configured(kind.config, task.id, chosen)
    if learning_steps(config, steps) == 0:
        raise UserError(f"--steps must be above {config.warmup_steps:,}, the warm-up of {kind.title}, got {steps:,}.")
    return Job(run_name(task.id, system, seed), kind.name, task.id, seed, steps, chosen)


def run_name(env: str, system: str, seed: int) -> str:
    """Of a run's folder."""
    return f"{full_name(env).replace('/', '_')}-{system}-seed{seed}"


def slug(system: str) -> str:
    """A system's name as part of a folder's."""
    return system.lower().replace(", ", "-").replace(" ", "")


def carry_out(jobs: Sequence[Job], parent: Path, *, processes: int) -> None:
    """Sees to it that every job has a finished run in its folder below `parent`, several at once, each on one core.

    Raises:
        UserError: if a folder holds another run than its job, or one that went further.
        EnvironmentFailure: if a run fails; the others are finished first.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, with a checkpoint of each run written.
    """
    check(jobs, parent)
    waiting = [job for job in jobs if not is_finished(job, parent / job.name)]
    try:
        (parent / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{parent} cannot be made ({error.strerror}); choose another folder.") from None
    failed: list[Job] = []
    progress = Progress()
    with progress.heeding_signals(), _showing(jobs, parent) as show:
        crew = _Crew(parent, processes)
        try:
            while waiting or crew.busy:
                while waiting and crew.has_room:
                    crew.start(waiting.pop(0))
                failed += crew.collect()
                show()
                progress.check()
                time.sleep(0.2)
        finally:
            crew.stop()
    if failed:
        log = parent / "logs" / f"{failed[0].name}.log"
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise EnvironmentFailure(f"{len(failed)} of {len(jobs)} runs failed; {log} ends with: {' '.join(last)}")


def is_finished(job: Job, folder: Path) -> bool:
    return has_reached(folder, job.steps)


def has_reached(folder: Path, steps: int) -> bool:
    """Whether the run in a folder has saved a checkpoint at that many steps or more."""
    saved = checkpoint.list_checkpoints(folder)
    return bool(saved) and int(saved[-1].name) >= steps


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
    found = {"algorithm": description.algorithm.name, "env": description.env.id, "seed": description.seed}
    wanted = {"algorithm": job.algorithm, "env": full_name(job.env), "seed": job.seed}
    for name, value in job.settings.items():
        found[name], wanted[name] = getattr(description.config, name, None), value
    for name, value in wanted.items():
        if found[name] != value:
            raise UserError(
                f"{folder} holds a run with {name} {found[name]}, not {value}; choose another folder or remove it."
            )
    if steps > job.steps:
        raise UserError(f"{folder} holds a run of {steps:,} steps, more than {job.steps:,}; choose another folder.")


class _Crew:
    """The processes that are at work."""

    def __init__(self, parent: Path, size: int) -> None:
        self._parent = parent
        self._free = list(islice(cycle(cores()), size))
        self._at_work: list[tuple[Job, subprocess.Popen[bytes], int]] = []

    @property
    def has_room(self) -> bool:
        return bool(self._free)

    @property
    def busy(self) -> bool:
        return bool(self._at_work)

    def start(self, job: Job) -> None:
        core = self._free.pop(0)
        words = [sys.executable, "-m", "arac.cli", *job.words(self._parent / job.name)]
        with (self._parent / "logs" / f"{job.name}.log").open("ab") as log:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, {core})
        self._at_work.append((job, process, core))

    def collect(self) -> list[Job]:
        """Takes leave of those who have ended; the jobs that failed."""
        ended = [entry for entry in self._at_work if entry[1].poll() is not None]
        self._at_work = [entry for entry in self._at_work if entry not in ended]
        self._free += [core for _, _, core in ended]
        return [job for job, process, _ in ended if process.returncode != 0]

    def stop(self) -> None:
        """Asks all to save and end, and waits until they have."""
        for _, process, _ in self._at_work:
            process.terminate()
        for _, process, _ in self._at_work:
            process.wait()


@contextmanager
def _showing(jobs: Sequence[Job], parent: Path) -> Iterator[Any]:
    """How far all runs together are, with the time left: a bar in a terminal, a line now and then elsewhere."""
    total = sum(job.steps for job in jobs)
    done = [min(steps_of(parent / job.name), job.steps) for job in jobs]
    pace = Pace(sum(done), total, 0)
    columns = rich.progress.BarColumn(), rich.progress.TextColumn("{task.description}")
    last = time.monotonic()
    with rich.progress.Progress(*columns, disable=not sys.stdout.isatty()) as bar:
        task = bar.add_task("", total=total)

        def show() -> None:
            nonlocal last
            for number, job in enumerate(jobs):
                if done[number] < job.steps:
                    done[number] = min(steps_of(parent / job.name), job.steps)
            if (steps := sum(done)) > pace.env_steps:
                pace.step(steps)
            ended = sum(steps >= job.steps for job, steps in zip(jobs, done, strict=True))
            line = f"{ended} of {len(jobs)} runs · {pace}"
            bar.update(task, completed=pace.env_steps, description=line)
            if bar.disable and time.monotonic() - last > _HEARTBEAT:
                print(line, flush=True)
                last = time.monotonic()

        yield show
