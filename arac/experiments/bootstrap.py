"""The intervals of `statistics.bootstrapped` for two statistics, with all draws at once: a report needs thousands.

Where every task has one run, nothing can be drawn again: such an interval has NaN for its ends, not no width.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from arac.experiments.statistics import (
    REPETITIONS,
    Interval,
    Scores,
    interquartile_mean,
    probability_of_improvement,
)

QUANTILES = (0.025, 0.975)


class Band(NamedTuple):
    value: Float[np.ndarray, " point"]
    low: Float[np.ndarray, " point"]
    high: Float[np.ndarray, " point"]


def interquartile_band(curves: Float[np.ndarray, "run point"], seed: int = 0) -> Band:
    """The interquartile mean of runs at each point of their curves; whole curves are drawn again."""
    drawn = np.random.default_rng(seed).integers(len(curves), size=(REPETITIONS, len(curves)))
    low, high = np.quantile(_middle(curves[drawn], 1), QUANTILES, axis=0)
    return Band(_middle(curves, 0), low, high)


def interquartile_interval(scores: Scores, seed: int = 0) -> Interval:
    """The interquartile mean over all runs of all tasks; runs are drawn again within each task."""
    if _single(scores):
        return Interval(interquartile_mean(scores), np.nan, np.nan)
    rng = np.random.default_rng(seed)
    drawn = np.concatenate([_again(of_task, rng) for of_task in scores.values()], axis=1)
    low, high = np.quantile(_middle(drawn, 1), QUANTILES)
    return Interval(interquartile_mean(scores), float(low), float(high))


def improvement_interval(scores: Scores, others: Scores, seed: int = 0) -> Interval:
    """The probability of improvement over others; runs of both are drawn again within each task.

    Raises:
        ValueError: if they have no task in common.
    """
    value = probability_of_improvement(scores, others)
    common = [task for task in scores if task in others]
    if _single({task: scores[task] for task in common}) and _single({task: others[task] for task in common}):
        return Interval(value, np.nan, np.nan)
    rng = np.random.default_rng(seed)
    chances = []
    for task in common:
        mine, theirs = _again(scores[task], rng)[:, :, None], _again(others[task], rng)[:, None, :]
        chances.append(((mine > theirs) + 0.5 * (mine == theirs)).mean((1, 2)))
    low, high = np.quantile(np.mean(chances, 0), QUANTILES)
    return Interval(value, float(low), float(high))


def _single(scores: Scores) -> bool:
    return all(len(of_task) == 1 for of_task in scores.values())


def _again(of_task: Float[np.ndarray, " run"], rng: np.random.Generator) -> Float[np.ndarray, "draw run"]:
    return rng.choice(np.asarray(of_task), (REPETITIONS, len(of_task)))


def _middle(values: Float[np.ndarray, "..."], axis: int) -> Float[np.ndarray, "..."]:
    """The mean of the middle half along an axis, as SciPy's trimmed mean has it."""
    count = values.shape[axis]
    cut = count // 4
    return np.sort(values, axis).take(range(cut, count - cut), axis).mean(axis)
