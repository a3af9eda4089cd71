"""Sweeps on processes and on real Ray clusters give the same run folders, byte for byte, after kills, too."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torture import digest

from arac.sweeps.jobs import saved_steps

pytestmark = pytest.mark.slow

SPEC = """\
algorithms = ["sac", "td3"]
tasks = ["Pendulum-v1", "DeceptivePoint"]
seeds = {seeds}
steps = {steps}
[settings]
hidden_size = 16
batch_size = 16
warmup_steps = 400
eval_episodes = 2
eval_interval = 1000
checkpoint_interval = 400
replay_capacity = 10_000
"""


class Sweep:
    """`arac sweep` in a separate process."""

    def __init__(self, folder: Path, *words: str, seeds: str = "2", steps: int = 3000) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "some.toml").write_text(SPEC.format(seeds=seeds, steps=steps))
        self.runs = folder / "runs" / "some"
        self._words = [sys.executable, "-m", "arac", "sweep", "some.toml", *words]
        self._folder = folder

    def start(self) -> subprocess.Popen:
        return subprocess.Popen(
            self._words, cwd=self._folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def to_its_end(self) -> str:
        process = self.start()
        said, _ = process.communicate()
        assert process.returncode == 0, said
        return said

    def digests(self) -> dict[str, dict[str, str]]:
        return {config.parent.name: digest(config.parent) for config in self.runs.glob("*/config.toml")}

    def wait_for_work(self, process: subprocess.Popen, runs: int = 1) -> Path:
        """Wait until that many unfinished runs have a checkpoint, and return the folder of one."""
        while process.poll() is None:
            at_work = [run for run in self.runs.glob("*-seed*") if 0 < saved_steps(run) < 2400 and pids_of(run)]
            if len(at_work) >= runs:
                return at_work[0]
            time.sleep(0.02)
        raise AssertionError(process.communicate()[0])


def pids_of(folder: Path) -> list[int]:
    """Return the processes that were started for a run."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text().split("\0")
            here = (process / "cwd").readlink()
        except OSError:
            continue
        if "arac.sweeps.child" in words and any(here / word == folder for word in words):
            found.append(int(process.name))
    return found


def none_is_left(folder: Path) -> bool:
    give_up = time.monotonic() + 10
    while any(pids_of(run) for run in folder.glob("*-seed*")):
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Run two algorithms by two tasks by two seeds on processes of this machine."""
    sweep = Sweep(tmp_path_factory.mktemp("local"))
    sweep.to_its_end()
    return sweep.digests()


def test_a_sweep_has_every_run(reference):
    assert sorted(reference) == sorted(
        f"{task}-{algorithm}-seed{seed}"
        for task in ("Pendulum-v1", "arac_DeceptivePoint-v0")
        for algorithm in ("sac", "td3")
        for seed in (0, 1)
    )
    assert all("evaluations.jsonl" in files for files in reference.values())


def test_a_local_sweep_that_is_killed_leaves_nothing_behind_and_goes_on(reference, tmp_path):
    sweep = Sweep(tmp_path, seeds="[1]")
    process = sweep.start()
    sweep.wait_for_work(process)
    process.kill()
    process.communicate()
    assert none_is_left(sweep.runs)
    sweep.to_its_end()
    assert sweep.digests() == {name: files for name, files in reference.items() if "seed1" in name}


def test_a_run_of_a_local_sweep_that_is_killed_goes_on(reference, tmp_path):
    sweep = Sweep(tmp_path, seeds="[0]")
    process = sweep.start()
    os.kill(pids_of(sweep.wait_for_work(process))[0], signal.SIGKILL)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "failed, will be retried: it was killed by SIGKILL" in said
    assert sweep.digests() == {name: files for name, files in reference.items() if "seed0" in name}


@pytest.fixture
def cluster():
    """Start a Ray cluster of two nodes with one CPU each."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.second = cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


def test_on_ray_a_sweep_gives_the_same_bytes(reference, tmp_path):
    """The sweep starts a Ray instance; the next test has the runs of the other seed."""
    pytest.importorskip("ray")
    sweep = Sweep(tmp_path, "--engine", "ray", seeds="[1]")
    said = sweep.to_its_end()
    assert "all runs are finished" in said
    assert sweep.digests() == {name: files for name, files in reference.items() if "seed1" in name}


def test_on_ray_a_killed_worker_a_killed_sweep_and_a_lost_node_change_nothing(reference, cluster, tmp_path):
    sweep = Sweep(tmp_path, "--engine", "ray", "--address", cluster.address, seeds="[0]")
    process = sweep.start()
    run = sweep.wait_for_work(process)
    [pid] = pids_of(run)
    worker = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(worker, signal.SIGKILL)
    while pids_of(run) == [pid]:  # it ends with its worker
        time.sleep(0.05)
    sweep.wait_for_work(process)
    process.kill()
    process.communicate()
    process = sweep.start()  # at once, while its child processes may still be exiting
    sweep.wait_for_work(process, runs=2)  # one on each node
    cluster.remove_node(cluster.second, allow_graceful=False)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "its Ray worker was lost" in said
    assert sweep.digests() == {name: files for name, files in reference.items() if "seed0" in name}


@pytest.mark.usefixtures("signals")
def test_on_ray_a_sweep_that_is_asked_to_stop_saves_first(cluster, tmp_path):
    sweep = Sweep(tmp_path, "--engine", "ray", "--address", cluster.address, seeds="[0]", steps=100_000)
    process = sweep.start()
    run = sweep.wait_for_work(process)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert "the checkpoints are saved. Resume with:" in said
    assert none_is_left(sweep.runs)
    assert "stopped; the checkpoint is saved" in (sweep.runs / "logs" / f"{run.name}.log").read_text()


def test_a_cluster_that_is_not_there_is_one_sentence(tmp_path):
    pytest.importorskip("ray")
    process = Sweep(tmp_path, "--engine", "ray", "--address", "127.0.0.1:1", seeds="[0]").start()
    said, _ = process.communicate()
    assert process.returncode == 2
    assert "There is no Ray cluster at 127.0.0.1:1" in said
