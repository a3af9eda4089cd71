"""A run folder as the two JSON answers of the watch page, read again when a file has changed."""

import hashlib
import stat
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from safetensors import SafetensorError, safe_open

from arac.errors import UserError
from arac.storage import checkpoint, run_folder, run_records
from arac.storage.metrics import Spent, pace
from arac.watch import videos
from arac.watch.payload import contents, first_evaluation
from arac.web import embedded

_FRESH = 0.5  # seconds for which an answer is reused, however many pages ask
State: TypeAlias = Literal["training", "finished", "stopped", "gone"]


class Answer(NamedTuple):
    """A JSON body and its ETag, a hash of the body."""

    body: bytes
    tag: str

    @staticmethod
    def of(value: Any) -> "Answer":
        """Return the answer whose body is `value` as JSON."""
        body = embedded(value).encode()
        return Answer(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


class Answers(NamedTuple):
    progress: Answer  # small: the progress of the run, or an error
    run: Answer  # everything else; changes with an evaluation


class Follower:
    """Reads one run folder, and nothing outside of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._one_at_a_time = threading.Lock()  # each request has its own thread
        self._looked = -_FRESH
        self._answers = Answers(Answer.of({}), Answer.of({}))
        self._spent = Spent()
        self._seen: Sequence[Any] = ()
        self._found: tuple[run_records.Record, Answer] | ValueError = ValueError("it was not looked at yet")
        self._archive: tuple[Any, dict[str, Any] | None] = None, None

    def look(self) -> Answers:
        """Return the current answers; they are at most `_FRESH` seconds old."""
        with self._one_at_a_time:
            if time.monotonic() - self._looked >= _FRESH:
                self._answers = self._read()
                self._looked = time.monotonic()
            return self._answers

    def _read(self) -> Answers:
        try:
            return self._read_run()
        except UserError as error:
            reason = str(error)
        except ValueError as error:
            reason = f"This run cannot be read: {error}."
        except OSError as error:
            reason = f"This run cannot be read: permission or I/O error ({error.strerror or error})."
        return Answers(Answer.of({"error": reason}), self._answers.run)

    def _read_run(self) -> Answers:
        if not self._folder.is_dir():
            raise UserError(f"The folder {self._folder} is gone.")
        run_folder.check_parts(self._folder)
        at_work = run_folder.is_locked(self._folder)  # checked first: if no process is, all that is read below is final
        record, run = self._run()
        self._follow_timings()
        steps = self._spent.latest.env_steps if self._spent.latest else record.steps_done
        newest = max(checkpoint.list_checkpoints(self._folder), default=None)
        saved = int(newest.name) if newest else None
        seconds = pace([self._spent])
        progress = {
            "run": run.tag,
            "state": _state(at_work, steps, record.planned, saved),
            "steps": steps,
            "planned": record.planned,
            "saved": saved,
            "rate": 1 / seconds if seconds else None,
            "news": max(seen[0] for seen in map(_mark, self._files("config.toml", "timings.jsonl")) if seen) / 1e9,
            "first": first_evaluation(record),
            "archive": self._archived(newest) if newest else None,
            "video": videos.latest(self._folder),
        }
        return Answers(Answer.of(progress), run)

    def _run(self) -> tuple[run_records.Record, Answer]:
        """Return the run's record and answer; unchanged files are not read again, not even damaged ones."""
        seen = [*map(_mark, self._files("config.toml", "evaluations.jsonl", "episodes.csv", "champion.json"))]
        if seen != self._seen:
            try:
                record = run_records.read(self._folder, self._folder.name)
                self._found = record, Answer.of(contents(record, self._folder))
            except ValueError as error:
                self._found = error
            self._seen = seen
        if isinstance(self._found, ValueError):
            raise self._found
        return self._found

    def _follow_timings(self) -> None:
        path = self._folder / "timings.jsonl"
        if self._spent.is_ahead_of(path):  # the file was replaced
            self._spent = Spent()
        self._spent.follow(path)

    def _archived(self, newest: Path) -> dict[str, Any] | None:
        """Return the fitness of the archived policies in the newest checkpoint; nothing else of it is read."""
        state = newest / "state.safetensors"
        if (key := (newest.name, _mark(state))) != self._archive[0]:
            self._archive = key, _archive(state, int(newest.name)) if key[1] else None
        return self._archive[1]

    def _files(self, *names: str) -> list[Path]:
        return [self._folder / name for name in names]


def _mark(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with the file, its modification time first; None if it is no ordinary file."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _state(at_work: bool, steps: int, planned: int, saved: int | None) -> State:
    """Return the state of a run. A run that was stopped has saved its last state; a killed process has not."""
    if at_work:
        return "training"
    if steps >= planned:
        return "finished"
    return "stopped" if saved is not None and saved >= steps else "gone"


def _archive(path: Path, steps: int) -> dict[str, Any] | None:
    """Return the fitness of the archived policies; None if there are none, or the file is removed or damaged."""
    try:
        with safe_open(path, "numpy") as state:
            fitness, size = state.get_tensor(".archive.fitness"), state.get_tensor(".archive.size")
    except (SafetensorError, OSError, TypeError, AttributeError, ValueError):  # also for types that NumPy lacks
        return None
    if [(one.ndim, one.dtype.kind) for one in (fitness, size)] != [(1, "f"), (0, "i")]:
        return None
    return {"steps": steps, "fitness": fitness[: int(size)].tolist()} if size > 0 else None
