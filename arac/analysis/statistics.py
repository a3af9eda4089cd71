"""Statistics of few runs: summaries of one run's curve, and of several runs with their uncertainty.

The summaries over runs follow Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice"
(2021). The scores of an algorithm are one array per task with a number for each run; tasks may differ in their number
of runs. Runs are the last axis; leading axes, such as one for bootstrap draws, are kept in the result.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

Scores: TypeAlias = Mapping[str, Float[np.ndarray, "*draws run"]]
REPETITIONS = 2000
ERROR = 0.05  # probability that an interval misses the true value
LEAST_RUNS = 3  # per task, and in a comparison per side: fewer have no interval


class Interval(NamedTuple):
    """An estimate with a 95 % confidence interval."""

    value: float
    low: float
    high: float


def maximum(returns: Float[np.ndarray, " evaluation"]) -> float:
    """Return the best evaluation of a run, as in the paper's tables. It is biased upwards, more so for noisier runs."""
    return float(np.max(returns))


def final(returns: Float[np.ndarray, " evaluation"]) -> float:
    """Return the last evaluation of a run."""
    return float(returns[-1])


def area(steps: Float[np.ndarray, " evaluation"], returns: Float[np.ndarray, " evaluation"]) -> float:
    """Return the area under a learning curve divided by its width: its mean from the first evaluation to the last."""
    if len(steps) == 1:
        return float(returns[0])
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0]))


def interquartile_mean(scores: Scores) -> Any:
    """Return the mean of the middle half of all runs: less noisy than the median, more robust than the mean."""
    return middle_mean(np.concatenate(list(scores.values()), -1))


def middle_mean(values: Float[np.ndarray, "*others run"]) -> Any:
    """Return the mean without the lowest and the highest quarter of the runs, each rounded down to whole runs."""
    count = values.shape[-1]
    cut = count // 4
    return np.sort(values, -1)[..., cut : count - cut].mean(-1)


def mean(scores: Scores) -> Any:
    """Return the mean of the tasks' means, so that each task counts the same."""
    return np.mean([of_task.mean(-1) for of_task in scores.values()], 0)


def performance_profile(scores: Scores, thresholds: Float[np.ndarray, " threshold"]) -> Float[np.ndarray, " threshold"]:
    """Return the fraction of runs that score above each threshold; each task counts the same."""
    return np.asarray(mean({task: of_task[None, :] > thresholds[:, None] for task, of_task in scores.items()}))


def probability_of_improvement(scores: Scores, others: Scores) -> Any:
    """Return the probability that a run is better than one of the others on the same task, averaged over tasks.

    Ties count half.

    Raises:
        ValueError: if they have no task in common.
    """
    common = [task for task in scores if task in others]
    if not common:
        raise ValueError(f"no task in common: {', '.join(scores)} and {', '.join(others)}")
    differences = [scores[task][..., :, None] - others[task][..., None, :] for task in common]
    return np.mean([((one > 0) + 0.5 * (one == 0)).mean((-1, -2)) for one in differences], 0)


def interquartile_interval(scores: Scores, seed: int = 0) -> Interval:
    """Return the interquartile mean of all runs with a 95 % t interval.

    The standard error is that of bootstrap draws within each task, corrected for few runs; for three runs of one task
    the result is the t interval of the mean. A percentile interval would cover 71 % with three runs, 90 % with five.
    """
    value = float(interquartile_mean(scores))
    counts = [len(runs) for runs in scores.values()]
    if min(counts) < LEAST_RUNS:
        return Interval(value, np.nan, np.nan)
    rng = np.random.default_rng(seed)
    ready = {task: to_draw_from(runs, tasks=len(scores)) for task, runs in scores.items()}
    drawn = {task: rng.choice(runs, (REPETITIONS, len(runs))) for task, runs in ready.items()}
    half = float(half_width(interquartile_mean(drawn), sum(counts) - len(counts)))
    return Interval(value, value - half, value + half)


def to_draw_from(values: Float[np.ndarray, "*others run"], tasks: int = 1) -> Float[np.ndarray, "*others run"]:
    """Return a task's runs for bootstrap draws: moved away from their mean, because draws of few runs vary too little.

    Runs of a single task are not moved if the interquartile mean cuts some of them: an extreme run that is drawn twice
    then survives the cut, which makes up for it.
    """
    centre, count = values.mean(-1, keepdims=True), values.shape[-1]
    if tasks == 1 and count // 4:
        return values
    return centre + np.sqrt(count / (count - 1)) * (values - centre)


def half_width(drawn: Float[np.ndarray, "*others draw"], freedom: int) -> Any:
    """Return half of the width of a 95 % t interval, from a statistic of bootstrap draws and its degrees of freedom."""
    from scipy.special import stdtrit

    return stdtrit(freedom, 1 - ERROR / 2) * drawn.std(-1)


def improvement_interval(scores: Scores, others: Scores) -> Interval:
    """Return the probability of improvement with a 95 % score interval.

    On one task it is Newcombe's interval for the area under a ROC curve (2006, method 5), which has a width even if
    all runs of one side are better; the intervals of several tasks are combined by their distances from the estimates.
    """
    common = [task for task in scores if task in others]
    value = float(probability_of_improvement(scores, others))
    if min(min(len(scores[task]), len(others[task])) for task in common) < LEAST_RUNS:
        return Interval(value, np.nan, np.nan)
    each = [
        (
            float(probability_of_improvement({task: scores[task]}, {task: others[task]})),
            len(scores[task]),
            len(others[task]),
        )
        for task in common
    ]
    ends = np.array([[_score_bound(*one, end) - one[0] for one in each] for end in (0.0, 1.0)])
    below, above = np.sqrt((ends**2).sum(1)) / len(common)
    return Interval(value, value - float(below), value + float(above))


def difference_interval(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Return the difference of two means with Welch's 95 % t interval, which allows for unequal variances."""
    value = float(np.mean(values) - np.mean(others))
    if min(len(values), len(others)) < LEAST_RUNS:
        return Interval(value, np.nan, np.nan)
    from scipy.special import stdtrit

    errors = np.array([np.var(of_side, ddof=1) / len(of_side) for of_side in (values, others)])
    if not errors.any():
        return Interval(value, value, value)
    freedom = errors.sum() ** 2 / (errors**2 / (np.array([len(values), len(others)]) - 1)).sum()
    half = float(stdtrit(freedom, 1 - ERROR / 2) * np.sqrt(errors.sum()))
    return Interval(value, value - half, value + half)


def _score_bound(estimate: float, ours: int, theirs: int, end: float) -> float:
    """Return the value between the estimate and `end` whose distance to it is 1.96 standard errors at that value."""
    from scipy.optimize import brentq
    from scipy.special import ndtri

    quantile = ndtri(1 - ERROR / 2)

    def distance(value: float) -> float:
        more = ((ours + theirs) / 2 - 1) * ((1 - value) / (2 - value) + value / (1 + value))
        return (value - estimate) ** 2 - quantile**2 * value * (1 - value) * (1 + more) / (ours * theirs)

    if estimate == end:
        return end
    inside = estimate + (end - estimate) * 1e-9  # an estimate of 0 or 1 itself solves the equation, too
    return float(brentq(distance, inside, end)) if distance(end) > 0 else end
