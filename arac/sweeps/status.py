"""The state of each run of a sweep, kept in sweep.json beside the runs so that other processes can read it."""

import heapq
import json
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from arac.errors import UserError
from arac.storage import run_folder
from arac.storage.metrics import Spent, pace
from arac.sweeps.jobs import Job, is_finished, saved_steps
from arac.utils.atomic_io import read_bounded, write_durably
from arac.utils.safe_json import last_line, named, number, parsed, whole

FILE = "sweep.json"
HEARTBEAT = 30.0  # seconds between two writes of the file while no state changes
_SILENCE = 4 * HEARTBEAT  # without a write, after which a sweep on another machine counts as ended
_FORMAT = 1
_LIMIT = 2**26
# stopped: begun, but no process works on it.
State: TypeAlias = Literal["waiting", "running", "stopped", "finished", "failed"]


@dataclass
class Entry:
    """A run of a sweep and its state."""

    job: Job
    state: State = "waiting"
    losses: int = 0  # attempts in a row that failed without a new checkpoint
    said: str = ""  # output of the last failed attempt
    saved: int = 0  # steps of the newest checkpoint when the current attempt began
    not_before: float = 0.0  # earliest time of the next attempt, by this process's clock
    champion_return: float | None = None
    spent: Spent = field(default_factory=Spent)

    @property
    def env_steps(self) -> int:
        return self.spent.latest.env_steps if self.spent.latest else 0

    def look(self, folder: Path) -> None:
        """Read the run's progress; errors in its files may be temporary and are ignored, so as not to stop a sweep."""
        self.spent.follow(folder / "timings.jsonl")
        with suppress(OSError, ValueError, KeyError):  # there is no evaluation yet, or one is just being written
            self.champion_return = number(parsed(last_line(folder / "evaluations.jsonl"))["champion_return"])


class SweepStatus:
    """All runs of a sweep and their states."""

    def __init__(self, jobs: Iterable[Job], parent: Path, *, engine: str, places: int) -> None:
        self.parent = parent
        self.engine = engine
        self.places = places
        self.is_at_work = False  # whether a process is carrying out the sweep
        self.entries = [Entry(job) for job in jobs]
        for entry in self.entries:
            entry.state = "finished" if is_finished(entry.job, parent / entry.job.name) else "waiting"
            entry.look(parent / entry.job.name)

    def write(self, *, at_work: bool = True) -> None:
        """Write sweep.json for other processes; regular writes show them that the sweep is at work."""
        rows = [{**asdict(e.job), "state": e.state, "losses": e.losses, "said": e.said} for e in self.entries]
        now = {"host": socket.gethostname(), "at_work": at_work, "written": time.time()}
        table = {"format": _FORMAT, "engine": self.engine, "places": self.places, **now, "runs": rows}
        write_durably(self.parent / FILE, (json.dumps(table, indent=1) + "\n").encode())

    @staticmethod
    def read(parent: Path) -> "SweepStatus":
        """Return the status of the sweep in a folder, for use in any process.

        Raises:
            UserError: if there is no sweep, or its file cannot be read.
        """
        try:
            table = parsed(read_bounded(parent / FILE, _LIMIT))
            if whole(table["format"]) != _FORMAT:
                raise ValueError(f"its format is {table['format']}, and this version knows {_FORMAT}")
            rows = [named(row, "runs") for row in table["runs"]]
            jobs = [_job(row) for row in rows]
            states = [(str(row["state"]), max(whole(row["losses"]), 0), str(row["said"])) for row in rows]
            places = min(max(whole(table["places"]), 1), max(len(jobs), 1))
            status = SweepStatus(jobs, parent, engine=str(table["engine"]), places=places)
            at_work = _is_at_work(parent, table)
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(f"{parent} holds no sweep: there is no {FILE} in it.") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{parent / FILE} cannot be read: {error}.") from None
        status.is_at_work = at_work
        for entry, (state, losses, said) in zip(status.entries, states, strict=True):
            entry.losses, entry.said = losses, said
            if entry.state != "finished":
                entry.state = _seen_from_elsewhere(state, at_work, saved_steps(parent / entry.job.name))
        return status

    def of(self, job: Job) -> Entry:
        """Return the entry of a job."""
        return next(entry for entry in self.entries if entry.job is job)

    def count(self, state: State) -> int:
        """Return the number of runs in a state."""
        return sum(entry.state == state for entry in self.entries)

    def look(self) -> None:
        """Read the progress of the running runs."""
        for entry in self.entries:
            if entry.state == "running":
                entry.look(self.parent / entry.job.name)

    @property
    def steps(self) -> tuple[int, int]:
        """The environment steps done and their total."""
        return sum(min(e.env_steps, e.job.steps) for e in self.entries), sum(e.job.steps for e in self.entries)

    def seconds_left(self) -> dict[str, float]:
        """Return the seconds left for each remaining run, by its pace or that of its kind, where one is known."""
        alike: dict[str, list[Spent]] = {}
        for entry in self.entries:
            alike.setdefault(entry.job.kind, []).append(entry.spent)
        paces = {kind: pace(all_of_it) for kind, all_of_it in alike.items()}
        left = {}
        for entry in self.entries:
            seconds = pace([entry.spent]) or paces[entry.job.kind]
            if seconds is not None and entry.state not in ("finished", "failed"):
                left[entry.job.name] = max(entry.job.steps - entry.env_steps, 0) * seconds
        return left

    def all_seconds_left(self) -> float | None:
        """Return the seconds left for the sweep, with the mean pace for unknown kinds; None if no pace is known."""
        ahead = [entry for entry in self.entries if entry.state not in ("finished", "failed")]
        usual = pace(entry.spent for entry in self.entries)
        if usual is None and ahead:
            return None
        left = {entry.job.name: max(entry.job.steps - entry.env_steps, 0) * (usual or 0.0) for entry in ahead}
        left |= self.seconds_left()
        begun_first = sorted(ahead, key=lambda entry: entry.state != "running")
        return together([left[entry.job.name] for entry in begun_first], self.places)


def together(spans: Sequence[float], places: int) -> float:
    """Return the time until tasks of these lengths have ended, each started in order once a place is free."""
    free = [0.0] * places
    for span in spans:
        heapq.heappush(free, heapq.heappop(free) + span)
    return max(free)


def _job(row: dict[str, Any]) -> Job:
    """Return the job in a row of sweep.json, validated since anybody may have written that file."""
    job = Job(**{one.name: row[one.name] for one in fields(Job)})
    if whole(job.steps) < 1 or not isinstance(job.name, str) or not job.name.isprintable():
        raise ValueError(f"{job.name!a} is no run")
    if "/" in job.name or job.name in ("", ".", ".."):
        raise ValueError(f"{job.name!r} is no name of a run")
    return job


def _is_at_work(parent: Path, table: dict[str, Any]) -> bool:
    """Return whether a process carries out the sweep.

    On the same machine the folder's lock tells; on another, where locks may not be visible, the time of the last write.
    """
    if table["host"] == socket.gethostname():
        return run_folder.is_locked(parent)
    return table["at_work"] is True and time.time() < number(table["written"]) + _SILENCE


def _seen_from_elsewhere(written: str, at_work: bool, saved: int) -> State:
    if written == "failed":
        return "failed"
    if at_work:
        return "running" if written == "running" else "waiting"
    return "stopped" if saved else "waiting"
