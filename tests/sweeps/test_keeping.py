"""Finished runs that are kept as small files are not run again if their settings are the wanted ones."""

import json
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from run_folders import run_folder
from test_sweeps import SETTINGS

from arac import SAC
from arac.agents.classes import AGENTS, load
from arac.cli import main
from arac.errors import EnvironmentFailure, UserError
from arac.experiments import deceptive
from arac.experiments.catalogue import EXPERIMENTS
from arac.sweeps.backends import LocalEngine
from arac.sweeps.jobs import Job
from arac.sweeps.keeping import keep, measured_at, missing
from arac.sweeps.scheduler import carry_out

NAME = "InvertedPendulum-v5-sac-seed3"
JOB = Job(NAME, "sac", "InvertedPendulum-v5", 3, 600, SETTINGS)
SPEC = f"""
algorithms = ["sac"]
tasks = ["InvertedPendulum-v5"]
seeds = [3]
steps = 600
[settings]
{chr(10).join(f"{name} = {value}" for name, value in SETTINGS.items())}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / NAME
    SAC("InvertedPendulum-v5", seed=3, workers=0, **SETTINGS).learn(600, run_dir=folder)
    return folder


def test_the_small_files_are_copied_and_nothing_else(run, tmp_path):
    keep(run, tmp_path / NAME)
    assert sorted(path.name for path in (tmp_path / NAME).iterdir()) == [
        "config.toml", "evaluations.jsonl", "timings.jsonl"
    ]  # fmt: skip
    for path in (tmp_path / NAME).iterdir():
        assert path.read_bytes() == (run / path.name).read_bytes()


def test_a_kept_run_is_not_missing(run, tmp_path):
    assert missing([JOB], None) == missing([JOB], tmp_path) == [JOB]
    keep(run, tmp_path / NAME)
    assert missing([JOB], tmp_path) == []
    assert missing([JOB], tmp_path, "outcome.json") == [JOB], "it was not measured"
    (tmp_path / NAME / "outcome.json").write_text('{"env_steps": 600}')
    assert missing([JOB], tmp_path, "outcome.json") == []
    longer = replace(JOB, steps=700)
    assert missing([longer], tmp_path) == [longer]
    (tmp_path / NAME / "config.toml").unlink()  # as if the copy had been interrupted
    assert missing([JOB], tmp_path) == [JOB]


@pytest.mark.parametrize(
    "other",
    [
        replace(JOB, seed=4),
        replace(JOB, steps=500),
        replace(JOB, env="Hopper-v5"),
        replace(JOB, algorithm="td3"),
        replace(JOB, settings={**SETTINGS, "batch_size": 8}),
        replace(JOB, max_episode_steps=50),
    ],
)
def test_another_run_that_is_kept_there_is_not_overwritten(other, run, tmp_path):
    keep(run, tmp_path / NAME)
    with pytest.raises(UserError, match="choose another folder"):
        missing([other], tmp_path)


def test_a_run_with_another_time_limit_is_another_run(tmp_path):
    limited = tmp_path / NAME
    SAC("InvertedPendulum-v5", seed=3, workers=0, max_episode_steps=50, **SETTINGS).learn(600, run_dir=limited)
    with pytest.raises(UserError, match="max_episode_steps is 1000, was 50"):
        missing([JOB], tmp_path)


def test_a_run_that_is_kept_where_it_was_trained_stays_whole(run, tmp_path):
    folder = tmp_path / NAME
    shutil.copytree(run, folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    keep(folder, tmp_path / "." / NAME)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert missing([JOB], tmp_path) == []
    (folder / "timings.jsonl").write_text('{"env_steps": 400}\n')  # as if it had been stopped on its way
    assert missing([JOB], tmp_path) == [JOB]


def test_a_run_that_was_finished_before_is_handed_over_too(run):
    finished = []
    carry_out([JOB], run.parent, LocalEngine(1), show=False, on_finish=finished.append)
    assert finished == [JOB]


def test_a_sweep_keeps_its_runs_and_starts_none_that_is_kept(run, tmp_path, capsys):
    (tmp_path / "sweep.toml").write_text(SPEC)
    words = ["sweep", str(tmp_path / "sweep.toml"), "--keep", str(tmp_path / "kept"), "--runs"]
    assert main([*words, str(run.parent)]) == 0
    assert (tmp_path / "kept" / NAME / "evaluations.jsonl").exists()
    champion = tmp_path / "kept" / NAME / "champion.safetensors"
    assert main(["evaluate", str(champion), "--episodes", "2"]) == 0
    capsys.readouterr()
    assert main([*words, str(tmp_path / "elsewhere")]) == 0
    assert "1 of them are kept in" in capsys.readouterr().out
    assert not (tmp_path / "elsewhere" / NAME).exists()


def test_champions_are_measured_over_fresh_episodes_where_that_is_wanted(run, tmp_path, capsys):
    (tmp_path / "sweep.toml").write_text(SPEC)
    words = ["sweep", str(tmp_path / "sweep.toml"), "--runs", str(run.parent), "--keep", str(tmp_path / "kept")]
    assert main([*words, "--fresh", "-1"]) == 2
    assert "--fresh must be at least 0" in capsys.readouterr().err
    for episodes in (0, 3):  # a run that was kept without them does not serve
        assert main([*words, "--fresh", str(episodes)]) == 0
    found = json.loads((tmp_path / "kept" / NAME / "champion.json").read_text())
    assert found["returns"] == load(run).evaluate(3).returns.tolist()


def test_a_folder_that_cannot_be_made_is_said_before_anything_begins(tmp_path, capsys):
    (tmp_path / "sweep.toml").write_text(SPEC)
    (tmp_path / "file").write_text("")
    words = ["sweep", str(tmp_path / "sweep.toml"), "--runs", str(tmp_path / "runs"), "--keep", str(tmp_path / "file")]
    assert main(words) == 2
    assert capsys.readouterr().err.endswith("choose another folder.\n")
    assert not (tmp_path / "runs").exists()


def test_what_fails_after_a_run_is_told_with_the_failed_runs(run):
    def fail(job):
        raise UserError(f"{job.name} cannot be measured.")

    with pytest.raises(EnvironmentFailure, match=r"1 of 1 runs failed(.|\n)*cannot be measured"):
        carry_out([JOB], run.parent, LocalEngine(1), show=False, on_finish=fail)


def test_what_was_measured_of_fewer_steps_or_is_torn_is_measured_anew(tmp_path):
    path = tmp_path / "outcome.json"
    assert measured_at(path) is None
    path.write_text('{"env_st')
    assert measured_at(path) is None
    path.write_text('{"env_steps": 7}')
    assert measured_at(path) == 7


def test_an_experiment_is_shown_from_what_is_kept(tmp_path, capsys, monkeypatch):
    """No run folder exists, and none is created."""
    monkeypatch.chdir(tmp_path)
    size = replace(EXPERIMENTS["deceptive"].small, seeds=2, algos=("sac",))
    jobs = deceptive.plan(size)
    for job, found in zip(jobs, (1.0, 0.0), strict=True):
        settings = {**job.settings, "env": job.env, "algo": job.algorithm, "seed": job.seed, "planned": job.steps}
        folder = run_folder(tmp_path / "out" / "runs" / job.name, limit=200, **settings)
        path = [[0.0, 0.0], [-0.9 if found else 0.9, 0.0]]
        outcome = {"env_steps": job.steps, "champion": 0, "score": 1.0, "success": found, "paths": [path]}
        (folder / "outcome.json").write_text(json.dumps(outcome))
    assert main(["reproduce", "deceptive", "--seeds", "2", "--algos", "sac", "--out", "out"]) == 0
    assert "| DeceptivePoint | SAC | 1 of 2 |" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


def test_an_experiment_measures_and_keeps_its_runs(tmp_path, monkeypatch, capsys):
    """Kept files are made from finished run folders, and suffice without them."""
    monkeypatch.chdir(tmp_path)
    size = replace(EXPERIMENTS["deceptive"].small, seeds=1, steps=1400, algos=("td3",), settings={"workers": 0})
    monkeypatch.setitem(EXPERIMENTS, "deceptive", replace(EXPERIMENTS["deceptive"], small=size))
    [job] = deceptive.plan(size)
    AGENTS["td3"](job.env, seed=0, **job.settings).learn(job.steps, run_dir=tmp_path / "runs" / job.name)
    assert main(["reproduce", "deceptive", "--runs", "runs", "--out", "out"]) == 0
    said = capsys.readouterr().out
    kept = tmp_path / "out" / "runs" / job.name
    found = json.loads((kept / "outcome.json").read_text())
    assert found["env_steps"] >= 1400
    assert len(found["paths"][0]) >= 2
    shutil.rmtree(tmp_path / "runs")
    assert main(["reproduce", "deceptive", "--runs", "runs", "--out", "out"]) == 0
    table = (tmp_path / "out" / "deceptive.md").read_text()
    assert table in said
    assert table in capsys.readouterr().out


def test_a_simplified_path_has_its_corners_and_is_never_far_from_where_it_went():
    straight, still = np.linspace(0, 1, 50)[:, None] * [1.0, 0.0], np.tile([1.0, 1.0], (30, 1))
    path = np.concatenate([straight, still])
    corners = np.unique(deceptive.simplified(path, 0.01), axis=0)
    assert corners.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert len(deceptive.simplified(path, 0.01)) <= 4
    wild = np.cumsum(np.random.default_rng(0).normal(0, 0.1, (200, 2)), 0)
    simple = deceptive.simplified(wild, 0.05)
    assert 2 < len(simple) < 150
    drawn = np.concatenate([np.linspace(a, b, 200) for a, b in pairwise(simple)])
    assert max(np.linalg.norm(drawn - point, axis=1).min() for point in wild) <= 0.06
    assert simple[[0, -1]].tolist() == wild[[0, -1]].tolist()
