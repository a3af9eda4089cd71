"""The process of one run: `python -m arac.sweeps.child LIFELINE JOB FOLDER CPUS`, with the job as JSON.

It begins the run or resumes it, and is killed when the process that started it ends.
"""

import json
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from arac.agents.classes import AGENTS
from arac.analysis import run_curve
from arac.errors import exit_status
from arac.learning.jit import keep_between_runs
from arac.sweeps.jobs import Job
from arac.utils.processes import end_with

STOPPED = 130  # the exit status of a run that was asked to stop


def carry_out(job: Job, folder: Path, cpus: int) -> None:
    """Train the job's run to its end, from its last checkpoint if it has one.

    Args:
        job: the run to train.
        folder: the run folder.
        cpus: number of cores reserved for the run.
    """
    keep_between_runs()
    kind, settings = AGENTS[job.algorithm], settings_on(job, cpus)
    if (folder / "config.toml").exists():
        workers = job.settings.get("workers")
        agent = kind.resume(folder, total_steps=job.steps, workers=workers, progress_bar=True, log=_log)
    else:
        task: dict[str, Any] = {"max_episode_steps": job.max_episode_steps, "env_kwargs": job.env_kwargs or None}
        agent = kind(job.env, seed=job.seed, **task, **settings)
        _log(f"{agent.algorithm.title} on {agent.env.id}, seed {job.seed}, {job.steps:,} steps, into {folder}")
        agent.learn(job.steps, run_dir=folder, progress_bar=True)
    with suppress(OSError, ValueError, LookupError):  # unreadable metrics give no curve; the run itself is finished
        run_curve.draw(folder, f"{agent.algorithm.title} on {agent.env.id}, seed {job.seed}")


def settings_on(job: Job, cpus: int) -> dict[str, Any]:
    """Return the job's settings; on one core without worker processes, which would only compete for it."""
    return {**({"workers": 0} if cpus == 1 else {}), **job.settings}


_log = partial(print, flush=True)


if __name__ == "__main__":
    lifeline, job, folder, cpus = sys.argv[1:]
    end_with(int(lifeline))
    status = exit_status(lambda: carry_out(Job(**json.loads(job)), Path(folder), int(cpus)))
    if status == STOPPED:
        _log("stopped; the checkpoint is saved")
    sys.exit(status)
