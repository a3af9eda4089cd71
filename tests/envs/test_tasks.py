"""Tasks trained by the command for a few generations: the paper's, and environments of other packages.

`make test-slow` takes the cheap ones, `make smoke` the paper's eight at their full length and the paper's settings,
`make test-thirdparty` those from other packages, which it installs.
"""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from arac.algorithms.presets import paper_table
from arac.storage import metrics
from arac.storage.verify import examine

PAPERS = [
    "Ant", "HalfCheetah", "Hopper", "Walker2d", "Humanoid", "HumanoidStandup", "HumanoidRllab", "SparseHumanoid",
]  # fmt: skip
SMALL = ["--hidden-size", 16, "--batch-size", 16, "--flows", 1, "--warmup-steps", 200, "--eval-episodes", 1]
SMALL += ["--max-episode-steps", 40]
THIRDPARTY = {
    "gymnasium_robotics:PointMaze_UMaze-v3": "a Dict of observations",
    "gymnasium_robotics:AntMaze_UMaze-v5": "a Dict of observations",
    "shimmy:dm_control/cartpole-swingup-v0": "float64, no time limit",
    "shimmy:dm_control/reacher-easy-v0": "a Dict of float64, no time limit",
    "pybullet_envs_gymnasium:HopperBulletEnv-v0": "another simulator",
}


def arac(*words):
    done = subprocess.run([sys.executable, "-m", "arac", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def trained_and_resumed(env_id, run, workers):
    """Train two generations by the command, then resume for two more."""
    arac("train", env_id, *SMALL, "--eval-interval", 0, "--steps", 300, "--workers", workers, "--run-dir", run)
    first = metrics.read_evaluations(run)
    arac("resume", run, "--steps", 700)
    rows = metrics.read_evaluations(run)
    assert rows[: len(first)] == first
    assert 2 <= len(first) < len(rows)
    assert not [finding for finding in examine(run) if finding.level == "damaged"]
    return {name: (run / name).read_bytes() for name in metrics.DETERMINISTIC_FILES}


@pytest.mark.slow
@pytest.mark.parametrize("task", ["HalfCheetah", "HumanoidRllab"])
def test_a_task_trains_and_resumes_by_its_short_name(task, tmp_path):
    trained_and_resumed(task, tmp_path / "run", workers=0)


@pytest.mark.smoke
@pytest.mark.parametrize("task", PAPERS)
def test_the_papers_tasks_train_with_the_papers_settings(task, tmp_path):
    steps = 3 * 5 * 1000 if task in ("Ant", "HalfCheetah", "HumanoidStandup") else 3000  # others fall at first
    run = tmp_path / "run"
    said = arac("train", task, "--steps", steps, "--warmup-steps", 1000, "--eval-episodes", 1, "--run-dir", run)
    assert f"the paper's parameters for {task}, with your flags: flows {paper_table()[task]['flows']}" in said
    rows = metrics.read_evaluations(run)
    assert rows[-1]["generation"] >= 3
    assert rows[-1]["env_steps"] >= steps


@pytest.mark.thirdparty
@pytest.mark.parametrize("env_id", THIRDPARTY, ids=lambda env_id: env_id.split(":")[1])
def test_an_environment_of_another_package_trains_and_resumes(env_id, tmp_path):
    """The numbers are the same in this process and in a worker: the environment depends only on its seed."""
    if find_spec(env_id.split(":")[0]) is None:
        pytest.skip("make test-thirdparty installs it")
    alone = trained_and_resumed(env_id, tmp_path / "alone", workers=0)
    assert trained_and_resumed(env_id, tmp_path / "pool", workers=1) == alone
