"""The display of a sweep's progress: a live table in a terminal, lines elsewhere, or nothing."""

import sys
import time
from collections.abc import Iterator
from textwrap import shorten

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from arac.sweeps.status import Entry, State, SweepStatus
from arac.training.display import HEARTBEAT, clock

_COLOURS = {"waiting": "dim", "running": "cyan", "stopped": "yellow", "finished": "green", "failed": "red"}
# Order of the rows where not all fit on the screen: active runs first.
_IN_ORDER: tuple[State, ...] = ("running", "failed", "stopped", "waiting", "finished")


class Display:
    """The progress of a sweep on standard output: a live table in a terminal, else plain lines."""

    def __init__(self, status: SweepStatus, *, show: bool) -> None:
        self._status = status
        self._shown = show
        self._live = (
            Live(console=Console(highlight=False), auto_refresh=False) if show and sys.stdout.isatty() else None
        )
        self._last = time.monotonic()

    def __enter__(self) -> "Display":
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._live is not None:
            self._live.update(table(self._status), refresh=True)
            self._live.__exit__(None, None, None)

    def show(self) -> None:
        """Refresh the live table; without one, print a summary at intervals."""
        if self._live is not None:
            self._live.update(table(self._status, room_on(self._live.console)), refresh=True)
        elif self._shown and time.monotonic() > self._last + HEARTBEAT:
            self._log(summary(self._status))

    def tell(self, entry: Entry) -> None:
        """Print the outcome of a run's attempt, where there is no live table."""
        if self._live is None and self._shown:
            self._log(f"{entry.job.name}: {_outcome(entry)}")

    def _log(self, line: str) -> None:
        print(line, flush=True)
        self._last = time.monotonic()


def _outcome(entry: Entry) -> str:
    if entry.state == "finished":
        found = "" if entry.champion_return is None else f", return {entry.champion_return:,.1f}"
        return f"finished at {entry.env_steps:,} steps{found}"
    last = shorten(entry.said.splitlines()[-1], 160, placeholder="…") if entry.said else ""
    return f"failed, no retries left: {last}" if entry.state == "failed" else f"failed, will be retried: {last}"


def summary(status: SweepStatus) -> str:
    """Return one line on the whole sweep: runs by state, steps and time left."""
    done, total = status.steps
    states = [f"{count} {state}" for state in _IN_ORDER[:-1] if (count := status.count(state))]
    finished = f"{status.count('finished')} of {len(status.entries)} runs finished"
    left = status.all_seconds_left()
    ahead = [] if not any(states) else ["time left: not known yet" if left is None else f"{clock(left)} left"]
    return " · ".join([", ".join([finished, *states]), f"{done:,} / {total:,} steps", *ahead])


def table(status: SweepStatus, room: int | None = None) -> Group:
    """Return a table of all runs or, if they are more than `room`, of that many, active ones first."""
    grid = Table("run", "", "", "steps", "return", "left", box=None, pad_edge=False)
    grid.columns[0].overflow = "fold"
    grid.columns[1].no_wrap = grid.columns[3].no_wrap = True
    for number in (3, 4, 5):
        grid.columns[number].justify = "right"
    chosen = list(_by_state(status)) if room is not None and len(status.entries) > room else status.entries
    left = status.seconds_left()
    for entry in chosen[:room]:
        grid.add_row(*_row(entry, left.get(entry.job.name)))
    more = len(chosen) - len(chosen[:room])
    return Group(grid, *([f"… and {more} more"] if more else []), "", summary(status))


def room_on(console: Console) -> int:
    """Return the number of runs that fit on the screen."""
    return max(console.height - 6, 1)


def _by_state(status: SweepStatus) -> Iterator[Entry]:
    for state in _IN_ORDER:
        yield from (entry for entry in status.entries if entry.state == state)


def _row(entry: Entry, left: float | None) -> tuple[str | ProgressBar, ...]:
    again = f", try {entry.losses + 1}" if entry.losses and entry.state in ("waiting", "running") else ""
    return (
        entry.job.name,
        f"[{_COLOURS[entry.state]}]{entry.state}{again}[/]",
        ProgressBar(entry.job.steps, min(entry.env_steps, entry.job.steps), width=8),
        f"{entry.env_steps:,} / {entry.job.steps:,}",
        "" if entry.champion_return is None else f"{entry.champion_return:,.1f}",
        clock(left) if left is not None and entry.state == "running" else "",
    )
