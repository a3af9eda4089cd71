"""What can be said about few runs: summaries of one run's curve, and of many runs with their uncertainty.

The summaries over runs follow Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice"
(2021). The scores of an algorithm are one array per task with a number for each run; tasks may have different numbers.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from scipy import stats

Scores: TypeAlias = Mapping[str, Float[np.ndarray, " run"]]
REPETITIONS = 2000


class Interval(NamedTuple):
    value: float
    low: float
    high: float


def maximum(returns: Float[np.ndarray, " evaluation"]) -> float:
    """As the paper's tables have it: the best evaluation of a run. It flatters, the more the noisier the run."""
    return float(np.max(returns))


def final(returns: Float[np.ndarray, " evaluation"], last: int = 1) -> float:
    """The mean of the last evaluations."""
    return float(np.mean(returns[-last:]))


def area(steps: Float[np.ndarray, " evaluation"], returns: Float[np.ndarray, " evaluation"]) -> float:
    """The area under a learning curve over its width: its mean height, from the first evaluation to the last."""
    if len(steps) == 1:
        return float(returns[0])
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0]))


def interquartile_mean(scores: Scores) -> float:
    """The mean of the middle half of all runs of all tasks: less noisy than the median, less swayed than the mean."""
    return float(stats.trim_mean(_pooled(scores), 0.25))


def mean(scores: Scores) -> float:
    """Of the tasks' means: each task counts the same."""
    return float(np.mean([np.mean(of_task) for of_task in scores.values()]))


def performance_profile(scores: Scores, thresholds: Float[np.ndarray, " threshold"]) -> Float[np.ndarray, " threshold"]:
    """The fraction of runs that score above each threshold; each task counts the same."""
    above = [(np.asarray(of_task)[:, None] > thresholds).mean(0) for of_task in scores.values()]
    return np.mean(above, 0)


def probability_of_improvement(scores: Scores, others: Scores) -> float:
    """How likely a run is better than one of the others on the same task, ties counting half; over the tasks, the mean.

    Raises:
        ValueError: if they have no task in common.
    """
    return float(np.mean([_chance(scores[task], others[task]) for task in _common(scores, others)]))


def bootstrapped(statistic: Callable[..., float], *scores: Scores, seed: int = 0, confidence: float = 0.95) -> Interval:
    """A statistic with its percentile interval: runs are drawn again with replacement, within each task."""
    rng = np.random.default_rng(seed)
    drawn = [statistic(*(_again(of, rng) for of in scores)) for _ in range(REPETITIONS)]
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(statistic(*scores), float(low), float(high))


def _pooled(scores: Scores) -> np.ndarray:
    return np.concatenate([np.ravel(of_task) for of_task in scores.values()])


def _common(scores: Scores, others: Scores) -> list[str]:
    tasks = [task for task in scores if task in others]
    if not tasks:
        raise ValueError(f"no task in common: {', '.join(scores)} and {', '.join(others)}")
    return tasks


def _chance(mine: np.ndarray, theirs: np.ndarray) -> float:
    difference = np.asarray(mine)[:, None] - np.asarray(theirs)
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def _again(scores: Scores, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {task: rng.choice(of_task, len(of_task)) for task, of_task in scores.items()}
