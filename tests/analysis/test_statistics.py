"""Statistics against known answers, SciPy, and rliable where it is installed."""

import numpy as np
import pytest
from scipy import stats

from arac.analysis.statistics import (
    area,
    difference_interval,
    final,
    improvement_interval,
    interquartile_interval,
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


def covered(draw, interval, truth, repetitions=600):
    """Return how often an interval covers the truth, over fresh samples."""
    rng = np.random.default_rng(1)
    found = [interval(draw(rng)) for _ in range(repetitions)]
    return np.mean([low <= truth <= high for _, low, high in found])


@pytest.mark.parametrize("runs", [3, 5, 10, 20])
def test_the_interval_of_one_task_covers_the_truth_as_often_as_it_says(runs):
    assert 0.93 <= covered(lambda rng: {"a": rng.normal(3, 2, runs)}, interquartile_interval, 3.0) <= 0.97


@pytest.mark.parametrize("runs", [3, 5, 10])
def test_the_interval_over_tasks_covers_the_truth_as_often_as_it_says(runs):
    """The interval is right for normalised scores of four tasks, with equal and unequal spreads."""

    def draw(rng):
        return {f"task {n}": rng.normal(0.5, width, runs) for n, width in enumerate((0.1, 0.1, 0.2, 0.2))}

    assert 0.92 <= covered(draw, interquartile_interval, 0.5) <= 0.98


@pytest.mark.parametrize("runs", [5, 10])
@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0])
def test_the_interval_of_the_probability_of_improvement_covers_the_truth_as_often_as_it_says(runs, shift):
    def draw(rng):
        return {"a": rng.normal(shift, 1, runs)}, {"a": rng.normal(0, 1, runs)}

    truth = stats.norm.cdf(shift / np.sqrt(2))
    assert 0.93 <= covered(draw, lambda both: improvement_interval(*both), truth) <= 0.975


def test_three_runs_have_the_t_interval_of_their_mean():
    sample = np.array([3.0, 5.0, 10.0])
    ours = interquartile_interval({"a": sample})
    theirs = stats.ttest_1samp(sample, 0).confidence_interval()
    assert ours.value == pytest.approx(6)
    assert ours.low == pytest.approx(theirs.low, abs=0.4)  # as far as 2,000 draws tell the standard error
    assert ours.high == pytest.approx(theirs.high, abs=0.4)


def test_drawing_again_stays_within_a_task():
    """Scores that do not vary within a task give an exact mean over tasks, even if these are far apart."""
    assert interquartile_interval({"a": np.zeros(4), "b": np.full(4, 100.0)}) == (50, 50, 50)


@pytest.mark.parametrize("runs", [1, 2])
def test_fewer_than_three_runs_have_no_interval(runs):
    few, several = {"a": np.arange(1.0, runs + 1)}, {"a": np.arange(5.0) + 2}
    assert np.isnan(interquartile_interval(few)[1:]).all()
    assert np.isnan(interquartile_interval({**several, "b": few["a"]})[1:]).all()
    for sides in ((several, few), (few, several)):
        assert np.isnan(improvement_interval(*sides)[1:]).all()


def test_where_all_runs_are_better_the_interval_still_has_a_width():
    """If three runs are above three others, the estimate is 1 with a wide interval: Newcombe's equation by hand."""
    value, low, high = improvement_interval({"a": np.array([4.0, 5, 6])}, {"a": np.array([1.0, 2, 3])})
    assert (value, high) == (1, 1)
    variance = low * (1 - low) * (1 + 2 * ((1 - low) / (2 - low) + low / (1 + low))) / 9
    assert 1 - low == pytest.approx(1.959964 * np.sqrt(variance), rel=1e-6)
    assert 0.3 < low < 0.6
    opposite = improvement_interval({"a": np.array([1.0, 2, 3])}, {"a": np.array([4.0, 5, 6])})
    np.testing.assert_allclose(opposite, (0, 0, 1 - low), atol=1e-9)


def test_more_tasks_make_the_interval_narrower_by_the_root_of_their_number():
    scores, others = ({"a": RNG.normal(size=8)} for _ in range(2))
    one = improvement_interval(scores, others)
    four = improvement_interval(*({str(n): of["a"] for n in range(4)} for of in (scores, others)))
    assert four.value == pytest.approx(one.value)
    assert four.value - four.low == pytest.approx((one.value - one.low) / 2)
    assert four.high - four.value == pytest.approx((one.high - one.value) / 2)


def test_draws_are_summarised_one_by_one():
    """A statistic of all draws at once equals the statistic of each draw."""
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
    """Return scores in rliable's layout: runs by tasks."""
    return np.stack(list(scores.values()), 1)


def test_summaries_against_rliable():
    metrics = pytest.importorskip("rliable.metrics")
    assert interquartile_mean(SCORES) == pytest.approx(metrics.aggregate_iqm(stacked(SCORES)))
    assert mean(SCORES) == pytest.approx(metrics.aggregate_mean(stacked(SCORES)))
    ours = probability_of_improvement(SCORES, OTHERS)
    assert ours == pytest.approx(metrics.probability_of_improvement(stacked(SCORES), stacked(OTHERS)))


def test_profiles_against_rliable():
    library = pytest.importorskip("rliable.library")
    thresholds = np.linspace(-2, 6, 30)
    theirs = library.score_distributions(stacked(SCORES), thresholds)
    np.testing.assert_allclose(performance_profile(SCORES, thresholds), theirs)


def test_the_interval_of_a_difference_is_scipys_welch():
    ours, others = RNG.normal(1, 2, 4), RNG.normal(0, 0.5, 6)
    found = difference_interval(ours, others)
    expected = stats.ttest_ind(ours, others, equal_var=False).confidence_interval()
    assert found == pytest.approx((ours.mean() - others.mean(), expected.low, expected.high))


def test_a_difference_of_few_or_of_equal_runs():
    assert np.isnan(difference_interval([1.0, 2.0], [0.0, 1.0, 2.0]).low)
    assert difference_interval([1.0] * 3, [0.0] * 3) == (1.0, 1.0, 1.0)
