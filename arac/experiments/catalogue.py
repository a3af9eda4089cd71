"""The experiments that `arac reproduce` knows: the paper's, and one of ours."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from arac.algorithms.registry import ALGORITHMS
from arac.analysis.paper import COLUMNS
from arac.experiments import deceptive, didactic, grid, repulsion
from arac.experiments.planning import Size
from arac.sweeps.jobs import Job
from arac.sweeps.keeping import FILES


@dataclass(frozen=True)
class Experiment:
    """What it runs, and what it shows once the runs are there."""

    plan: Callable[[Size], list[Job]]
    show: Callable[[Size, Path, Path], str]  # from the folder of the runs into another; what to print
    small: Size  # minutes
    full: Size  # as in the paper
    measure: Callable[[Path], None] | None = None  # writes into a finished run's folder what is shown of its agents
    measured: str = "outcome.json"  # the file that it writes
    files: tuple[str, ...] = FILES  # what is kept of a run


EXPERIMENTS = {
    "didactic": Experiment(
        didactic.plan, didactic.show, small=Size(seeds=8, steps=3000), full=Size(seeds=32, steps=10_000)
    ),
    "repulsion": Experiment(
        repulsion.plan,
        repulsion.show,
        small=Size(seeds=2, steps=30_000, envs=("HalfCheetah-v5",), settings=repulsion.QUICK),
        full=Size(seeds=5, steps=None, envs=("Humanoid-v5",)),
        measure=repulsion.measure,
    ),
    "gaussian": Experiment(
        grid.plan_ablation,
        grid.show,
        small=Size(seeds=1, steps=20_000, envs=("HalfCheetah-v5",)),
        full=Size(seeds=5, steps=None, envs=("Ant-v5", "Humanoid-v5", "HalfCheetah-v5")),
        measure=grid.measure_champions,
        measured="champion.json",
    ),
    "curves": Experiment(
        grid.plan,
        grid.show,
        small=Size(seeds=1, steps=20_000, envs=("Hopper-v5",), algos=("arac", "cem_td3", "cerl", "erl")),
        full=Size(seeds=5, steps=None, envs=grid.PAPER_ENVS, algos=("arac", "cem_td3", "cerl", "erl")),
        measure=grid.measure_champions,
        measured="champion.json",
    ),
    "table": Experiment(
        grid.plan,
        grid.show,
        small=Size(seeds=1, steps=30_000, envs=("Hopper-v5",), algos=("arac", "sac_nf", "sac", "td3")),
        full=Size(seeds=5, steps=None, envs=grid.PAPER_ENVS, algos=COLUMNS),
        measure=grid.measure_champions,
        measured="champion.json",
    ),
    "deceptive": Experiment(
        deceptive.plan,
        deceptive.show,
        small=Size(seeds=10, steps=15_000, envs=("DeceptivePoint",), algos=("arac", "sac", "sac_nf")),
        full=Size(seeds=20, steps=40_000, envs=("PointMazeWide",), algos=tuple(ALGORITHMS)),
        measure=deceptive.measure,
        files=("timings.jsonl", "outcome.json", "config.toml"),  # of hundreds of short runs
    ),
}
