"""The experiments of `arac reproduce`: the paper's, and one that this library adds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from arac.analysis.paper import COLUMNS
from arac.experiments import deceptive, didactic, grid, repulsion
from arac.experiments.planning import Size
from arac.sweeps.jobs import Job
from arac.sweeps.keeping import FILES


@dataclass(frozen=True)
class Experiment:
    """An experiment: the runs that it needs, and the output that it makes of them."""

    plan: Callable[[Size], list[Job]]
    show: Callable[[Size, Path, Path], str]  # size, folder of the runs, output folder -> text to print
    small: Size  # takes minutes
    full: Size  # the paper's scale
    measure: Callable[[Path], None] | None = None  # writes measurements of a finished run's agents into its folder
    measured: str = "outcome.json"  # the file that `measure` writes
    files: tuple[str, ...] = FILES  # the files that are kept of a run


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
        full=Size(seeds=20, steps=40_000, envs=("PointMazeWide",), algos=COLUMNS),
        measure=deceptive.measure,
        files=("timings.jsonl", "outcome.json", "config.toml"),  # fewer files, because there are hundreds of runs
    ),
}
