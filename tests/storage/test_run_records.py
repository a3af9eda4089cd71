"""Run folders are read; for those that cannot be, the reason is reported."""

import json
import os

import numpy as np
import pytest
from run_folders import data_of, line_of, run_folder, said, study_of, written

from arac.analysis import report
from arac.analysis.curves import curve
from arac.cli import main
from arac.errors import UserError
from arac.storage import run_folder as runs
from arac.storage.metrics import Timing, timings
from arac.storage.run_records import collect


@pytest.fixture
def _undrawn(monkeypatch):
    """Skip the figures, which take most of the time, in tests of a report's text."""
    monkeypatch.setattr(report.figures, "draw", lambda *_: None)


def test_runs_are_found_at_any_depth_and_each_once(tmp_path):
    first = run_folder(tmp_path / "deep" / "deeper" / "one")
    for part in runs.FOLDERS:
        run_folder(first / part / "20000")  # part of a run, not a run
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


@pytest.mark.usefixtures("_undrawn")
def test_names_that_are_no_text_stay_apart(tmp_path):
    """Runs are distinguished by their names, so two names must not look the same."""
    for number, name in enumerate([b"r\xff", b"r\xfe", b"r\\xff"]):
        run_folder(tmp_path / os.fsdecode(name), [float(number)], seed=number)
    names = [record.name for record in collect([tmp_path]).records]
    assert {f"{tmp_path.name}/r\\xff", f"{tmp_path.name}/r\\xfe"} < set(names)
    assert len(set(names)) == 3
    assert line_of(tmp_path).maximum.mean == 1
    assert "r\\xfe" in written(tmp_path)


@pytest.mark.usefixtures("_undrawn")
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
        (lambda run: change(run / "config.toml", "seed = 0", "seed = 0\npolicy = 3"), "3 is not the name of a policy"),
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
    assert str(tmp_path) not in text  # the report must not contain this machine's paths


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
    assert "they were played at 20,000 steps, and the run continued to 30,000" in " ".join(said(tmp_path, "left out"))
    assert "cannot be read, so the champion's fresh episodes are left out: it is not JSON" in " ".join(
        said(tmp_path, "left out")
    )


@pytest.mark.usefixtures("_undrawn")
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
    assert list(map(str, study_of(tmp_path).variants)) == ["ARAC", "ARAC, flows 1979-05-27"]


def test_the_largest_numbers_that_are_read_can_be_drawn(tmp_path):
    for seed, value in enumerate((1e100, -1e100, 1e100)):
        run_folder(tmp_path / str(seed), [value] * 8, seed=seed)
    shown = curve(study_of(tmp_path).groups[0].measured)
    assert shown.smoothed
    assert np.isfinite([*shown.paper, *shown.robust]).all()
    assert np.isfinite([line_of(tmp_path).maximum.std, line_of(tmp_path).area.std]).all()
