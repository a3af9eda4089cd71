"""How far each run of a sweep is: kept in sweep.json beside the runs, so that it can be seen from elsewhere."""

import heapq
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Literal, TypeAlias

from arac import metrics, runs
from arac.errors import UserError
from arac.files import read_bounded, write_durably
from arac.reading import named, parsed, whole
from arac.sweeps.jobs import Job, is_finished, saved_steps
from arac.timings import Timing, pace, timings

FILE = "sweep.json"
_LIMIT = 2**26
# stopped: begun, and nobody is working on it.
State: TypeAlias = Literal["waiting", "running", "stopped", "finished", "failed"]


@dataclass
class Entry:
    """A run of a sweep."""

    job: Job
    state: State = "waiting"
    losses: int = 0  # tries in a row that failed without a new checkpoint
    said: str = ""  # by the last try that failed
    saved: int = 0  # steps, when the try began that is at work
    env_steps: int = 0
    champion_return: float | None = None
    times: list[Timing] = field(default_factory=list)

    def look(self, folder: Path) -> None:
        """How far its run is by now."""
        self.times = timings(folder / "timings.jsonl")
        self.env_steps = self.times[-1].env_steps if self.times else 0
        try:
            self.champion_return = metrics.read_evaluations(folder)[-1]["champion_return"]
        except (OSError, ValueError, IndexError, KeyError):  # it has none yet, or one is just being written
            return


class Ledger:
    """All runs of a sweep."""

    def __init__(self, jobs: Iterable[Job], parent: Path, *, engine: str, places: int) -> None:
        self.parent = parent
        self.engine = engine
        self.places = places
        self.entries = [Entry(job) for job in jobs]
        for entry in self.entries:
            entry.state = "finished" if is_finished(entry.job, parent / entry.job.name) else "waiting"
            entry.look(parent / entry.job.name)

    def write(self) -> None:
        rows = [{**asdict(e.job), "state": e.state, "losses": e.losses, "said": e.said} for e in self.entries]
        table = {"format": 1, "engine": self.engine, "places": self.places, "runs": rows}
        write_durably(self.parent / FILE, (json.dumps(table, indent=1) + "\n").encode())

    @staticmethod
    def read(parent: Path) -> "Ledger":
        """What is known of the sweep in a folder, looked at from any process.

        Raises:
            UserError: if there is none.
        """
        try:
            table = parsed(read_bounded(parent / FILE, _LIMIT))
            known = {one.name for one in fields(Job)}
            jobs, states = [], []
            for row in table["runs"]:
                job = Job(**{name: value for name, value in named(row, "runs").items() if name in known})
                whole(job.steps)
                if "/" in job.name or job.name in ("", ".", ".."):
                    raise ValueError(f"{job.name!r} is no name of a run")
                jobs.append(job)
                states.append((str(row["state"]), whole(row["losses"]), str(row["said"])))
            ledger = Ledger(jobs, parent, engine=str(table["engine"]), places=max(whole(table["places"]), 1))
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(f"{parent} holds no sweep: there is no {FILE} in it.") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{parent / FILE} cannot be read: {error}.") from None
        at_work = ledger.is_at_work
        for entry, (state, losses, said) in zip(ledger.entries, states, strict=True):
            entry.losses, entry.said = losses, said
            if entry.state != "finished":
                entry.state = _seen_from_elsewhere(state, at_work, saved_steps(parent / entry.job.name))
        return ledger

    @property
    def is_at_work(self) -> bool:
        """Whether there is a process that carries it out."""
        return runs.is_locked(self.parent)

    def of(self, job: Job) -> Entry:
        return next(entry for entry in self.entries if entry.job is job)

    def count(self, state: State) -> int:
        return sum(entry.state == state for entry in self.entries)

    def look(self) -> None:
        """How far those are by now that are at work."""
        for entry in self.entries:
            if entry.state == "running":
                entry.look(self.parent / entry.job.name)

    @property
    def steps(self) -> tuple[int, int]:
        """That are done, and that there are."""
        return sum(min(e.env_steps, e.job.steps) for e in self.entries), sum(e.job.steps for e in self.entries)

    def seconds_left(self, entry: Entry) -> float | None:
        """Of one run at its own pace, or at that of others like it; None as long as there is none."""
        if entry.state == "finished":
            return 0.0
        own = pace([entry.times])
        alike = own or pace(other.times for other in self.entries if other.job.kind == entry.job.kind)
        return None if alike is None else max(entry.job.steps - entry.env_steps, 0) * alike

    def all_seconds_left(self) -> float | None:
        """Of the whole sweep; None as long as there is a kind of run whose pace nobody knows."""
        begun_first = sorted(self.entries, key=lambda entry: entry.state != "running")
        spans = [self.seconds_left(entry) for entry in begun_first if entry.state not in ("finished", "failed")]
        return None if None in spans else together([span for span in spans if span is not None], self.places)


def together(spans: Sequence[float], places: int) -> float:
    """How long it takes until all have ended, if each begins in its turn when a place is free."""
    free = [0.0] * places
    for span in spans:
        heapq.heappush(free, heapq.heappop(free) + span)
    return max(free)


def _seen_from_elsewhere(written: str, at_work: bool, saved: int) -> State:
    if written == "failed":
        return "failed"
    if at_work:
        return "running" if written == "running" else "waiting"
    return "stopped" if saved else "waiting"
