"""The cost of sweeps and of rollouts on Ray, and the model of docs/scaling.md compared with measurements.

    python -m benchmarks.scaling [jobs rollouts grid] [--json results/scaling.json] [--runs runs/table]

jobs: a sweep of four short runs, one at a time and two at a time, in turns; and the model's prediction for both.
rollouts: an evaluation of ARAC's population on local workers and on Ray, in turns; and the bytes sent over the network.
grid: the time that short trials on this machine predict for the paper's full grid on 2 to 280 cores, and for those of
its runs that exist already (--runs), compared with the time these took.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle  # comes with Ray

from arac import ARAC, sweep
from arac.experiments.catalogue import EXPERIMENTS
from arac.experiments.forecast import trials
from arac.rollout.local_pool import LocalPool
from arac.rollout.ray_pool import RayPool
from arac.rollout.rollouts import Pool, Rollouts
from arac.storage.metrics import pace
from arac.sweeps import spec as specs
from arac.sweeps.status import FILE, SweepStatus, together
from arac.utils.progress import Progress
from benchmarks.speed.machine import processor

SHORT: dict[str, Any] = {
    "algorithms": ["sac"],
    "tasks": ["InvertedPendulum-v5"],
    "seeds": 4,
    "steps": 3000,
    "settings": {"warmup_steps": 500, "eval_interval": 3000, "replay_capacity": 10_000},
}
ROUNDS = 2
CORES = (2, 8, 16, 32, 64, 128, 280)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all, if none is named")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file, beside those in it")
    parser.add_argument("--runs", type=Path, default=Path("runs/table"), help="runs of the paper's table")
    args = parser.parse_args()
    for name in args.parts or PARTS:
        numbers = PARTS[name](args.runs)
        if args.json:
            before = json.loads(args.json.read_text()) if args.json.exists() else {}
            args.json.write_text(json.dumps({**before, "machine": processor(), name: numbers}, indent=1) + "\n")


def measure_jobs(_: Path) -> dict[str, Any]:
    """Time a sweep with one and with two runs at a time, in turns, after a warm-up for the compilation cache."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    starts: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        sweep({**SHORT, "seeds": [9]}, Path(folder) / "warm-up")
        for turn in range(ROUNDS):
            with timed(starts):  # no learning: the time that a process takes to start and end
                sweep({**SHORT, "seeds": [8], "steps": 501}, Path(folder) / f"start{turn}")
            for jobs, found in seconds.items():
                with timed(found):
                    sweep(SHORT, Path(folder) / f"{jobs} jobs, turn {turn}", jobs=jobs)
    start = statistics.median(starts)
    wanted = specs.read(SHORT).jobs
    per_step = trials(wanted[:1])[wanted[0].kind]
    taken = {jobs: statistics.median(found) for jobs, found in seconds.items()}
    expected = {jobs: together([start + 2500 * per_step] * 4, jobs) for jobs in seconds}
    ratio = taken[1] / taken[2]
    print(f"four runs: one at a time {taken[1]:.1f} s, two at a time {taken[2]:.1f} s: {ratio:.2f} times as fast")
    print(
        f"the model: {expected[1]:.1f} s and {expected[2]:.1f} s ({start:.1f} s of each to start and end)\n", flush=True
    )
    return {"seconds": taken, "all": seconds, "ratio": ratio, "start": start, "model": expected}


def measure_rollouts(_: Path) -> dict[str, Any]:
    """Time an evaluation of five agents with ten episodes each, on local workers and on Ray."""
    agent = ARAC("Hopper-v5")
    spent: dict[str, list[float]] = {"local": [], "ray": []}
    with LocalPool(agent.env, 2) as here, RayPool(agent.env) as there:
        pools: dict[str, Pool] = {"local": here, "ray": there}
        for turn in range(-1, 2 * ROUNDS):  # the first turn starts workers and environments
            for name, pool in pools.items():
                began = time.perf_counter()
                Rollouts(pool, 0, Progress()).evaluate(agent.state.population, turn + 1, 10)
                if turn >= 0:
                    spent[name].append(time.perf_counter() - began)
    seconds = {name: statistics.median(found) for name, found in spent.items()}
    parameters = len(cloudpickle.dumps([member.policy for member in agent.population]))
    ratio = seconds["ray"] / seconds["local"]
    print(
        f"an evaluation of 50 episodes: local {seconds['local']:.2f} s, Ray {seconds['ray']:.2f} s ({ratio:.2f} times)"
    )
    print(f"five policies are {parameters:,} bytes, sent once per node and generation\n", flush=True)
    return {"seconds": seconds, "ratio": ratio, "parameter_bytes": parameters}


def predict_grid(folder: Path) -> dict[str, Any]:
    """Predict the time of the paper's table by number of cores, and compare its existing runs with the trials."""
    table = EXPERIMENTS["table"]
    jobs = table.plan(table.full)
    paces = trials(jobs)
    there = check_runs(folder, paces) if (folder / FILE).exists() else []
    spans = [job.steps * paces[job.kind] for job in jobs]
    days = {str(count): together(spans, count) / 86_400 for count in CORES}
    longest, which = max(zip(spans, (job.name for job in jobs), strict=True))
    steps = sum(job.steps for job in jobs)
    print(f"{len(jobs)} runs, {steps:,} steps, {sum(spans) / 86_400:.0f} days of one core")
    print(f"the longest is {which}: {longest / 86_400:.1f} days")
    for count, wanted in days.items():
        print(f"{count:>6} cores: {wanted:6.1f} days", flush=True)
    return {"runs": there, "core_days": sum(spans) / 86_400, "longest_days": longest / 86_400, "days": days}


def check_runs(folder: Path, paces: dict[str, float]) -> list[dict[str, Any]]:
    """Compare the pace of existing runs with that of the trials of their kind."""
    entries = SweepStatus.read(folder).entries
    rows = []
    print(f"{'':32}{'trial, ms/step':>16}{'run, ms/step':>16}{'run / trial':>14}")
    for kind in dict.fromkeys(entry.job.kind for entry in entries if entry.job.kind in paces):
        ours = [entry for entry in entries if entry.job.kind == kind]
        if (taken := pace(entry.spent for entry in ours)) is None:
            continue
        name = f"{ours[0].job.algorithm} on {ours[0].job.env}"
        rows.append({"kind": name, "trial_ms": 1000 * paces[kind], "run_ms": 1000 * taken})
        print(f"{name:32}{1000 * paces[kind]:16.2f}{1000 * taken:16.2f}{taken / paces[kind]:14.2f}", flush=True)
    print()
    return rows


@contextmanager
def timed(found: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    found.append(time.perf_counter() - began)


PARTS = {"jobs": measure_jobs, "rollouts": measure_rollouts, "grid": predict_grid}

if __name__ == "__main__":
    main()
