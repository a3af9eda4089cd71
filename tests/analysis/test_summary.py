"""The grouping of runs, the numbers and curves of a report, and the missing experiments of the paper."""

import csv

import numpy as np
import pytest
from run_folders import data_of, line_of, run_folder, said, study_of, written
from scipy.signal import savgol_filter

from arac.algorithms.arac import ARACConfig
from arac.algorithms.presets import paper_table
from arac.algorithms.registry import ALGORITHMS
from arac.analysis import caveats, paper, report, statistics, summary, tables
from arac.analysis.curves import curve, interquartile_band, smooth
from arac.analysis.grouping import Variant

ARAC, SAC, TD3 = Variant("arac"), Variant("sac"), Variant("td3")


def test_settings_that_differ_make_another_variant_and_running_does_not(tmp_path):
    run_folder(tmp_path / "a", workers=0, episode_timeout=30.0, checkpoint_interval=7)
    run_folder(tmp_path / "b", seed=1, planned=70_000)
    run_folder(tmp_path / "c", ar_coefficient=0.0)
    run_folder(tmp_path / "d", ar_base="gaussian", ar_coefficient=0.5)
    found = study_of(tmp_path)
    assert {str(one.variant): len(one.records) for one in found.groups} == {
        "ARAC": 2,
        "ARAC, ar_coefficient 0": 1,
        "ARAC, ar_base gaussian, ar_coefficient 0.5": 1,
    }
    assert line_of(tmp_path).paper == (3587, 65)
    assert line_of(tmp_path, "ARAC, ar_coefficient 0").paper is None


def test_no_value_of_the_paper_stands_beside_a_variant_that_has_the_plain_name(tmp_path):
    """The label omits settings that all runs share, and the variant is still not the paper's."""
    run_folder(tmp_path / "a", env="HalfCheetah-v5", ar_coefficient=0.0, hidden_size=8, steps=[10, 20, 1_000_000])
    run_folder(tmp_path / "b", env="HalfCheetah-v5", algo="sac")
    line = line_of(tmp_path)
    assert (str(line.variant), line.paper, line.ranks, line.errata) == ("ARAC", None, None, ())
    assert line_of(tmp_path, "SAC").paper == (11896, 574)
    assert line_of(tmp_path, "SAC").ranks is None  # there is no other variant to rank it against
    assert caveats.coverage(study_of(tmp_path))["HalfCheetah"]["arac"] == (0, 0)
    assert caveats.coverage(study_of(tmp_path))["HalfCheetah"]["sac"] == (0, 1)


def test_a_variant_goes_by_the_name_of_its_preset(tmp_path):
    letter = {**ARACConfig.named_presets["paper-letter"], "temperature": 0.05}  # the paper's for Hopper
    for number, settings in enumerate(({}, letter, {**letter, "temperature": 0.1}, {"ar_coefficient": 1.0})):
        run_folder(tmp_path / str(number), [1.0], **settings)
    variants = {str(line.variant) for line in summary.lines(study_of(tmp_path))}
    assert variants == {"ARAC", "ARAC, paper-letter", "ARAC, paper-letter, temperature 0.1", "ARAC, ar_coefficient 1"}


def test_settings_that_did_not_exist_yet_are_what_they_were_then(tmp_path):
    folder = run_folder(tmp_path / "old", [1.0], algo="arac")
    later = ("ar_divergence", "ar_from", "ar_felt_by")
    lines = (folder / "config.toml").read_text().splitlines()
    (folder / "config.toml").write_text("\n".join(line for line in lines if not line.startswith(later)))
    run_folder(tmp_path / "new", [1.0])
    variants = {str(line.variant) for line in summary.lines(study_of(tmp_path))}
    assert variants == {"ARAC", "ARAC, ar_divergence kl, ar_felt_by all, ar_from archive"}


def test_another_way_of_evaluating_is_no_variant_but_another_way_of_learning_is(tmp_path):
    run_folder(tmp_path / "a", [5.0], eval_interval=5000)
    run_folder(tmp_path / "b", [1.0], seed=1, eval_episodes=3, steps=[1_000_000])
    run_folder(tmp_path / "c", [3.0], seed=2, store_evaluation=True)
    run_folder(tmp_path / "d", [4.0], algo="sac")
    ranks = {str(line.variant): (line.paper is not None, line.ranks) for line in summary.lines(study_of(tmp_path))}
    assert ranks == {
        "ARAC": (True, (2, 1)),
        "ARAC, store_evaluation True": (False, None),
        "SAC": (True, (1, 2)),
    }
    assert caveats.coverage(study_of(tmp_path))["Hopper"]["arac"] == (1, 2)


def test_a_policy_of_the_users_own_is_a_variant(tmp_path):
    run_folder(tmp_path / "plain", [5.0])
    run_folder(tmp_path / "own", [9.0], policy="module.Own")
    assert said(tmp_path, "duplicate") == []
    assert (line_of(tmp_path).maximum.mean, line_of(tmp_path).paper) == (5, (3587, 65))
    own = line_of(tmp_path, "ARAC, policy module.Own")
    assert (own.maximum.mean, own.paper) == (9, None)
    assert line_of(tmp_path / "own").paper is None  # also without another run to distinguish it from
    assert said(tmp_path / "own", "other settings") == [
        "ARAC on Hopper-v5 departs from the preset's settings: policy module.Own"
    ]


def test_a_variant_has_one_name_on_all_tasks(tmp_path):
    """Each task has a preset; only settings that differ from it distinguish variants."""
    run_folder(tmp_path / "a", env="Hopper-v5", hidden_size=64)
    run_folder(tmp_path / "b", env="Ant-v5", hidden_size=64)
    assert list(map(str, study_of(tmp_path).variants)) == ["ARAC"]
    assert "ARAC on Ant-v5 departs from the preset's settings: hidden_size 64" in said(tmp_path, "other settings")
    run_folder(tmp_path / "c", env="Walker2d-v5")
    assert list(map(str, study_of(tmp_path).variants)) == ["ARAC", "ARAC, hidden_size 64"]


def test_another_environment_is_another_task(tmp_path):
    run_folder(tmp_path / "a")
    run_folder(tmp_path / "b", limit=500)
    run_folder(tmp_path / "c", kwargs={"reset_noise_scale": 0.0})
    assert study_of(tmp_path).tasks == [
        "Hopper-v5, max_episode_steps 1000",
        "Hopper-v5, max_episode_steps 500",
        "Hopper-v5, reset_noise_scale 0",
    ]
    assert "reset_noise_scale 0 is not one of the paper's eight" in " ".join(said(tmp_path, "not in the paper"))


def test_of_duplicates_the_one_that_went_furthest_stands(tmp_path):
    run_folder(tmp_path / "short", [1.0])
    run_folder(tmp_path / "long", [1.0, 9.0])
    assert line_of(tmp_path).maximum.mean == 9
    assert said(tmp_path, "duplicate") == [
        f"{tmp_path.name}/short is left out: {tmp_path.name}/long has the same task, algorithm, settings and seed"
    ]


def test_the_numbers_of_a_line_by_hand(tmp_path):
    run_folder(tmp_path / "a", [1.0, 5.0, 3.0], champion={"env_steps": 30_000, "member": 0, "returns": [2.0, 4.0]})
    run_folder(tmp_path / "b", [2.0, 4.0, 9.0], seed=1)
    line = line_of(tmp_path)
    assert line.maximum == summary.Spread(7, pytest.approx(np.sqrt(8)))  # 5 and 9
    assert line.final == summary.Spread(6, pytest.approx(np.sqrt(18)))  # 3 and 9
    assert line.area == summary.Spread(pytest.approx((3.5 + 4.75) / 2), pytest.approx(1.25 / np.sqrt(2)))
    assert line.champion == summary.Spread(3, None)
    assert (line.champions, line.seeds, line.unfinished) == (1, 2, 0)
    assert line.robust.value == 6
    assert np.isnan(line.robust[1:]).all(), "two runs are too few"
    assert (line.robust_at, line.ends) == (30_000, (30_000, 30_000))


def test_a_young_run_does_not_draw_the_others_back(tmp_path):
    for seed in range(2):
        run_folder(tmp_path / f"a{seed}", [1.0, 2.0, 3.0, 4.0 + seed], seed=seed)
    run_folder(tmp_path / "b", [1.0, 2.0, 3.0, 9.0], algo="sac")
    run_folder(tmp_path / "young", [7.0], algo="sac", seed=1, steps=[5000], planned=40_000)
    run_folder(tmp_path / "younger", [8.0], algo="td3", steps=[4000], planned=40_000)
    ours, theirs, none = (line_of(tmp_path, label) for label in ("ARAC", "SAC", "TD3"))
    assert (ours.robust_at, ours.robust.value, theirs.robust.value) == (40_000, 4.5, 9)
    assert (ours.robust_seeds, theirs.robust_seeds, none.robust_seeds) == (2, 1, 0)
    assert theirs.left_out == ("SAC seed 1 (at 5,000)",)
    assert np.isnan(none.robust).all()
    [comparison] = summary.comparisons(study_of(tmp_path))
    assert comparison.interquartile.keys() == {ARAC, SAC, TD3}
    assert np.isnan(comparison.interquartile[TD3]).all()
    assert comparison.profile.keys() == comparison.improvement.keys() == {ARAC, SAC}
    assert comparison.improvement[SAC][ARAC].value == 1
    sentence = "Not yet at 40,000 steps of Hopper-v5, and left out: SAC seed 1 (at 5,000); TD3 seed 0 (at 4,000)."
    text = written(tmp_path)
    assert sentence in data_of(text)["comparisons"][0]["note"]
    assert f"In the IQM: {sentence}" in text
    assert "1 of 2 seeds" in text
    markdown = (tmp_path / "out" / "table.md").read_text()
    assert sentence in markdown
    assert "| Hopper-v5 | TD3 | 1, 1 unfinished | 4,000 | 8 |" in markdown
    assert "| 8 | 8 | - | - |\n" in markdown
    shown = {row["system"]: row for row in csv.DictReader((tmp_path / "out" / "table.csv").open())}
    assert (shown["TD3"]["iqm"], shown["TD3"]["iqm_seeds"], shown["SAC"]["iqm_seeds"]) == ("", "0", "1")


def test_nobody_is_left_out_where_all_are_there(tmp_path):
    run_folder(tmp_path / "a")
    assert "left out:" not in report.write([tmp_path], tmp_path / "out")
    assert "left out:" not in (tmp_path / "out" / "index.html").read_text()


def test_algorithms_are_compared_where_all_runs_have_been_if_none_is_finished(tmp_path):
    run_folder(tmp_path / "a", [1.0, 2.0, 100.0], steps=[10_010, 20_030, 30_001], planned=90_000)
    run_folder(tmp_path / "b", [3.0, 4.0], algo="sac", steps=[10_000, 20_200], planned=30_000)
    ours, theirs = line_of(tmp_path), line_of(tmp_path, "SAC")
    assert (ours.robust.value, theirs.robust.value, ours.robust_at) == (2, 4, 20_200)
    [comparison] = summary.comparisons(study_of(tmp_path))
    assert comparison.improvement[ARAC][SAC].value == 0
    assert comparison.improvement[SAC][ARAC].value == 1
    assert comparison.profile[SAC][50] == 1
    assert comparison.profile[ARAC][50] == 0
    assert "do not compare" in " ".join(said(tmp_path, "different lengths"))


def test_scores_are_normalised_within_a_task_and_pooled_over_tasks(tmp_path):
    for place, (env, ours, theirs) in enumerate([("Hopper-v5", 0.0, 10.0), ("Ant-v5", 300.0, 100.0)]):
        run_folder(tmp_path / f"a{place}", [ours], env=env)
        run_folder(tmp_path / f"b{place}", [theirs], env=env, algo="sac")
    run_folder(tmp_path / "alone", [7.0], env="Pendulum-v1")
    everything = summary.comparisons(study_of(tmp_path))[0]
    assert everything.scope == "all tasks"
    assert everything.interquartile[ARAC].value == 0.5  # 0 and 1; a variant alone on a task cannot be normalised
    assert np.isnan(everything.interquartile[ARAC].low)  # one run each: nothing to draw again
    assert everything.improvement[ARAC][SAC].value == 0.5


def test_ranks_stand_beside_the_papers(tmp_path):
    run_folder(tmp_path / "a", [5.0])
    run_folder(tmp_path / "b", [9.0], algo="sac")
    run_folder(tmp_path / "c", [7.0], algo="td3")
    assert line_of(tmp_path).ranks == (3, 1)
    assert line_of(tmp_path, "SAC").ranks == (1, 3)
    assert line_of(tmp_path, "TD3").ranks == (2, 2)


def test_an_algorithm_alone_has_no_rank(tmp_path):
    run_folder(tmp_path / "a")
    assert line_of(tmp_path).paper == (3587, 65)
    assert line_of(tmp_path).ranks is None


def test_csv_and_markdown_have_the_numbers(tmp_path):
    run_folder(tmp_path / "a", [1.0, 5.0, 3.0])
    run_folder(tmp_path / "b", [2.0, 4.0, 9.0], seed=1, planned=90_000)
    run_folder(tmp_path / "c", [1234.5], env="Pendulum-v1", algo="sac")
    markdown = report.write([tmp_path], tmp_path / "out")
    assert markdown == (tmp_path / "out" / "table.md").read_text()
    hopper, pendulum = csv.DictReader((tmp_path / "out" / "table.csv").open())
    assert (hopper["task"], hopper["system"], hopper["seeds"], hopper["unfinished"]) == ("Hopper-v5", "ARAC", "2", "1")
    assert float(hopper["maximum_std"]) == pytest.approx(np.sqrt(8))
    assert (hopper["paper_mean"], hopper["rank"], hopper["paper_rank"]) == ("3587", "", "")
    assert "3,588" in hopper["errata"]
    assert (pendulum["paper_mean"], pendulum["maximum_std"], pendulum["iqm"]) == ("", "", "1234.5")
    assert (pendulum["iqm_low"], hopper["iqm_low"]) == ("", "")  # one run, and two
    assert (
        "| Hopper-v5 | ARAC | 2, 1 unfinished | 30,000 | 7.00 ± 2.83 | 3,587 ± 65 [1] | - | 6.00 ± 4.24 |" in markdown
    )
    assert "| Pendulum-v1 | SAC | 1 | 10,000 | 1,234 | - | - | 1,234 | 1,234 | - | 1,234 |" in markdown
    assert "compare rankings, not returns" in markdown
    assert "1. Hopper-v5: ARAC has 3,587" in markdown
    for name in ("curves_mean", "curves_paper", "curves_robust"):
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "out" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (2758.4, 0.001, "2,758 ± 0"),
        (732.8, 0.0, "732.8 ± 0.0"),
        (7.0, 2.8284, "7.00 ± 2.83"),
        (-0.5, 1234.5, "0 ± 1,234"),
        (212, 1, "212 ± 1"),
        (1234.5, None, "1,234"),
    ],
)
def test_both_sides_of_a_deviation_have_as_many_decimals(mean, std, text):
    assert str(tables.spread(summary.Spread(mean, std))) == text


def test_runs_on_a_common_grid(tmp_path):
    run_folder(tmp_path / "a", [0.0, 10.0, 20.0], steps=[10_000, 20_000, 30_000])
    run_folder(tmp_path / "b", [4.0, 14.0], steps=[10_500, 20_500], seed=1, planned=30_000)
    [one] = study_of(tmp_path).groups
    shown = curve(one.measured)
    assert shown.steps.tolist() == [10_000, 20_000, 30_000]
    assert shown.runs[1].tolist()[:2] == [4, 13.5]  # held at its first value; interpolated
    assert shown.count.tolist() == [2, 2, 1]
    assert shown.mean.value.tolist() == [2, 11.75, 20]
    assert shown.mean.high[0] - shown.mean.value[0] == pytest.approx(np.std([0, 4], ddof=1))
    assert shown.mean.high[2] == 20
    assert shown.robust.value.tolist() == [2, 11.75, 20]
    assert not shown.smoothed
    assert "end between 20,500 and 30,000 steps" in " ".join(said(tmp_path, "different lengths"))


def test_a_run_with_fewer_but_later_evaluations_lengthens_the_grid(tmp_path):
    run_folder(tmp_path / "a", [0.0, 1.0, 2.0], steps=[10_000, 20_000, 30_000])
    run_folder(tmp_path / "b", [0.0, 6.0], steps=[10_000, 60_000], seed=1)
    shown = curve(study_of(tmp_path).groups[0].measured)
    assert shown.steps.tolist() == [10_000, 20_000, 30_000, 60_000]
    assert shown.count.tolist() == [2, 2, 2, 1]


def test_smoothing_is_the_papers_where_there_are_enough_points(tmp_path):
    values = np.random.default_rng(0).normal(0, 1, 9)
    run_folder(tmp_path / "a", values.tolist())
    shown = curve(study_of(tmp_path).groups[0].measured)
    assert shown.smoothed
    np.testing.assert_allclose(shown.paper.value[3:-3], savgol_filter(values, 7, 3)[3:-3])
    np.testing.assert_allclose(shown.mean.value, values)
    np.testing.assert_allclose(shown.robust.value, values)


def test_smoothing_invents_nothing_at_the_ends():
    """A curve that rises to the highest return is not overshot by a filter that extrapolates beyond its end."""
    line = np.array([-1600.0, -1500, -1400, -600, -300, -150, -150, -150, 0])
    smoothed = smooth(line)
    assert smoothed[[0, 1, -2, -1]].tolist() == line[[0, 1, -2, -1]].tolist()
    np.testing.assert_allclose(smoothed[2], savgol_filter(line[:5], 5, 3)[2])
    np.testing.assert_allclose(smoothed[3:-3], savgol_filter(line, 7, 3)[3:-3])
    assert smoothed.max() <= 0


def test_a_band_is_the_interquartile_mean_at_each_point_with_whole_curves_drawn_again():
    values = np.random.default_rng(3).normal(0, 1, 12)
    band = interquartile_band(np.stack([values, 2 * values], 1))
    alone = statistics.interquartile_interval({"a": values})
    assert band.value[0] == pytest.approx(alone.value)
    assert band.low[0] == pytest.approx(alone.low, abs=0.05)
    assert band.high[0] == pytest.approx(alone.high, abs=0.05)
    assert band.low[1] == pytest.approx(2 * band.low[0])


def test_the_papers_table_is_that_of_its_tasks_and_algorithms():
    assert paper.TABLE.keys() == paper_table().keys()
    assert set(paper.COLUMNS) <= ALGORITHMS.keys()
    assert paper.value("Walker2d", "cerl") == (4386, 615)
    assert paper.value("HumanoidStandup", "erl") == (129_000, 4_000)
    assert paper.value("Pendulum", "sac") is None
    assert {one.task for one in paper.ERRATA} <= paper.TABLE.keys()
    assert paper.steps("HumanoidRllab") == 2_000_000


def test_what_is_missing_from_the_papers_experiments_is_counted(tmp_path):
    run_folder(tmp_path / "a", [1.0], steps=[1_000_000])
    run_folder(tmp_path / "b", [1.0], seed=1)
    found = study_of(tmp_path)
    assert caveats.coverage(found)["Hopper"]["arac"] == (1, 2)
    assert caveats.missing(found).startswith(
        "Of the paper's 280 runs (8 tasks, 7 algorithms, 5 seeds) 278 are not here, and 1"
    )


def test_one_seed_and_other_versions_are_said(tmp_path):
    run_folder(tmp_path / "a")
    run_folder(tmp_path / "b", algo="sac", versions={"jax": "0.11"})
    assert len(said(tmp_path, "one seed")) == 2
    assert said(tmp_path, "different versions") == ["the runs were made with jax 0.10.2, 0.11"]
