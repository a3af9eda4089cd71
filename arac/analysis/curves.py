"""The learning curve of a system: runs on a common grid of steps, as measured, as the paper draws them, robustly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.signal import savgol_filter

from arac.analysis.run_records import Record
from arac.analysis.statistics import LEAST_RUNS, REPETITIONS, half_width, middle_mean, to_draw_from

WINDOW = 7  # the paper's, for Savitzky-Golay filtering; it does not give the degree
DEGREE = 3


class Band(NamedTuple):
    value: Float[np.ndarray, " point"]
    low: Float[np.ndarray, " point"]
    high: Float[np.ndarray, " point"]


@dataclass(frozen=True)
class Curve:
    """What the runs of a system did over environment steps."""

    steps: Float[np.ndarray, " point"]
    runs: Float[np.ndarray, "run point"]  # NaN where a run has no evaluation nearby
    count: Float[np.ndarray, " point"]  # runs behind each point
    mean: Band  # mean ± one standard deviation over seeds, as measured
    paper: Band  # the same through the paper's filter, where there are enough points
    robust: Band  # interquartile mean with its 95 % interval, as measured
    smoothed: bool  # whether there are


def curve(records: Sequence[Record]) -> Curve:
    """The curve of runs that have an evaluation each."""
    steps, runs = common_grid(records)
    covered = ~np.isnan(runs)
    mean = _mean_and_deviation(runs)
    smoothed = len(steps) >= WINDOW
    paper = Band(*map(smooth, mean)) if smoothed else mean
    return Curve(steps, runs, covered.sum(0), mean, paper, _robust(runs, covered), smoothed)


def common_grid(records: Sequence[Record]) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "run point"]]:
    """Runs, linearly interpolated at the evaluations of the one that has most.

    Generations end with episodes, so runs are evaluated at slightly different steps: beyond its first and last
    evaluation a run keeps its value for half the distance between evaluations, and is NaN from there on.
    """
    grid = max(records, key=lambda record: (len(record.rows), record.steps[-1])).steps
    reach = float(np.median(np.diff(grid))) / 2 if len(grid) > 1 else float(grid[0]) / 2
    ends = [record.steps[-1] for record in records]
    if max(ends) > grid[-1] + reach:  # the run with most evaluations is not the longest: go on at the longest one's
        longest = records[int(np.argmax(ends))].steps
        grid = np.concatenate([grid, longest[longest > grid[-1] + reach]])
    runs = np.array([np.interp(grid, record.steps, record.returns) for record in records])
    for line, record in zip(runs, records, strict=True):
        line[(grid < record.steps[0] - reach) | (grid > record.steps[-1] + reach)] = np.nan
    return grid, runs


def _mean_and_deviation(runs: Float[np.ndarray, "run point"]) -> Band:
    """At each point over the runs that are there; no width where that is one."""
    count = (~np.isnan(runs)).sum(0)
    mean = np.nanmean(runs, 0)
    squares = np.nansum((runs - mean) ** 2, 0)
    spread = np.sqrt(squares / np.maximum(count - 1, 1))
    return Band(mean, mean - spread, mean + spread)


def _robust(runs: Float[np.ndarray, "run point"], covered: Bool[np.ndarray, "run point"]) -> Band:
    """Stretches with the same runs at a time."""
    band = Band(*(np.full(runs.shape[1], np.nan) for _ in Band._fields))
    for there in np.unique(covered, axis=1).T:
        points = (covered == there[:, None]).all(0)
        for line, values in zip(band, interquartile_band(runs[there][:, points]), strict=True):
            line[points] = values
    return band


def interquartile_band(curves: Float[np.ndarray, "run point"], seed: int = 0) -> Band:
    """Return the interquartile mean of runs at each point of their curves, with its 95 % interval there.

    Whole curves are drawn again. The interval is that of `statistics.interquartile_interval`; fewer runs than that asks
    for leave the band without ends.
    """
    value = middle_mean(curves.T)
    if len(curves) < LEAST_RUNS:
        return Band(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    drawn = np.random.default_rng(seed).integers(len(curves), size=(REPETITIONS, len(curves)))
    half = half_width(middle_mean(to_draw_from(curves.T)[:, drawn]), len(curves) - 1)
    return Band(value, value - half, value + half)


def smooth(line: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
    """Return a line through the paper's Savitzky-Golay filter, where it has enough points on both sides.

    Towards the ends the window shrinks with what is left on the shorter side: a filter that goes on beyond them draws
    values that nobody measured.
    """
    filtered = line.copy()
    for half in range(2, WINDOW // 2 + 1):  # with a single neighbour on each side, a cubic passes through all points
        width = 2 * half + 1
        if len(line) >= width:
            inner = savgol_filter(line, width, DEGREE)
            filtered[half : len(line) - half] = inner[half : len(line) - half]
    return filtered
