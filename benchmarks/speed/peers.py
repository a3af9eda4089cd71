"""Whole runs against peers: milliseconds per environment step, with the same work in each.

The contenders are separate processes, trained by turns in one run of the benchmark. They have the same networks,
mini-batches and number of updates per environment step; each library schedules its updates as it does by default.
"""

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arac.errors import UserError
from benchmarks.speed.turns import Turn, ours, processes_by_turns

TASKS = ("Hopper-v5", "Humanoid-v5")
LIBRARIES = ("sbx", "stable_baselines3")
WARMUP, INTERVAL = 10_000, 10_000
NO_EVALUATION = {"eval_interval": 10**9, "eval_episodes": 1}


def measure(python: Path, *, rounds: int, stretch: int, with_evaluation: bool) -> Iterator[dict[str, Any]]:
    """Yield a row for each contender: SAC on both tasks, then ARAC with five agents and evaluation beside one SAC.

    Args:
        python: interpreter of the environment in which the peers are installed.
        rounds: number of turns of each contender in the comparison of SAC.
        stretch: environment steps of such a turn.
        with_evaluation: whether to include ARAC with evaluation.

    Raises:
        UserError: if there is no such interpreter.
    """
    if not python.exists():
        raise UserError(f"There is no {python}: `make bench-peers` sets the peers up, --peers says where they are.")
    for env in TASKS:
        tasks = {"arac": ours(env, "sac", stretch=stretch, warmup=WARMUP, **NO_EVALUATION)}
        tasks |= {library: theirs(python, library, env, stretch=stretch) for library in LIBRARIES}
        yield from rows(env, "SAC", processes_by_turns(tasks, rounds))
    for env in TASKS if with_evaluation else ():
        tasks = {
            "arac": ours(env, "arac", stretch=INTERVAL, warmup=WARMUP),
            "stable_baselines3": theirs(python, "stable_baselines3", env, stretch=INTERVAL, evaluation=INTERVAL),
        }
        yield from rows(env, "with evaluation", processes_by_turns(tasks, 1))


def theirs(python: Path, library: str, env: str, *, stretch: int, evaluation: int = 0) -> tuple[str, dict[str, Any]]:
    settings = {"batch_size": 256, "policy_kwargs": {"net_arch": [256, 256]}}
    return str(python), {
        "library": library, "env": env, "stretch": stretch, "warmup": WARMUP, "settings": settings,
        "evaluation": evaluation,
    }  # fmt: skip


def rows(env: str, what: str, turns: dict[str, list[Turn]]) -> Iterator[dict[str, Any]]:
    """Yield each contender's median time and its median ratio to ours.

    A ratio is that of two adjacent turns, so that fluctuations of the machine's speed cancel.
    """
    each = {name: [turn.ms_per_step for turn in of] for name, of in turns.items()}
    for name, of in each.items():
        yield {
            "task": env,
            "what": what,
            "library": name,
            "ms_per_step": statistics.median(of),
            "each": of,
            "times_ours": statistics.median(theirs / ours for theirs, ours in zip(of, each["arac"], strict=True)),
            "peak_bytes": max(turn.peak_bytes for turn in turns[name]),
        }
