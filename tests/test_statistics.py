"""Statistics against known answers, SciPy, and rliable where it is installed."""

import numpy as np
import pytest
from scipy import stats

from arac.experiments.statistics import (
    area,
    bootstrapped,
    final,
    interquartile_mean,
    maximum,
    mean,
    performance_profile,
    probability_of_improvement,
)

RNG = np.random.default_rng(0)
SCORES = {f"task {number}": RNG.normal(number, 1, 10) for number in range(4)}
OTHERS = {f"task {number}": RNG.normal(number + 0.5, 1, 10) for number in range(4)}


def test_summaries_of_one_curve():
    returns = np.array([1.0, 5.0, 3.0])
    assert maximum(returns) == 5
    assert final(returns) == 3


def test_the_area_is_the_mean_height_of_the_curve():
    steps = np.array([10.0, 20.0, 40.0])
    assert area(steps, np.array([2.0, 2.0, 2.0])) == pytest.approx(2)
    assert area(steps, np.array([0.0, 1.0, 1.0])) == pytest.approx((5 + 20) / 30)
    assert area(steps[:1], np.array([7.0])) == 7


def test_the_interquartile_mean_leaves_the_outer_quarters_out():
    assert interquartile_mean({"a": np.array([-100.0, 1, 2, 3, 4, 5, 6, 100])}) == pytest.approx(3.5)
    assert interquartile_mean({"a": np.array([-100.0, 1, 2, 3]), "b": np.array([4.0, 5, 6, 100])}) == pytest.approx(3.5)
    assert interquartile_mean({"a": np.array([1.0])}) == 1


def test_each_task_counts_the_same():
    assert mean({"a": np.array([0.0]), "b": np.array([1.0, 1.0, 1.0])}) == pytest.approx(0.5)
    profile = performance_profile({"a": np.array([0.0]), "b": np.array([1.0, 1.0, 1.0])}, np.array([-1.0, 0.0, 1.0]))
    np.testing.assert_allclose(profile, [1, 0.5, 0])


def test_the_probability_of_improvement_is_mann_whitneys():
    expected = np.mean(
        [
            stats.mannwhitneyu(SCORES[task], OTHERS[task]).statistic / (len(SCORES[task]) * len(OTHERS[task]))
            for task in SCORES
        ]
    )
    assert probability_of_improvement(SCORES, OTHERS) == pytest.approx(expected)
    assert probability_of_improvement(SCORES, SCORES) == pytest.approx(0.5)
    assert probability_of_improvement({"a": np.array([1.0, 2])}, {"a": np.array([1.0])}) == pytest.approx(0.75)
    with pytest.raises(ValueError, match="no task in common: a and b"):
        probability_of_improvement({"a": np.ones(2)}, {"b": np.ones(2)})


def test_an_interval_covers_the_truth_as_often_as_it_says():
    """Of the mean of normal scores; percentile intervals of few runs are a little narrow."""
    rng = np.random.default_rng(1)
    hits = 0
    for repetition in range(200):
        sample = {"a": rng.normal(0, 1, 30), "b": rng.normal(2, 1, 30)}
        interval = bootstrapped(mean, sample, seed=repetition)
        hits += interval.low <= 1 <= interval.high
    assert 0.88 <= hits / 200 <= 0.99


def test_an_interval_is_that_of_scipy():
    sample = np.random.default_rng(2).normal(5, 2, 40)
    ours = bootstrapped(mean, {"a": sample})
    theirs = stats.bootstrap((sample,), np.mean, n_resamples=20_000, method="percentile", rng=0).confidence_interval
    assert ours.low == pytest.approx(theirs.low, abs=0.06)
    assert ours.high == pytest.approx(theirs.high, abs=0.06)
    assert ours.value == pytest.approx(sample.mean())


def test_drawing_again_stays_within_a_task():
    """Two tasks far apart: between them nothing varies, so the mean over tasks is exact."""
    assert bootstrapped(mean, {"a": np.zeros(3), "b": np.full(5, 100.0)}) == (50, 50, 50)


def test_one_run_has_no_interval():
    assert bootstrapped(interquartile_mean, {"a": np.array([3.0])})[0] == 3
    assert np.isnan(bootstrapped(interquartile_mean, {"a": np.array([3.0])})[1:]).all()


def test_one_run_on_one_side_has_no_interval_either():
    """Five runs above one give 1 in every draw, but nobody knows where a second run of the other would be."""
    several, one = {"a": np.arange(5.0) + 2}, {"a": np.array([1.0])}
    for scores in ((several, one), (one, several)):
        interval = bootstrapped(probability_of_improvement, *scores)
        assert interval.value in (0, 1)
        assert np.isnan(interval[1:]).all()
    mixed = bootstrapped(probability_of_improvement, {**several, "b": np.ones(2)}, {**one, "b": np.array([0.0, 2.0])})
    assert mixed.low < mixed.value < mixed.high  # another task has runs to draw on both sides


def test_draws_are_summarised_one_by_one():
    """What is done to all draws at once is what would be done to each."""
    rng = np.random.default_rng(3)
    drawn, others = ({"a": rng.normal(size=(4, 5)), "b": rng.normal(size=(4, 7))} for _ in range(2))
    for statistic, of in (
        (interquartile_mean, [drawn]),
        (mean, [drawn]),
        (probability_of_improvement, [drawn, others]),
    ):
        alone = [statistic(*({task: runs[draw] for task, runs in one.items()} for one in of)) for draw in range(4)]
        np.testing.assert_allclose(statistic(*of), alone)


def test_the_interquartile_mean_is_scipys_trimmed_mean():
    for count in (1, 2, 3, 4, 5, 8, 11):
        values = np.random.default_rng(count).normal(size=count)
        assert interquartile_mean({"a": values}) == pytest.approx(stats.trim_mean(values, 0.25))


def stacked(scores):
    """As rliable has them: runs by tasks."""
    return np.stack(list(scores.values()), 1)


def test_summaries_against_rliable():
    metrics = pytest.importorskip("rliable.metrics")
    assert interquartile_mean(SCORES) == pytest.approx(metrics.aggregate_iqm(stacked(SCORES)))
    assert mean(SCORES) == pytest.approx(metrics.aggregate_mean(stacked(SCORES)))
    ours = probability_of_improvement(SCORES, OTHERS)
    assert ours == pytest.approx(metrics.probability_of_improvement(stacked(SCORES), stacked(OTHERS)))


def test_profiles_and_intervals_against_rliable():
    """The bootstrap draws other numbers than ours, so the intervals agree only as far as 2,000 repetitions do."""
    library, metrics = pytest.importorskip("rliable.library"), pytest.importorskip("rliable.metrics")
    thresholds = np.linspace(-2, 6, 30)
    theirs = library.score_distributions(stacked(SCORES), thresholds)
    np.testing.assert_allclose(performance_profile(SCORES, thresholds), theirs)
    _, intervals = library.get_interval_estimates(
        {"a": stacked(SCORES)}, lambda scores: np.array([metrics.aggregate_iqm(scores)]), reps=2000
    )
    low, high = intervals["a"][:, 0]
    ours = bootstrapped(interquartile_mean, SCORES)
    assert ours.low == pytest.approx(low, abs=0.1 * (high - low))
    assert ours.high == pytest.approx(high, abs=0.1 * (high - low))
