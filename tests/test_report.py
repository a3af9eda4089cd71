"""Reports from run folders made by hand: what is read, how runs are grouped, the numbers, and what is said in words."""

import csv
import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from scipy.signal import savgol_filter

from arac.algorithms import ALGORITHMS
from arac.cli import main
from arac.errors import UserError
from arac.experiments import gaps, paper, report, statistics, summary, tables
from arac.experiments.collection import Timing, collect, timings
from arac.experiments.curves import curve, interquartile_band
from arac.experiments.grouping import group
from arac.experiments.page import embedded, pictures
from arac.presets import configured, paper_table

REAL = Path(__file__).parents[1] / "results" / "learning"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def run_folder(folder, returns=(1.0, 2.0, 3.0), *, env="Hopper-v5", algo="arac", seed=0, planned=None, **rest):
    """Writes what a run leaves that a report reads; `steps` are those of the evaluations."""
    steps = rest.pop("steps", [10_000 * (place + 1) for place in range(len(returns))])
    extra = {name: rest.pop(name) for name in ("champion", "versions", "kwargs", "limit") if name in rest}
    config, preset = configured(ALGORITHMS[algo].config, env, rest)
    folder.mkdir(parents=True)
    table = {
        "steps": planned or (steps[-1] if steps else 100_000),
        "algorithm": algo,
        "seed": seed,
        "preset": preset or "none",
        "environment": {"id": env, "max_episode_steps": extra.get("limit", 1000), "kwargs": extra.get("kwargs", {})},
        "config": json.loads(json.dumps(asdict(config))),
        "versions": extra.get("versions", {"arac-rl": "0.1.0", "jax": "0.10.2"}),
    }
    (folder / "config.toml").write_text(tomli_w.dumps(table))
    rows = [row(at, value) for at, value in zip(steps, returns, strict=True)]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (folder / "episodes.csv").write_text("env_steps,generation,member,episode,return,length\n")
    times = [{"env_steps": at, "generation": n, "seconds": 60.0 * (n + 1), "phases": {}} for n, at in enumerate(steps)]
    (folder / "timings.jsonl").write_text("".join(json.dumps(one) + "\n" for one in times))
    if "champion" in extra:
        (folder / "champion.json").write_text(json.dumps(extra["champion"]))
    return folder


def row(steps, value, members=3):
    kl = [[0.0 if a == b else a + b / 10 for b in range(members)] for a in range(members)]
    return {
        "env_steps": steps, "generation": 1, "fitness": [value, value - 1, value - 2], "elites": [0], "champion": 0,
        "champion_return": value, "champion_return_std": 0.5, "archive_size": 4,
        "diversity": {"mean_kl": 0.7, "kl": kl},
    }  # fmt: skip


def study_of(*folders):
    return group(collect(folders).records)


def line_of(folder, system="ARAC"):
    return next(line for line in summary.lines(study_of(folder)) if line.system == system)


def said(folder, kind):
    found = collect([folder])
    return [one.text for one in gaps.remarks(group(found.records), found.broken) if one.kind == kind]


def test_runs_are_found_at_any_depth_and_each_once(tmp_path):
    first = run_folder(tmp_path / "deep" / "deeper" / "one")
    run_folder(first / "checkpoints" / "20000")  # not a run: what a run keeps
    run_folder(tmp_path / "two", seed=1)
    assert [record.name for record in collect([tmp_path, first]).records] == [
        f"{tmp_path.name}/deep/deeper/one",
        f"{tmp_path.name}/two",
    ]
    assert len(collect([first]).records) == 1


def test_a_record_has_what_the_files_say(tmp_path):
    champion = {"env_steps": 30_000, "member": 0, "returns": [4.0, 6.0]}
    [record] = collect([run_folder(tmp_path / "run", planned=40_000, champion=champion)]).records
    assert (record.env, record.algorithm, record.seed) == ("Hopper-v5", "arac", 0)
    assert (record.steps_done, record.planned, record.finished) == (30_000, 40_000, False)
    assert record.seconds == 180
    assert record.champion.tolist() == [4, 6]
    np.testing.assert_array_equal(record.returns, [1, 2, 3])


def test_wall_clock_adds_up_over_resumptions(tmp_path):
    folder = run_folder(tmp_path / "run")
    rows = [(10, 1, 5.0), (20, 2, 9.0), (20, 2, 3.0), (30, 3, 8.0)]
    lines = [json.dumps({"env_steps": a, "generation": b, "seconds": c}) for a, b, c in rows]
    (folder / "timings.jsonl").write_text("\n".join([*lines, '{"env_steps": 4']))
    assert collect([folder]).records[0].seconds == 9 + 8


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def append(path, line):
    with path.open("a") as file:
        file.write(line + "\n")


def begin(run):
    (run / "config.toml").unlink()
    (run / ".beginning.tmp").touch()


def test_timings_are_read_line_by_line_without_what_is_torn_or_odd(tmp_path):
    path = tmp_path / "timings.jsonl"
    assert timings(path) == []
    row = {"env_steps": 10, "generation": 1, "seconds": 5.0, "phases": {"update": 4.0}}
    odd = [
        row | oddity for oddity in ({"seconds": 10**400}, {"seconds": float("inf")}, {"phases": [1]}, {"seconds": "5"})
    ]
    path.write_text("\n".join(map(json.dumps, [row, *odd, [], {**row, "generation": 2}, row])))
    assert timings(path) == [Timing(10, 1, 5.0, {"update": 4.0}), Timing(10, 2, 5.0, {"update": 4.0})]


def test_names_that_are_no_text_stay_apart(tmp_path):
    """By their names runs are told apart: two that looked the same would be mixed without a word."""
    for number, name in enumerate([b"r\xff", b"r\xfe", b"r\\xff"]):
        run_folder(tmp_path / os.fsdecode(name), [float(number)], seed=number)
    names = [record.name for record in collect([tmp_path]).records]
    assert {f"{tmp_path.name}/r\\xff", f"{tmp_path.name}/r\\xfe"} < set(names)
    assert len(set(names)) == 3
    assert line_of(tmp_path).maximum.mean == 1
    assert "r\\xfe" in written(tmp_path)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda run: (run / "config.toml").unlink(), "no config.toml"),
        (lambda run: (run / "evaluations.jsonl").unlink(), "no evaluations.jsonl"),
        (lambda run: (run / "config.toml").write_text("steps = "), "config.toml cannot be read"),
        (lambda run: (run / "config.toml").write_text("steps = 3"), "not the config of a run: it has no 'environment'"),
        (lambda run: change(run / "config.toml", '"arac"', '"dqn"'), "there is no algorithm 'dqn'"),
        (lambda run: change(run / "config.toml", "seed = 0", "seed = true"), "True is not a whole number"),
        (lambda run: change(run / "evaluations.jsonl", '{"env_steps": 20000', "torn"), "line 2 of its evaluations"),
        (lambda run: change(run / "evaluations.jsonl", "20000", "5000"), "do not rise"),
        (lambda run: change(run / "evaluations.jsonl", '"fitness": [2.0', '"fitness": ["x"'), "line 2"),
        (begin, "stopped before the run had begun"),
        (
            lambda run: change(run / "evaluations.jsonl", '_return": 2.0', f'_return": {10**400}'),
            "beyond 1e+100 in size",
        ),
        (lambda run: change(run / "evaluations.jsonl", ": [2.0", ": [-1.7e308"), "line 2 of its evaluations"),
        (lambda run: change(run / "evaluations.jsonl", "20000", f"{10**400}"), "beyond 1e+100 in size"),
        (
            lambda run: append(run / "evaluations.jsonl", "[]"),
            "line 4 of its evaluations.jsonl is not an evaluation: its",
        ),
        (
            lambda run: change(run / "evaluations.jsonl", '{"mean_kl"', '[1], "x": {"mean_kl"'),
            "diversity is not a table",
        ),
        (lambda run: change(run / "evaluations.jsonl", "[[0.0, ", "[3, ["), "3 is not a list of numbers"),
        (lambda run: change(run / "config.toml", "steps = 1000", "steps = [1]"), "[1] is not a whole number"),
        (lambda run: change(run / "config.toml", "seed = 0", f"seed = {10**400}"), "beyond 1e+100 in size"),
        (lambda run: change(run / "config.toml", "flows = 4", f"flows = 0x{'f' * 5000}"), "not the config of a run"),
        (lambda run: change(run / "config.toml", '"arac"', '["arac"]'), "there is no algorithm ['arac']"),
    ],
)
def test_what_is_broken_is_said_and_the_rest_is_shown(harm, reason, tmp_path):
    run_folder(tmp_path / "sound", seed=1)
    harm(run_folder(tmp_path / "broken"))
    found = collect([tmp_path])
    assert [record.seed for record in found.records] == [1]
    assert reason in found.broken[0].reason
    report.write([tmp_path], tmp_path / "out")
    text = (tmp_path / "out" / "index.html").read_text()
    assert "Cannot be read (1)" in text
    assert f"{tmp_path.name}/broken" in text
    assert str(tmp_path) not in text  # where it lies on this machine is nobody's business


def test_nothing_to_report_on_is_one_sentence(tmp_path, capsys):
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    complaint = capsys.readouterr().err
    assert "no run at or below" in complaint
    assert complaint.count("\n") == 1
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert main(["report"]) == 2
    assert "at least one run folder" in capsys.readouterr().err
    (run_folder(tmp_path / "run") / "config.toml").unlink()
    with pytest.raises(UserError, match=r"can be read; the first of 1: there is no config.toml"):
        report.write([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_without_an_evaluation_is_listed_and_a_single_one_is_a_dot(tmp_path):
    run_folder(tmp_path / "none", [], steps=[])
    run_folder(tmp_path / "one", [5.0], seed=1, planned=50_000)
    text = written(tmp_path)
    assert "has no evaluation yet" in text
    [shown] = data_of(text)["tasks"][0]["curves"]
    assert shown["steps"] == [10_000]
    assert shown["paper"]["value"] == [5]
    assert shown["total"] == 1


def test_nothing_but_runs_without_an_evaluation_makes_a_page(tmp_path):
    run_folder(tmp_path / "none", [], steps=[])
    text = written(tmp_path)
    assert "No run has an evaluation yet" in text
    assert not (tmp_path / "out" / "curves_paper.png").exists()


def test_a_line_that_is_being_written_does_not_count(tmp_path):
    folder = run_folder(tmp_path / "run")
    with (folder / "evaluations.jsonl").open("a") as file:
        file.write('{"env_steps": 400')
    assert len(collect([folder]).records[0].rows) == 3


def test_numbers_that_are_not_finite_are_left_out_and_said(tmp_path):
    folder = run_folder(tmp_path / "run", [1.0, float("nan"), 3.0])
    change(folder / "evaluations.jsonl", "0.7", "Infinity")
    text = written(tmp_path)
    assert "1 of its evaluations are left out" in text
    assert data_of(text)["runs"][0]["mean_kl"] == [None, 0.7]


def test_a_champion_that_is_older_than_the_run_or_damaged_is_left_out_and_said(tmp_path):
    run_folder(tmp_path / "old", champion={"env_steps": 20_000, "member": 0, "returns": [1.0]})
    bad = run_folder(tmp_path / "bad", seed=1)
    (bad / "champion.json").write_text("{")
    assert line_of(tmp_path).champion is None
    assert "they were played at 20,000 steps, and the run went on to 30,000" in " ".join(said(tmp_path, "left out"))
    assert "cannot be read, so the champion's fresh episodes are left out: it is not JSON" in " ".join(
        said(tmp_path, "left out")
    )


@pytest.mark.parametrize(
    ("champion", "reason"),
    [
        ({"env_steps": 30_000, "returns": [10**400]}, "beyond 1e+100 in size"),
        ({"env_steps": 30_000, "returns": [float("nan")]}, "its returns are not finite numbers"),
        ({"env_steps": 30_000, "returns": 3}, "3 is not a list of numbers"),
        ({"env_steps": 30_000}, "it has no 'returns'"),
        ([], "its content is not a table"),
    ],
)
def test_what_is_wrong_with_a_champion_is_said_and_the_run_is_shown(champion, reason, tmp_path):
    run_folder(tmp_path / "run", champion=champion)
    assert reason in " ".join(said(tmp_path, "left out"))
    assert reason.split("'")[0] in written(tmp_path)


def test_a_setting_may_be_a_date(tmp_path):
    run_folder(tmp_path / "a")
    change(run_folder(tmp_path / "b", seed=1) / "config.toml", "flows = 4", "flows = 1979-05-27")
    assert list(study_of(tmp_path).systems) == ["ARAC", "ARAC, flows 1979-05-27"]


def test_the_largest_numbers_that_are_read_can_be_drawn(tmp_path):
    for seed, value in enumerate((1e100, -1e100)):
        run_folder(tmp_path / str(seed), [value] * 8, seed=seed)
    shown = curve(study_of(tmp_path).groups[0].measured)
    assert shown.smoothed
    assert np.isfinite([*shown.paper, *shown.robust]).all()
    assert np.isfinite([line_of(tmp_path).maximum.std, line_of(tmp_path).area.std]).all()


def test_settings_that_differ_make_another_system_and_running_does_not(tmp_path):
    run_folder(tmp_path / "a", workers=0, replay_capacity=500_000, checkpoint_interval=7)
    run_folder(tmp_path / "b", seed=1, planned=70_000)
    run_folder(tmp_path / "c", ar_coefficient=0.0)
    run_folder(tmp_path / "d", ar_base="gaussian", ar_coefficient=0.5)
    found = study_of(tmp_path)
    assert {one.system: len(one.records) for one in found.groups} == {
        "ARAC": 2,
        "ARAC, ar_coefficient 0": 1,
        "ARAC, ar_base gaussian, ar_coefficient 0.5": 1,
    }
    assert line_of(tmp_path).paper == (3587, 65)
    assert line_of(tmp_path, "ARAC, ar_coefficient 0").paper is None


def test_no_value_of_the_paper_stands_beside_a_variant_that_has_the_plain_name(tmp_path):
    """The label leaves out what all runs share; what the paper has is still not this."""
    run_folder(tmp_path / "a", env="HalfCheetah-v5", ar_coefficient=0.0, hidden_size=8, steps=[10, 20, 1_000_000])
    run_folder(tmp_path / "b", env="HalfCheetah-v5", algo="sac")
    line = line_of(tmp_path)
    assert (line.system, line.paper, line.ranks, line.errata) == ("ARAC", None, None, ())
    assert line_of(tmp_path, "SAC").paper == (11896, 574)
    assert line_of(tmp_path, "SAC").ranks is None  # there is no other to be ranked with
    assert gaps.coverage(study_of(tmp_path))["HalfCheetah"]["arac"] == (0, 0)
    assert gaps.coverage(study_of(tmp_path))["HalfCheetah"]["sac"] == (0, 1)


def test_another_way_of_evaluating_is_no_variant_but_another_way_of_learning_is(tmp_path):
    run_folder(tmp_path / "a", [5.0], eval_interval=5000)
    run_folder(tmp_path / "b", [1.0], seed=1, eval_episodes=3, steps=[1_000_000])
    run_folder(tmp_path / "c", [3.0], seed=2, store_evaluation=True)
    run_folder(tmp_path / "d", [4.0], algo="sac")
    ranks = {line.system: (line.paper is not None, line.ranks) for line in summary.lines(study_of(tmp_path))}
    assert ranks == {
        "ARAC, eval_interval 5000": (True, (1, 1)),
        "ARAC, eval_episodes 3": (True, (2, 1)),
        "ARAC, store_evaluation True": (False, None),
        "SAC": (True, (2, 2)),
    }
    assert gaps.coverage(study_of(tmp_path))["Hopper"]["arac"] == (1, 2)


def test_a_system_has_one_name_on_all_tasks(tmp_path):
    """Each task has its own preset; only what departs from it tells runs apart."""
    run_folder(tmp_path / "a", env="Hopper-v5", hidden_size=64)
    run_folder(tmp_path / "b", env="Ant-v5", hidden_size=64)
    assert list(study_of(tmp_path).systems) == ["ARAC"]
    assert "ARAC on Ant-v5 departs from the preset's settings: hidden_size 64" in said(tmp_path, "other settings")
    run_folder(tmp_path / "c", env="Walker2d-v5")
    assert list(study_of(tmp_path).systems) == ["ARAC", "ARAC, hidden_size 64"]


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
        f"{tmp_path.name}/short is left out: {tmp_path.name}/long is the same task, system and seed"
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
    assert line.robust == (6, 3, 9)
    assert (line.robust_at, line.ends) == (30_000, (30_000, 30_000))


def test_a_young_run_does_not_draw_the_others_back(tmp_path):
    for seed in range(2):
        run_folder(tmp_path / f"a{seed}", [1.0, 2.0, 3.0, 4.0 + seed], seed=seed)
    run_folder(tmp_path / "b", [1.0, 2.0, 3.0, 9.0], algo="sac")
    run_folder(tmp_path / "young", [7.0], algo="sac", seed=1, steps=[5000], planned=40_000)
    run_folder(tmp_path / "younger", [8.0], algo="td3", steps=[4000], planned=40_000)
    ours, theirs, none = (line_of(tmp_path, system) for system in ("ARAC", "SAC", "TD3"))
    assert (ours.robust_at, ours.robust.value, theirs.robust.value) == (40_000, 4.5, 9)
    assert (ours.robust_seeds, theirs.robust_seeds, none.robust_seeds) == (2, 1, 0)
    assert theirs.left_out == ("SAC seed 1 (at 5,000)",)
    assert np.isnan(none.robust).all()
    [comparison] = summary.comparisons(study_of(tmp_path))
    assert comparison.interquartile.keys() == {"ARAC", "SAC", "TD3"}
    assert np.isnan(comparison.interquartile["TD3"]).all()
    assert comparison.profile.keys() == comparison.improvement.keys() == {"ARAC", "SAC"}
    assert comparison.improvement["SAC"]["ARAC"].value == 1
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


def test_systems_are_compared_where_all_runs_have_been_if_none_is_finished(tmp_path):
    run_folder(tmp_path / "a", [1.0, 2.0, 100.0], steps=[10_010, 20_030, 30_001], planned=90_000)
    run_folder(tmp_path / "b", [3.0, 4.0], algo="sac", steps=[10_000, 20_200], planned=30_000)
    ours, theirs = line_of(tmp_path), line_of(tmp_path, "SAC")
    assert (ours.robust.value, theirs.robust.value, ours.robust_at) == (2, 4, 20_200)
    [comparison] = summary.comparisons(study_of(tmp_path))
    assert comparison.improvement["ARAC"]["SAC"].value == 0
    assert comparison.improvement["SAC"]["ARAC"].value == 1
    assert comparison.profile["SAC"][50] == 1
    assert comparison.profile["ARAC"][50] == 0
    assert "do not compare" in " ".join(said(tmp_path, "different lengths"))


def test_scores_are_normalised_within_a_task_and_pooled_over_tasks(tmp_path):
    for place, (env, ours, theirs) in enumerate([("Hopper-v5", 0.0, 10.0), ("Ant-v5", 300.0, 100.0)]):
        run_folder(tmp_path / f"a{place}", [ours], env=env)
        run_folder(tmp_path / f"b{place}", [theirs], env=env, algo="sac")
    run_folder(tmp_path / "alone", [7.0], env="Pendulum-v1")
    everything = summary.comparisons(study_of(tmp_path))[0]
    assert everything.scope == "all tasks"
    assert (
        everything.interquartile["ARAC"].value == 0.5
    )  # 0 and 1; what is alone on a task has nothing to be measured by
    assert np.isnan(everything.interquartile["ARAC"].low)  # one run each: nothing to draw again
    assert everything.improvement["ARAC"]["SAC"].value == 0.5


def test_ranks_stand_beside_the_papers(tmp_path):
    run_folder(tmp_path / "a", [5.0])
    run_folder(tmp_path / "b", [9.0], algo="sac")
    run_folder(tmp_path / "c", [7.0], algo="td3")
    assert line_of(tmp_path).ranks == (3, 1)
    assert line_of(tmp_path, "SAC").ranks == (1, 3)
    assert line_of(tmp_path, "TD3").ranks == (2, 2)


def test_a_system_alone_has_no_rank(tmp_path):
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
    assert (pendulum["iqm_low"], hopper["iqm_low"]) == ("", "3.0")
    assert (
        "| Hopper-v5 | ARAC | 2, 1 unfinished | 30,000 | 7.00 ± 2.83 | 3,587 ± 65 [1] | - | 6.00 ± 4.24 |" in markdown
    )
    assert "| Pendulum-v1 | SAC | 1 | 10,000 | 1,234 | - | - | 1,234 | 1,234 | - | 1,234 |" in markdown
    assert "compare rankings, not returns" in markdown
    assert "1. Hopper-v5: ARAC has 3,587" in markdown
    for name in ("curves_paper", "curves_robust"):
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
    assert tables.spread(summary.Spread(mean, std)) == text


def test_runs_on_a_common_grid(tmp_path):
    run_folder(tmp_path / "a", [0.0, 10.0, 20.0], steps=[10_000, 20_000, 30_000])
    run_folder(tmp_path / "b", [4.0, 14.0], steps=[10_500, 20_500], seed=1, planned=30_000)
    [one] = study_of(tmp_path).groups
    shown = curve(one.measured)
    assert shown.steps.tolist() == [10_000, 20_000, 30_000]
    assert shown.runs[1].tolist()[:2] == [4, 13.5]  # held at its first value; interpolated
    assert shown.count.tolist() == [2, 2, 1]
    assert shown.paper.value.tolist() == [2, 11.75, 20]
    assert shown.paper.high[0] - shown.paper.value[0] == pytest.approx(np.std([0, 4], ddof=1))
    assert shown.paper.high[2] == 20
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
    np.testing.assert_allclose(shown.paper.value, savgol_filter(values, 7, 3))
    np.testing.assert_allclose(shown.robust.value, values)


def test_a_band_is_the_interquartile_mean_at_each_point_with_whole_curves_drawn_again():
    values = np.random.default_rng(3).normal(0, 1, 12)
    band = interquartile_band(np.stack([values, 2 * values], 1))
    alone = statistics.bootstrapped(statistics.interquartile_mean, {"a": values})
    assert band.value[0] == pytest.approx(alone.value)
    assert band.low[0] == pytest.approx(alone.low, abs=0.05)
    assert band.high[0] == pytest.approx(alone.high, abs=0.05)
    assert band.low[1] == pytest.approx(2 * band.low[0])


def test_the_papers_table_is_that_of_its_tasks_and_systems():
    assert paper.TABLE.keys() == paper_table().keys()
    assert paper.SYSTEMS.keys() == ALGORITHMS.keys()
    assert paper.value("Walker2d", "cerl") == (4386, 615)
    assert paper.value("HumanoidStandup", "erl") == (129_000, 4_000)
    assert paper.value("Pendulum", "sac") is None
    assert {one.task for one in paper.ERRATA} <= paper.TABLE.keys()
    assert paper.steps("HumanoidRllab") == 2_000_000


def test_what_is_missing_from_the_papers_experiments_is_counted(tmp_path):
    run_folder(tmp_path / "a", [1.0], steps=[1_000_000])
    run_folder(tmp_path / "b", [1.0], seed=1)
    found = study_of(tmp_path)
    assert gaps.coverage(found)["Hopper"]["arac"] == (1, 2)
    assert gaps.missing(found).startswith(
        "Of the paper's 280 runs (8 tasks, 7 systems, 5 seeds) 278 are not here, and 1"
    )


def test_one_seed_and_other_versions_are_said(tmp_path):
    run_folder(tmp_path / "a")
    run_folder(tmp_path / "b", algo="sac", versions={"jax": "0.11"})
    assert len(said(tmp_path, "one seed")) == 2
    assert said(tmp_path, "different versions") == ["the runs were made with jax 0.10.2, 0.11"]


def written(folder, *others):
    report.write([folder, *others], folder / "out")
    return (folder / "out" / "index.html").read_text()


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_everything_from_files_is_escaped(tmp_path):
    evil = "$x_{</script><script>alert(1)</script><img src=x onerror=alert(2)>$"
    run_folder(tmp_path / "runs" / "<b>name", env=f"{evil}-v1", versions={"jax": evil}, kwargs={"a": evil})
    pics = tmp_path / "runs" / "pics"
    pics.mkdir()
    (pics / "didactic.png").write_bytes(PNG)
    (pics / "didactic.md").write_text(f"| a | b |\n| --- | --- |\n| {evil} | 2 |\n\nBelow {evil}.\n")
    text = written(tmp_path / "runs")
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "<b>name" not in text
    assert text.count("</script>") == 2
    assert evil in data_of(text)["tasks"][0]["name"]


def test_json_in_the_page_knows_no_infinity_and_ends_no_script():
    assert embedded({"a": [float("nan"), float("inf"), 1.5], "b": "</script>"}) == (
        '{"a":[null,null,1.5],"b":"\\u003c/script>"}'
    )


def test_pictures_lie_in_the_page_with_their_tables(tmp_path):
    run_folder(tmp_path / "run")
    (tmp_path / "deceptive.png").write_bytes(PNG)
    table = "| system | found |\n| --- | --- |\n| ARAC | 19 |\n| *a<b* | 2 * 3 * 4 |\n"
    (tmp_path / "deceptive.md").write_text(f"{table}\nFor *20* seeds.\n")
    (tmp_path / "repulsion.png").write_bytes(b"not a picture")
    (tmp_path / "other.png").write_bytes(PNG)
    assert [one.name for one in pictures.find([tmp_path])] == ["deceptive"]
    text = written(tmp_path)
    assert "data:image/png;base64,iVBOR" in text
    assert "<td>ARAC</td><td>19</td>" in text
    assert "<td><em>a&lt;b</em></td><td>2 * 3 * 4</td>" in text
    assert "<p>For <em>20</em> seeds.</p>" in text
    assert "Pictures" not in written(run_folder(tmp_path / "apart" / "run"))


def test_pictures_that_lie_where_the_page_goes_are_shown_and_stay(tmp_path):
    run_folder(tmp_path / "run")
    (tmp_path / "didactic.png").write_bytes(PNG)
    report.write([tmp_path], tmp_path)
    assert "Policy shapes under repulsion" in (tmp_path / "index.html").read_text()
    assert (tmp_path / "didactic.png").read_bytes() == PNG
    before = (tmp_path / "index.html").read_bytes()
    report.write([tmp_path], tmp_path)
    assert (tmp_path / "index.html").read_bytes() == before


def test_pictures_are_not_looked_for_in_what_a_run_keeps(tmp_path):
    run = run_folder(tmp_path / "run")
    for place in (run / "replay", run / "checkpoints" / "10"):
        place.mkdir(parents=True)
        (place / "didactic.png").write_bytes(PNG)
    assert pictures.find([tmp_path]) == []
    aside = tmp_path / "aside" / "replay"  # not a run's
    aside.mkdir(parents=True)
    (aside / "didactic.png").write_bytes(PNG)
    assert len(pictures.find([tmp_path])) == 1


def test_a_folder_of_pictures_goes_with_others_but_not_alone(tmp_path):
    run = run_folder(tmp_path / "run")
    (tmp_path / "pics").mkdir()
    (tmp_path / "pics" / "repulsion.png").write_bytes(PNG)
    report.write([tmp_path / "pics", run], tmp_path / "out")
    assert "data:image/png" in (tmp_path / "out" / "index.html").read_text()
    with pytest.raises(UserError, match="There is no run at or below"):
        report.write([tmp_path / "pics"], tmp_path / "other")


def test_the_same_folders_give_the_same_bytes(tmp_path):
    run_folder(tmp_path / "runs" / "a")
    files = []
    for name in ("first", "second"):
        report.write([tmp_path / "runs"], tmp_path / name)
        files.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert files[0] == files[1]


def test_real_runs_of_this_repository(tmp_path, capsys):
    """Those behind docs/learning.md; tests/test_cli.py reports on one that was just trained."""
    assert main(["report", str(REAL), "--out", str(tmp_path / "page")]) == 0
    printed = capsys.readouterr().out
    assert "| HalfCheetah-v5 | ARAC | 1 | 100,000 | 4,740 | 10,264 ± 271 |" in printed
    data = data_of((tmp_path / "page" / "index.html").read_text())
    assert [len(run["fitness"]) for run in data["runs"]] == [5, 5]
    assert [len(run["kl"]) for run in data["runs"]] == [5, 5]
