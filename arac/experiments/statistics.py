"""What can be said about few runs: summaries of one run's curve, and of many runs with their uncertainty.

The summaries over runs follow Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice"
(2021). The scores of an algorithm are one array per task with a number for each run; tasks may have different numbers.
The runs are the last axis: with axes before it, such as one for draws of a bootstrap, a summary has those.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

Scores: TypeAlias = Mapping[str, Float[np.ndarray, "*draws run"]]
REPETITIONS = 2000
QUANTILES = (0.025, 0.975)


class Interval(NamedTuple):
    value: float
    low: float
    high: float


def maximum(returns: Float[np.ndarray, " evaluation"]) -> float:
    """As the paper's tables have it: the best evaluation of a run. It flatters, the more the noisier the run."""
    return float(np.max(returns))


def final(returns: Float[np.ndarray, " evaluation"]) -> float:
    """The last evaluation of a run."""
    return float(returns[-1])


def area(steps: Float[np.ndarray, " evaluation"], returns: Float[np.ndarray, " evaluation"]) -> float:
    """The area under a learning curve over its width: its mean height, from the first evaluation to the last."""
    if len(steps) == 1:
        return float(returns[0])
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0]))


def interquartile_mean(scores: Scores) -> Any:
    """The mean of the middle half of all runs of all tasks: less noisy than the median, less swayed than the mean."""
    return middle_mean(np.concatenate(list(scores.values()), -1))


def middle_mean(values: Float[np.ndarray, "*others run"]) -> Any:
    """Without the lowest and the highest quarter of the runs, as many whole runs as that is."""
    count = values.shape[-1]
    cut = count // 4
    return np.sort(values, -1)[..., cut : count - cut].mean(-1)


def mean(scores: Scores) -> Any:
    """Of the tasks' means: each task counts the same."""
    return np.mean([of_task.mean(-1) for of_task in scores.values()], 0)


def performance_profile(scores: Scores, thresholds: Float[np.ndarray, " threshold"]) -> Float[np.ndarray, " threshold"]:
    """The fraction of runs that score above each threshold; each task counts the same."""
    return np.asarray(mean({task: of_task[None, :] > thresholds[:, None] for task, of_task in scores.items()}))


def probability_of_improvement(scores: Scores, others: Scores) -> Any:
    """How likely a run is better than one of the others on the same task, ties counting half; over the tasks, the mean.

    Raises:
        ValueError: if they have no task in common.
    """
    common = [task for task in scores if task in others]
    if not common:
        raise ValueError(f"no task in common: {', '.join(scores)} and {', '.join(others)}")
    differences = [scores[task][..., :, None] - others[task][..., None, :] for task in common]
    return np.mean([((one > 0) + 0.5 * (one == 0)).mean((-1, -2)) for one in differences], 0)


def bootstrapped(statistic: Callable[..., Any], *scores: Scores, seed: int = 0) -> Interval:
    """A statistic with its 95 % percentile interval: runs are drawn again with replacement, within each task.

    Where some scores have one run in every task, nothing of theirs can be drawn again: the interval has NaN for its
    ends, since the others alone would make it too narrow, or leave it no width.
    """
    value = float(statistic(*scores))
    if any(all(len(of_task) == 1 for of_task in of.values()) for of in scores):
        return Interval(value, np.nan, np.nan)
    rng = np.random.default_rng(seed)
    drawn = [{task: rng.choice(runs, (REPETITIONS, len(runs))) for task, runs in of.items()} for of in scores]
    low, high = np.quantile(statistic(*drawn), QUANTILES)
    return Interval(value, float(low), float(high))
