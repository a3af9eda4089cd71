"""`arac reproduce` is stopped and started again, and draws its results."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from terminal import signals_of_a_terminal

from arac.cli import main
from arac.experiments import deceptive
from arac.sweeps.jobs import steps_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """Run the experiment, stopped by a signal in its middle and started again."""
    folder = tmp_path_factory.mktemp("deceptive")
    command = [sys.executable, "-m", "arac", "reproduce", "deceptive", "--seeds", "1", "--steps", "1400"]
    with signals_of_a_terminal():
        first = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    run = folder / "runs" / "deceptive" / "arac_DeceptivePoint-v0-arac-seed0"
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
    assert "arac reproduce deceptive --seeds 1 --steps 1400" in said.partition("Resume with: ")[2]
    assert left == []
    assert 0 < stopped_at < 1400
    assert second.returncode == 0, second.stderr
    assert "Resuming" in (folder / "logs" / "arac_DeceptivePoint-v0-arac-seed0.log").read_text()


def test_the_deceptive_experiment_has_a_table_numbers_and_a_picture(reproduced):
    folder, _, second = reproduced
    assert (folder / "DeceptivePoint.png").read_bytes().startswith(b"\x89PNG")
    table = (folder / "deceptive.md").read_text()
    assert table in second.stdout
    numbers = json.loads((folder / "deceptive.json").read_text())
    assert [run["system"] for run in numbers["runs"]] == [*deceptive.VARIANTS["arac"], "SAC", "SAC-NF"]
    assert all(run["found"] == (run["success"] > 0.5) for run in numbers["runs"])
    for run in numbers["runs"]:
        assert f"| DeceptivePoint | {run['system']} | {int(run['found'])} of 1 |" in table


MISTAKES = ["nothing", "deceptive --seeds 0", "deceptive --steps -1", "deceptive --show", "didactic --show"]


@pytest.mark.parametrize("words", [mistake.split() for mistake in MISTAKES])
def test_a_mistake_is_one_sentence(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
