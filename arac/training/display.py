"""The display of a run while it trains: a live panel in a terminal, plain lines elsewhere, or nothing."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import numpy as np
import rich.progress
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from arac.algorithms.base import Evaluation, State
from arac.population.diversity import mean_kl
from arac.utils.progress import Progress

# Seconds without output after which a plain line shows the current phase.
HEARTBEAT = 15.0


class Display(Protocol):
    """The interface of a display of a training run; its block lasts as long as the training."""

    def __enter__(self) -> "Display": ...

    def __exit__(self, *failure: object) -> None: ...

    def generation(self, state: State) -> None:
        """Show that a generation is complete."""

    def evaluation(self, evaluation: Evaluation) -> None:
        """Show an evaluation of the population."""


class Silent:
    """A display that shows nothing."""

    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *failure: object) -> None:
        pass

    def generation(self, state: State) -> None:
        pass

    def evaluation(self, evaluation: Evaluation) -> None:
        pass


class Pace:
    """Steps per second and the time left.

    Warm-up steps do not count because they cost almost nothing, and neither does compiling, which happens once.
    """

    def __init__(
        self, env_steps: int, total_steps: int, warmup_steps: int, compiling: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Start the clock; `compiling` returns the seconds that were spent on compiling so far."""
        self._compiling = compiling
        self.env_steps = env_steps
        self.total_steps = total_steps
        self._warmup_steps = warmup_steps
        self._since = self._latest = self._now()
        self._first_steps = env_steps
        self._learning = env_steps >= warmup_steps

    def step(self, env_steps: int) -> None:
        """Record that a generation ended at `env_steps`."""
        now = self._now()
        self.env_steps, self._latest = env_steps, now
        if not self._learning:
            self._since, self._first_steps = now, env_steps
            self._learning = env_steps >= self._warmup_steps

    def _now(self) -> float:
        return time.monotonic() - self._compiling()

    @property
    def steps_per_second(self) -> float | None:
        """The speed since the warm-up; None if nothing is known yet."""
        gained = self.env_steps - self._first_steps
        return gained / (self._latest - self._since) if gained > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """The seconds left at this speed; None if it is not known yet."""
        if self.env_steps >= self.total_steps:
            return 0.0
        if (rate := self.steps_per_second) is None:
            return None
        return max((self.total_steps - self.env_steps) / rate - (self._now() - self._latest), 0.0)

    def __str__(self) -> str:
        parts = [f"{self.env_steps:,} / {self.total_steps:,} steps"]
        if (rate := self.steps_per_second) is not None:
            parts.append(f"{rate:,.0f} steps/s")
        left = self.seconds_left
        parts.append("time left: not known yet" if left is None else f"{clock(left)} left")
        return " · ".join(parts)


class Plain:
    """One line per evaluation, and every `HEARTBEAT` seconds one in between, for logs and pipes."""

    def __init__(self, progress: Progress, pace: Pace) -> None:
        self._progress = progress
        self._pace = pace
        self._last = time.monotonic()

    def __enter__(self) -> "Plain":
        self._progress.on_advance, self._progress.log = self._heartbeat, self._log
        return self

    def __exit__(self, *failure: object) -> None:
        self._progress.on_advance = None

    def generation(self, state: State) -> None:
        self._pace.step(state.env_steps)

    def evaluation(self, evaluation: Evaluation) -> None:
        self._pace.step(evaluation.env_steps)
        kl = mean_kl(evaluation.kl)
        self._log(f"{self._pace} · {measured(evaluation.fitness, evaluation.elites, evaluation.archive_size, kl)}")

    def _heartbeat(self) -> None:
        if time.monotonic() - self._last > HEARTBEAT:
            self._log(f"{self._pace} · {phase_text(self._progress)}")

    def _log(self, line: str) -> None:
        print(line, flush=True)
        self._last = time.monotonic()


class Panel:
    """A live panel of the run in a terminal."""

    def __init__(self, progress: Progress, pace: Pace, title: str, archive_capacity: int | None) -> None:
        self._progress = progress
        self._pace = pace
        self._title = title
        self._archive_capacity = archive_capacity
        self._latest: Evaluation | None = None
        self._best = -np.inf
        self._live = Live(get_renderable=self._render, console=Console(), refresh_per_second=4)

    def __enter__(self) -> "Panel":
        self._live.start(refresh=True)
        self._progress.log = partial(self._live.console.print, markup=False, highlight=False)
        return self

    def __exit__(self, *failure: object) -> None:
        self._live.stop()

    def generation(self, state: State) -> None:
        self._pace.step(state.env_steps)

    def evaluation(self, evaluation: Evaluation) -> None:
        self._latest = evaluation
        self._best = max(self._best, float(evaluation.fitness.max()))

    def _render(self) -> RenderableType:
        head = Text(self._title, style="bold")
        line = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=self._pace.total_steps, completed=self._pace.env_steps, width=40)
        line.add_row(bar, Text(str(self._pace)))
        rows: list[RenderableType] = [head, line, Text(phase_text(self._progress), style="cyan")]
        if self._latest is not None:
            rows += [self._members(self._latest), Text(self._summary(self._latest), style="dim")]
        return Group(*rows)

    def _members(self, evaluation: Evaluation) -> Table:
        table = Table(box=None, pad_edge=False, show_edge=False)
        table.add_column("member")
        table.add_column("fitness", justify="right")
        table.add_column("± std", justify="right", style="dim")
        table.add_column("")
        for member, fitness in enumerate(evaluation.fitness):
            elite = member in evaluation.elites
            note = "champion" if member == evaluation.champion else "elite" if elite else ""
            spread = evaluation.returns[member].std()
            style = "green" if elite else None
            table.add_row(f"{'★' if elite else ' '} {member}", f"{fitness:,.1f}", f"{spread:,.1f}", note, style=style)
        return table

    def _summary(self, evaluation: Evaluation) -> str:
        parts = [f"measured at {evaluation.env_steps:,} steps, generation {evaluation.generation}"]
        parts.append(f"best so far {self._best:,.1f}")
        if self._archive_capacity:
            parts.append(f"archive {evaluation.archive_size}/{self._archive_capacity}")
        if (kl := mean_kl(evaluation.kl)) is not None:
            parts.append(f"mean KL between members {kl:.2f}")
        return " · ".join(parts)


def choose(progress: Progress, pace: Pace, title: str, archive_capacity: int | None, *, show: bool) -> Display:
    """Return the display that suits the output: a live panel only for a terminal."""
    if not show:
        return Silent()
    if sys.stdout.isatty():
        return Panel(progress, pace, title, archive_capacity)
    return Plain(progress, pace)


@contextmanager
def episode_bar(progress: Progress, units: int, what: str = "episodes") -> Iterator[None]:
    """Show a bar with the time left while episodes are played, if the output is a terminal."""
    if not sys.stdout.isatty():
        yield
        return
    with rich.progress.Progress(*rich.progress.Progress.get_default_columns(), transient=True) as bar:
        task = bar.add_task(what, total=units)
        progress.on_advance = lambda: bar.advance(task)
        yield


def measured(fitness: Iterable[float], elites: Iterable[int], archive_size: int, kl: float | None) -> str:
    """Format an evaluation as one line: the fitness of each member, with a star for elites."""
    best = set(elites)
    marks = [f"{value:,.1f}{'*' if member in best else ''}" for member, value in enumerate(fitness)]
    parts = [f"fitness {' '.join(marks)}"]
    if archive_size:
        parts.append(f"archive {archive_size}")
    if kl is not None:
        parts.append(f"mean KL {kl:.2f}")
    return " · ".join(parts)


def phase_text(progress: Progress) -> str:
    """Format the current phase as update 512/1,000 updates."""
    units = "episodes" if progress.name in ("collect", "evaluate") else "updates"
    return f"{progress.name} {progress.done:,}/{progress.total:,} {units}" if progress.total else progress.name


def clock(seconds: float) -> str:
    """Format seconds as 3:07 or 1:02:07."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
