"""Tasks by algorithms by seeds as ordinary runs: the paper's curves, its tables, and its ablation of the AR term."""

from pathlib import Path
from typing import Any

from arac.algorithms import presets
from arac.analysis import report
from arac.envs.tasks import TASKS
from arac.experiments.planning import Size, planned
from arac.sweeps import champions
from arac.sweeps.jobs import Job

# The paper's eight tasks: those in its table of parameters.
PAPER_ENVS = tuple(env for name, env in TASKS.items() if name in presets.paper_table())
# The three curves of the paper's appendix on AR with flows and with a Gaussian.
# As in the paper: KL without a clip, from the archive, and a sigma that is learned, so that a Gaussian can widen.
_LETTER: dict[str, Any] = {"preset": "paper-letter", "sigma": "learned"}
ABLATION: dict[str, dict[str, Any]] = {
    "flows": _LETTER,
    "gaussian": {**_LETTER, "ar_base": "gaussian"},
    "none": {**_LETTER, "ar_coefficient": 0.0},
}
FRESH_EPISODES = 100


def plan(size: Size) -> list[Job]:
    """Return a job for every algorithm on every task with every seed; the first seed comes first, for early results."""
    return [
        planned(size, algorithm, env, seed, algorithm)
        for seed in range(size.seeds)
        for env in size.envs
        for algorithm in size.algos
    ]


def plan_ablation(size: Size) -> list[Job]:
    """Return the jobs of ARAC with AR on its flows, with AR on its base Gaussian, and without AR."""
    return [
        planned(size, "arac", env, seed, name, settings)
        for seed in range(size.seeds)
        for env in size.envs
        for name, settings in ABLATION.items()
    ]


def show(size: Size, parent: Path, out: Path) -> str:
    """Write the report of all runs below `parent`, and return its table."""
    return report.write([parent], out)


def measure_champions(folder: Path) -> None:
    """Write champion.json with the champion's returns over fresh episodes."""
    champions.measure(folder, FRESH_EPISODES)
