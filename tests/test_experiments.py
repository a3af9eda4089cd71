"""Series of runs: finished ones stay, stopped ones go on, failures are told; and the experiments drawn from them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arac import metrics
from arac.cli import main
from arac.errors import EnvironmentFailure, UserError
from arac.experiments.sweep import Job, carry_out, is_finished, steps_of

SETTINGS = {"hidden_size": 8, "batch_size": 8, "warmup_steps": 200, "eval_episodes": 1, "eval_interval": 200}
SETTINGS |= {"replay_capacity": 10_000}


def job(name="one", seed=0, steps=600, env="DeceptivePoint", **settings):
    return Job(name, "sac", env, seed, steps, {**SETTINGS, **settings})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    parent = tmp_path_factory.mktemp("sweep")
    jobs = [job("one", 0), job("two", 1)]
    carry_out(jobs, parent, processes=2)
    return parent, jobs


def stamps(parent):
    return {path: path.stat().st_mtime_ns for path in parent.rglob("*") if path.is_file()}


def test_jobs_become_ordinary_runs_and_are_done_once(finished):
    parent, jobs = finished
    for one in jobs:
        assert is_finished(one, parent / one.name)
        assert metrics.read_evaluations(parent / one.name)[-1]["env_steps"] == 600
    before = stamps(parent)
    carry_out(jobs, parent, processes=2)
    assert stamps(parent) == before


def test_a_larger_number_of_steps_goes_on_from_what_is_there(finished):
    parent, _ = finished
    carry_out([job("two", 1, steps=1000)], parent, processes=1)
    rows = metrics.read_evaluations(parent / "two")
    assert [row["env_steps"] for row in rows] == [200, 400, 600, 800, 1000]


@pytest.mark.parametrize(
    ("other", "said"),
    [({"hidden_size": 16}, "hidden_size 8, not 16"), ({"seed": 3}, "seed 0, not 3"), ({"steps": 400}, "more than 400"),
     ({"env": "Hopper"}, "env arac/DeceptivePoint-v0, not Hopper-v5")],
)  # fmt: skip
def test_a_folder_with_another_run_is_refused(other, said, finished):
    with pytest.raises(UserError, match=said):
        carry_out([job(**{"name": "one", **other})], finished[0], processes=1)


def test_a_run_that_fails_is_told_after_the_others_are_done(tmp_path):
    jobs = [job("bad", batch_size=0), job("good")]
    with pytest.raises(EnvironmentFailure, match=r"1 of 2 runs failed; .*bad\.log ends with: .*batch_size"):
        carry_out(jobs, tmp_path, processes=1)
    assert is_finished(jobs[1], tmp_path / "good")


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """The experiment, stopped by a signal in its middle and begun again."""
    folder = tmp_path_factory.mktemp("deceptive")
    command = [sys.executable, "-m", "arac.cli", "reproduce", "deceptive", "--seeds", "1", "--steps", "1400"]
    first = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    run = folder / "runs" / "deceptive" / "arac_DeceptivePoint-v0-arac-lambda1-seed0"
    while steps_of(run) == 0:
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    _, said = first.communicate()
    left = [pid for pid in Path("/proc").glob("[0-9]*") if str(folder) in _cwd(pid)]
    stopped_at = steps_of(run)
    second = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return folder / "runs" / "deceptive", (first.returncode, said, left, stopped_at), second


def _cwd(pid):
    try:
        return os.readlink(pid / "cwd")
    except OSError:
        return ""


def test_a_stopped_experiment_saves_its_runs_and_goes_on(reproduced):
    folder, (status, said, left, stopped_at), second = reproduced
    assert status == 130
    assert "Go on with: arac reproduce deceptive --seeds 1 --steps 1400" in said
    assert left == []
    assert 0 < stopped_at < 1400
    assert second.returncode == 0, second.stderr
    assert "goes on in" in (folder / "logs" / "arac_DeceptivePoint-v0-arac-lambda1-seed0.log").read_text()


def test_the_deceptive_experiment_has_a_table_numbers_and_a_picture(reproduced):
    folder, _, second = reproduced
    assert (folder / "deceptive.png").read_bytes().startswith(b"\x89PNG")
    table = (folder / "deceptive.md").read_text()
    assert table in second.stdout
    numbers = json.loads((folder / "deceptive.json").read_text())
    assert [run["system"] for run in numbers["runs"]] == ["ARAC, lambda 1", "ARAC, lambda 0", "SAC-NF", "SAC"]
    assert all(run["found"] == (run["score"] > 40) for run in numbers["runs"])
    for run in numbers["runs"]:
        assert f"| {run['system']} | {int(run['found'])} of 1 |" in table


@pytest.mark.parametrize("words", [["nothing"], ["deceptive", "--seeds", "0"], ["deceptive", "--steps", "-1"]])
def test_a_mistake_is_one_sentence(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
