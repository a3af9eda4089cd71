"""The loop of a sweep: it skips finished runs, resumes interrupted ones and retries failed ones."""

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from arac.errors import EnvironmentFailure, Interrupted, UserError
from arac.storage import run_folder
from arac.sweeps.backends import Engine
from arac.sweeps.display import Display
from arac.sweeps.jobs import Job, check, is_finished, saved_steps
from arac.sweeps.process import Ended, log_of
from arac.sweeps.status import HEARTBEAT, Entry, SweepStatus
from arac.utils.progress import Progress

RETRIES = 2
_LOOK = 1.0  # seconds between two reads of the progress of the runs
_PAUSE = 5.0  # seconds before a retry, for each failure in a row beyond the first
_ON_THEIR_WAY = 10.0  # seconds until the last files of a run are visible on a shared file system
_REFUSED = 2  # exit status of a run with a `UserError`, which a retry would raise again


def carry_out(
    jobs: Sequence[Job],
    parent: Path,
    engine: Engine,
    *,
    retries: int = RETRIES,
    show: bool = True,
    on_finish: Callable[[Job], None] | None = None,
) -> None:
    """Ensure that every job has a finished run in its folder below `parent`.

    A failed run is resumed from its last checkpoint. After `retries` further attempts without a new checkpoint it is
    given up, and reported at the end.

    Args:
        jobs: the wanted runs, in the order in which they are started.
        parent: the parent of the run folders.
        engine: the executor of the runs.
        retries: number of further attempts at a run that fails without a new checkpoint.
        show: print the progress.
        on_finish: called for every job with a finished run, including those that were finished before.

    Raises:
        UserError: if a folder holds another run than its job, or a longer one, or another process works on it.
        EnvironmentFailure: if runs fail; the others are finished first.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, with a checkpoint of each run written.
    """
    check(jobs, parent)
    try:
        (parent / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot create {parent} ({error.strerror}); choose another folder.") from None
    lock = _locked(parent)
    progress = Progress()
    try:
        with progress.handle_signals(), engine:
            status = SweepStatus(jobs, parent, engine=engine.name, places=engine.places())
            try:
                _work(status, engine, retries, progress, show, on_finish)
            except Interrupted:
                if show:
                    print("\nstopping: the runs save their checkpoints first", flush=True)
                raise
            finally:
                status.write(at_work=False)
    finally:
        os.close(lock)
    if failed := [entry for entry in status.entries if entry.state == "failed"]:
        raise EnvironmentFailure(_told(failed, status))


def _work(
    status: SweepStatus,
    engine: Engine,
    retries: int,
    progress: Progress,
    show: bool,
    on_finish: Callable[[Job], None] | None,
) -> None:
    finished = deque(entry for entry in status.entries if entry.state == "finished" and on_finish)
    waiting = deque(entry for entry in status.entries if entry.state == "waiting")
    under_way = 0
    looked = written = 0.0
    with Display(status, show=show) as display:
        while waiting or under_way or finished:
            progress.check()
            under_way += _start(waiting, engine, status)
            ended = _settled(engine, status, retries, display)
            under_way -= len(ended)
            waiting.extend(entry for entry in ended if entry.state == "waiting")
            finished.extend(entry for entry in ended if entry.state == "finished" and on_finish)
            if finished and on_finish:  # one per iteration, since it may take a while
                _hand_over(finished.popleft(), on_finish)
            began = False
            if time.monotonic() > looked + _LOOK or not (waiting or under_way):
                status.places = engine.places()
                began = _see_who_began(status, engine)
                status.look()
                display.show()
                looked = time.monotonic()
            if ended or began or time.monotonic() > written + HEARTBEAT:
                status.write()
                written = time.monotonic()
            time.sleep(0.05)


def _start(waiting: deque[Entry], engine: Engine, status: SweepStatus) -> int:
    """Start the runs that are due while the engine has room, and return their number."""
    before = len(waiting)
    while waiting and waiting[0].not_before < time.monotonic() and engine.has_room():
        entry = waiting.popleft()
        entry.saved = saved_steps(status.parent / entry.job.name)
        engine.start(entry.job, status.parent)
    return before - len(waiting)


def _settled(engine: Engine, status: SweepStatus, retries: int, display: Display) -> list[Entry]:
    """Settle the runs whose attempts have ended, and return them."""
    entries = []
    for job, ended in engine.ended():
        entries.append(entry := status.of(job))
        _settle(entry, ended, status, retries)
        display.tell(entry)
    return entries


def _hand_over(entry: Entry, on_finish: Callable[[Job], None]) -> None:
    """Call `on_finish` for a finished run; if it fails, mark the run as failed, so that the others continue."""
    try:
        on_finish(entry.job)
    except (UserError, EnvironmentFailure, OSError) as error:
        entry.state, entry.said = "failed", str(error)


def _settle(entry: Entry, ended: Ended, status: SweepStatus, retries: int) -> None:
    """Set the state of a run whose attempt has ended: finished, waiting for a retry, or failed."""
    folder = status.parent / entry.job.name
    give_up = time.monotonic() + _ON_THEIR_WAY
    while ended.status == 0 and not is_finished(entry.job, folder) and time.monotonic() < give_up:
        time.sleep(0.1)
    entry.look(folder)
    if is_finished(entry.job, folder):
        entry.state, entry.losses, entry.said = "finished", 0, ""
        return
    entry.said = ended.said
    entry.losses = 1 if saved_steps(folder) > entry.saved else entry.losses + 1
    entry.state = "failed" if entry.losses > retries or ended.status == _REFUSED else "waiting"
    entry.not_before = time.monotonic() + _PAUSE * (entry.losses - 1)


def _see_who_began(status: SweepStatus, engine: Engine) -> bool:
    """Mark the runs that have begun as running, and return whether there were any."""
    began = [entry for entry in status.entries if entry.state == "waiting" and engine.at_work(entry.job)]
    for entry in began:
        entry.state = "running"
    return bool(began)


def _told(failed: Sequence[Entry], status: SweepStatus) -> str:
    many = f"{len(failed)} of {len(status.entries)} runs failed"
    return "\n".join(
        [f"{many}; the same command tries them again."]
        + [f"\n{entry.job.name} ({log_of(entry.job, status.parent)}):\n{entry.said}" for entry in failed]
    )


def _locked(parent: Path) -> int:
    """Lock a folder and return the lock; retry, since a process that checks the lock holds it for a moment."""
    for _ in range(10):
        with contextlib.suppress(UserError):
            return run_folder.lock(parent)
        time.sleep(0.1)
    return run_folder.lock(parent)
