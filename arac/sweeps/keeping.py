"""The small files of finished runs, copied to where they can be committed: no checkpoints and no replay."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from arac.errors import UserError
from arac.sweeps.jobs import Job, check_found, steps_of
from arac.utils.atomic_io import write_durably
from arac.utils.paths import make_folder

# The last one is written last and marks a folder as complete.
FILES = ("evaluations.jsonl", "timings.jsonl", "champion.json", "champion.safetensors", "outcome.json", "config.toml")


def keep(folder: Path, kept: Path, files: Sequence[str] = FILES) -> None:
    """Copy the small files of a finished run from `folder` to `kept`, unless both are the same folder.

    Raises:
        UserError: if `kept` cannot be written.
    """
    if kept.resolve() == folder.resolve():
        return
    make_folder(kept)
    try:
        (kept / FILES[-1]).unlink(missing_ok=True)
        for name in files:
            if (folder / name).exists():
                write_durably(kept / name, (folder / name).read_bytes())
    except OSError as error:
        raise UserError(f"{kept} cannot be written ({error.strerror}); choose another folder for results.") from None


def missing(jobs: Sequence[Job], parent: Path | None, measured: str | None = None) -> list[Job]:
    """Return the jobs whose finished runs are not kept below `parent`; all jobs if `parent` is None.

    Args:
        jobs: the wanted runs.
        parent: the folder of kept runs.
        measured: a file that a kept run must have to count, such as champion.json.

    Raises:
        UserError: if a folder holds another run than its job, or a longer one.
    """
    return [job for job in jobs if parent is None or not _is_kept(job, parent / job.name, measured)]


def only_measured(names: Sequence[str], parent: Path, measured: str, steps: Mapping[str, int]) -> list[str]:
    """Return the names of the runs below `parent` that are finished and have the file `measured`.

    Raises:
        UserError: if there are none.
    """
    found = [name for name in names if (measured_at(parent / name / measured) or 0) >= steps[name]]
    if not found:
        raise UserError(f"No run in {parent} is finished yet; leave out --show to train.")
    return found


def _is_kept(job: Job, kept: Path, measured: str | None) -> bool:
    if not (kept / FILES[-1]).exists():
        return False
    finished = check_found(job, kept) == job.steps and steps_of(kept) >= job.steps
    return finished and (measured is None or measured_at(kept / measured) is not None)


def measured_at(path: Path) -> int | None:
    """Return the environment steps at which a file was measured; None if it is missing or damaged."""
    try:
        return int(json.loads(path.read_text())["env_steps"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
