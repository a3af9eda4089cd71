"""Grids of tasks, algorithms and seeds: planned runs, evaluations of champions, expected times."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from arac.agents.classes import SAC, load
from arac.cli import main
from arac.errors import EnvironmentFailure
from arac.experiments import grid
from arac.experiments.catalogue import EXPERIMENTS
from arac.experiments.forecast import Forecast, forecast, trial
from arac.experiments.planning import Size
from arac.sweeps import champions
from arac.sweeps.jobs import Job

SETTINGS = {"hidden_size": 16, "batch_size": 16, "warmup_steps": 100, "eval_interval": 200, "eval_episodes": 1}
SETTINGS |= {"replay_capacity": 10_000, "workers": 0}


def test_the_papers_table_is_280_runs():
    full = EXPERIMENTS["table"].full
    jobs = grid.plan(full)
    assert len(jobs) == len({job.name for job in jobs}) == 8 * 7 * 5
    steps = {job.env: job.steps for job in jobs}
    assert steps["arac/HumanoidRllab-v0"] == 2_000_000
    assert steps["arac/SparseHumanoid-v0"] == 600_000
    assert steps["Hopper-v5"] == 1_000_000
    assert [job.seed for job in jobs] == sorted(job.seed for job in jobs)


def test_any_part_of_it_can_be_chosen():
    jobs = grid.plan(Size(2, 100_000, ("Hopper", "HalfCheetah-v5"), ("arac", "sac")))
    assert [job.name for job in jobs][:4] == [
        "Hopper-v5-arac-seed0", "Hopper-v5-sac-seed0", "HalfCheetah-v5-arac-seed0", "HalfCheetah-v5-sac-seed0"
    ]  # fmt: skip
    assert {job.steps for job in jobs} == {100_000}


def test_the_ablation_differs_in_the_ar_term_alone():
    jobs = grid.plan_ablation(EXPERIMENTS["gaussian"].full)
    assert {job.env for job in jobs} == {"Ant-v5", "Humanoid-v5", "HalfCheetah-v5"}
    flows, gaussian, none = (job.settings for job in jobs[:3])
    assert flows == {"preset": "paper-letter", "sigma": "learned"}
    assert gaussian == {**flows, "ar_base": "gaussian"}
    assert none == {**flows, "ar_coefficient": 0.0}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_small_size_can_be_planned(name):
    experiment = EXPERIMENTS[name]
    assert len({job.name for job in experiment.plan(experiment.small)}) == len(experiment.plan(experiment.small))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["table", "--envs", "Hoper-v5"], "Hopper-v5"),
        (["table", "--algos", "sca"], "'sca'"),
        (["table", "--algos", "td3", "--steps", "20000"], "above 25,000, the warm-up of Twin Delayed DDPG"),
        (["curves", "--seeds", "0"], "--seeds must be at least 1"),
        (["repulsion", "--algos", "sac"], "no choice of --algos"),
        (["gaussian", "--step", "9"], "--steps"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_begins(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid") / "InvertedPendulum-v5-sac-seed0"
    SAC("InvertedPendulum-v5", seed=0, **SETTINGS).learn(400, run_dir=folder)
    return folder


def test_the_champion_is_measured_again_once(run):
    grid.measure_champions(run)
    found = json.loads((run / "champion.json").read_text())
    agent = load(run)
    assert found["env_steps"] == agent.state.env_steps
    np.testing.assert_array_equal(found["returns"], agent.evaluate(grid.FRESH_EPISODES).returns)
    champions.measure(run, 2)
    assert len(json.loads((run / "champion.json").read_text())["returns"]) == 2, "as many as are asked for"
    grid.measure_champions(run)
    before = (run / "champion.json").stat().st_mtime_ns
    grid.measure_champions(run)
    assert (run / "champion.json").stat().st_mtime_ns == before
    assert main(["doctor", str(run)]) == 0


def test_a_champion_of_fewer_steps_is_measured_anew(run):
    (run / "champion.json").write_text(json.dumps({"env_steps": 1, "member": 0, "returns": [0.0]}))
    grid.measure_champions(run)
    assert len(json.loads((run / "champion.json").read_text())["returns"]) == grid.FRESH_EPISODES


def test_the_report_is_made_from_what_is_there(run, tmp_path):
    table = grid.show(Size(1, 400), run.parent, tmp_path / "out")
    assert "| InvertedPendulum-v5 | SAC | 1 |" in table
    assert (tmp_path / "out" / "index.html").exists()


def test_what_is_broken_or_not_finished_does_not_stop_the_report(run, tmp_path):
    """A finished run with a truncated champion.json is among the runs."""
    runs = tmp_path / "runs"
    shutil.copytree(run, runs / run.name)
    (runs / run.name / "champion.json").write_text('{"env_')
    (runs / "broken").mkdir()
    (runs / "broken" / "config.toml").write_text("steps = ")
    SAC("InvertedPendulum-v5", seed=1, **SETTINGS).learn(200, run_dir=runs / "unfinished")
    config = runs / "unfinished" / "config.toml"
    config.write_text(config.read_text().replace("steps = 200", "steps = 9000", 1))
    grid.measure_champions(runs / run.name)
    table = grid.show(Size(2, 400), runs, tmp_path / "out")
    assert "1 unfinished" in table
    assert "broken" in (tmp_path / "out" / "index.html").read_text()
    assert len(json.loads((runs / run.name / "champion.json").read_text())["returns"]) == grid.FRESH_EPISODES


JOB = Job("InvertedPendulum-v5-sac-seed0", "sac", "InvertedPendulum-v5", 0, 400, SETTINGS)


def test_a_trial_counts_updates_and_evaluations():
    """A trial has 200 steps, with one evaluation of one episode."""
    tried = trial(JOB)
    assert tried.seconds > 0
    assert tried.evaluated == pytest.approx(1 / 200)
    arac = trial(replace(JOB, algorithm="arac", settings={**SETTINGS, "eval_episodes": 3}))
    assert arac.evaluated == pytest.approx((5 * 3 + 3) / 200), "five agents, and the champion once more"


def timed(run, rows, torn=""):
    """Write a run's timings: pairs of steps and seconds."""
    lines = [
        json.dumps({"env_steps": steps, "generation": 1, "seconds": seconds, "phases": {"update": 1.0}}) + "\n"
        for steps, seconds in rows
    ]
    (run / "timings.jsonl").write_text("".join(lines) + torn)


def test_the_forecast_takes_the_pace_of_runs_that_are_there(run):
    """A finished run needs no time, and another seed of it has the same pace."""
    other = replace(JOB, name="InvertedPendulum-v5-sac-seed1", seed=1, steps=10_000)
    timed(run, [(300, 2.0), (400, 4.0), (500, 6.0)])
    assert forecast([JOB, other], run.parent, 2) == Forecast(1, 10_000, pytest.approx(10_000 * 0.02), 1)


def test_a_run_that_was_begun_again_and_a_torn_row_do_not_change_its_pace(run):
    """A step takes 0.02 seconds, before a kill at 500 steps and after it, from the checkpoint at 300."""
    timed(run, [(300, 2.0), (400, 4.0), (500, 6.0), (350, 1.0), (450, 3.0), (550, 5.0)], torn='{"env_st')
    other = replace(JOB, name="InvertedPendulum-v5-sac-seed1", seed=1, steps=10_000)
    assert forecast([JOB, other], run.parent, 1).seconds == pytest.approx(10_000 * 0.02)


def test_runs_begin_in_their_turn(run):
    """Three equal runs on two processes take as long as two of them."""
    (run / "timings.jsonl").write_text(
        "".join(
            json.dumps({"env_steps": 300 + 100 * n, "generation": n, "seconds": 2.0 * n, "phases": {"update": n}})
            + "\n"
            for n in (1, 2)
        )
    )
    others = [replace(JOB, name=f"other{seed}", seed=seed, steps=10_000) for seed in range(3)]
    assert forecast([JOB, *others], run.parent, 2).seconds == pytest.approx(20_000 * 0.02)


def test_a_forecast_in_words():
    assert str(Forecast(280, 256_000_000, 90 * 86_400, 2)) == (
        "280 runs, 256,000,000 environment steps: about 90 days, 2 at a time"
    )
    assert str(Forecast(1, 10, 45, 1)) == "1 run, 10 environment steps: about 45 seconds, 1 at a time"
    assert "about 3 hours" in str(Forecast(1, 10, 3 * 3600, 1))


@pytest.fixture
def full(tmp_path, monkeypatch):
    """Return the arguments of a part of a full experiment, all of whose runs take 0.01 seconds per step."""
    monkeypatch.setattr(
        "arac.experiments.forecast.trials", lambda jobs: dict.fromkeys([job.kind for job in jobs], 0.01)
    )
    monkeypatch.setattr("arac.sweeps.backends.cores", lambda: [0, 1])
    monkeypatch.chdir(tmp_path)
    return ["reproduce", "table", "--full", "--envs", "Hopper-v5", "--algos", "sac", "--seeds", "3"]


def test_a_full_experiment_says_how_long_it_takes_and_asks(full, tmp_path, monkeypatch, capsys):
    assert main(full) == 2  # there is no terminal to answer
    said = capsys.readouterr()
    assert said.out == "3 runs, 3,000,000 environment steps: about 6 hours, 2 at a time\n"
    assert said.err == "arac: Nothing was started; give --yes to start without being asked.\n"
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: "n")
    assert main(full) == 2
    assert "Nothing was started" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_no_answer_is_no(full, monkeypatch, capsys):
    def nobody(question):
        raise EOFError

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", nobody)
    assert main(full) == 2
    assert "Nothing was started" in capsys.readouterr().err


def test_what_is_finished_is_shown_again_without_a_question(full, monkeypatch, capsys):
    monkeypatch.setattr("arac.experiments.forecast.steps_of", lambda folder: 1_000_000)
    monkeypatch.setattr("arac.sweeps.scheduler.carry_out", lambda *_, **__: None)
    monkeypatch.setitem(EXPERIMENTS, "table", replace(EXPERIMENTS["table"], show=lambda *_: "shown"))
    assert main(full) == 0
    assert "shown" in capsys.readouterr().out


def test_a_failed_run_does_not_keep_the_others_from_being_shown(full, monkeypatch, capsys):
    def fail(*_, **__):
        raise EnvironmentFailure("1 of 3 runs failed")

    monkeypatch.setattr("arac.sweeps.scheduler.carry_out", fail)
    monkeypatch.setitem(EXPERIMENTS, "table", replace(EXPERIMENTS["table"], show=lambda *_: "shown"))
    assert main([*full, "--yes"]) == 3
    said = capsys.readouterr()
    assert "shown" in said.out
    assert said.err == "arac: 1 of 3 runs failed\n"


def test_a_folder_for_results_that_cannot_be_made_is_told_before_anything_begins(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(["reproduce", "didactic", "--out", "file"]) == 2
    assert "Cannot create file (" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "answer"), [(["--yes"], None), ([], "y"), ([], "Yes")])
def test_a_full_experiment_starts_when_agreed(words, answer, full, monkeypatch, capsys):
    started = []
    monkeypatch.setattr("arac.sweeps.scheduler.carry_out", lambda jobs, *_, **__: started.extend(jobs))
    monkeypatch.setitem(EXPERIMENTS, "table", replace(EXPERIMENTS["table"], show=lambda *_: "shown"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: answer is not None)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    assert main([*full, *words]) == 0
    assert len(started) == 3
    assert "shown" in capsys.readouterr().out
