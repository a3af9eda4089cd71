"""The small files of finished runs, kept where they can be committed: without checkpoints and replay."""

import json
from collections.abc import Sequence
from pathlib import Path

from arac import runs
from arac.errors import UserError
from arac.files import write_durably
from arac.sweeps.jobs import Job, differences

# The last one marks a folder as whole.
FILES = ("evaluations.jsonl", "timings.jsonl", "champion.json", "outcome.json", "config.toml")


def keep(folder: Path, kept: Path) -> None:
    """Copy the small files of a finished run.

    Raises:
        UserError: if they cannot be written.
    """
    try:
        kept.mkdir(parents=True, exist_ok=True)
        (kept / FILES[-1]).unlink(missing_ok=True)
        for name in FILES:
            if (folder / name).exists():
                write_durably(kept / name, (folder / name).read_bytes())
    except OSError as error:
        raise UserError(f"{kept} cannot be written ({error.strerror}); choose another folder for results.") from None


def missing(jobs: Sequence[Job], parent: Path | None) -> list[Job]:
    """Return the jobs whose runs are not kept below `parent`, as long as they should be; all where there is none."""
    return [job for job in jobs if parent is None or not _is_kept(job, parent / job.name)]


def _is_kept(job: Job, kept: Path) -> bool:
    try:
        found, steps = runs.read(kept)
    except UserError:
        return False
    return steps == job.steps and not differences(job, found)


def measured_at(path: Path) -> int | None:
    """Return the environment steps of what a file measured; None where there is none, or it is torn."""
    try:
        return int(json.loads(path.read_text())["env_steps"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
