"""The learning curve of an algorithm: its runs on a common grid of steps, as measured, as in the paper, and robust."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.signal import savgol_filter

from arac.analysis.statistics import LEAST_RUNS, REPETITIONS, half_width, middle_mean, to_draw_from
from arac.storage.run_records import Record

WINDOW = 7  # the paper's, for Savitzky-Golay filtering; the paper does not give the degree
DEGREE = 3


class Band(NamedTuple):
    """A curve with a lower and an upper bound at each point."""

    value: Float[np.ndarray, " point"]
    low: Float[np.ndarray, " point"]
    high: Float[np.ndarray, " point"]


@dataclass(frozen=True)
class Curve:
    """The runs of an algorithm, or a variant of it, over environment steps."""

    steps: Float[np.ndarray, " point"]
    runs: Float[np.ndarray, "run point"]  # NaN where a run has no evaluation nearby
    count: Float[np.ndarray, " point"]  # number of runs at each point
    mean: Band  # mean ± one standard deviation over seeds, as measured
    paper: Band  # the same through the paper's filter, where there are enough points
    robust: Band  # interquartile mean with its 95 % interval, as measured
    smoothed: bool  # whether there are enough points for the filter


def curve(records: Sequence[Record]) -> Curve:
    """Return the learning curve of runs, each of which must have an evaluation."""
    steps, runs = common_grid(records)
    covered = ~np.isnan(runs)
    mean = _mean_and_deviation(runs)
    smoothed = len(steps) >= WINDOW
    paper = Band(*map(smooth, mean)) if smoothed else mean
    return Curve(steps, runs, covered.sum(0), mean, paper, _robust(runs, covered), smoothed)


def common_grid(records: Sequence[Record]) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "run point"]]:
    """Return the steps of the run with most evaluations, and all runs linearly interpolated there.

    Generations end with episodes, so runs are evaluated at slightly different steps: beyond its first and last
    evaluation a run keeps its value for half the distance between evaluations, and is NaN further out.
    """
    grid = max(records, key=lambda record: (len(record.rows), record.steps[-1])).steps
    reach = float(np.median(np.diff(grid))) / 2 if len(grid) > 1 else float(grid[0]) / 2
    ends = [record.steps[-1] for record in records]
    if max(ends) > grid[-1] + reach:  # the longest run is another one: continue with its steps
        longest = records[int(np.argmax(ends))].steps
        grid = np.concatenate([grid, longest[longest > grid[-1] + reach]])
    runs = np.array([np.interp(grid, record.steps, record.returns) for record in records])
    for line, record in zip(runs, records, strict=True):
        line[(grid < record.steps[0] - reach) | (grid > record.steps[-1] + reach)] = np.nan
    return grid, runs


def _mean_and_deviation(runs: Float[np.ndarray, "run point"]) -> Band:
    """Return mean ± standard deviation over the runs at each point; the width is 0 if there is only one."""
    count = (~np.isnan(runs)).sum(0)
    mean = np.nanmean(runs, 0)
    squares = np.nansum((runs - mean) ** 2, 0)
    spread = np.sqrt(squares / np.maximum(count - 1, 1))
    return Band(mean, mean - spread, mean + spread)


def _robust(runs: Float[np.ndarray, "run point"], covered: Bool[np.ndarray, "run point"]) -> Band:
    """Return the interquartile band, computed for all points with the same runs at once."""
    band = Band(*(np.full(runs.shape[1], np.nan) for _ in Band._fields))
    for there in np.unique(covered, axis=1).T:
        points = (covered == there[:, None]).all(0)
        for line, values in zip(band, interquartile_band(runs[there][:, points]), strict=True):
            line[points] = values
    return band


def interquartile_band(curves: Float[np.ndarray, "run point"], seed: int = 0) -> Band:
    """Return the interquartile mean of runs at each point of their curves, with its 95 % interval there.

    The bootstrap draws whole curves. The interval is that of `statistics.interquartile_interval`; with fewer than
    `LEAST_RUNS` runs its bounds are NaN.
    """
    value = middle_mean(curves.T)
    if len(curves) < LEAST_RUNS:
        return Band(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    drawn = np.random.default_rng(seed).integers(len(curves), size=(REPETITIONS, len(curves)))
    half = half_width(middle_mean(to_draw_from(curves.T)[:, drawn]), len(curves) - 1)
    return Band(value, value - half, value + half)


def smooth(line: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
    """Return a line through the paper's Savitzky-Golay filter, where it has enough points on both sides.

    Towards the ends the window shrinks with what is left on the shorter side: a filter that extends beyond them draws
    values that were not measured.
    """
    filtered = line.copy()
    for half in range(2, WINDOW // 2 + 1):  # with a single neighbour on each side, a cubic passes through all points
        width = 2 * half + 1
        if len(line) >= width:
            inner = savgol_filter(line, width, DEGREE)
            filtered[half : len(line) - half] = inner[half : len(line) - half]
    return filtered
