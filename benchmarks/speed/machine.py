"""Functions that the benchmarks share: the machine's description, timing, and random experience."""

import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from arac.replay.buffer import ReplayBuffer
from arac.replay.episode import Episode
from arac.storage.run_folder import versions
from arac.utils.processes import cores


def machine() -> dict[str, Any]:
    return {"processor": processor(), "cores": len(cores()), "system": platform.platform(), "versions": versions()}


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()


def seconds(run: Callable[[], Any]) -> float:
    """Return the seconds that `run` takes, including the work that it starts on the device."""
    began = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - began


def by_turns(loops: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Return the shortest time of each loop over `rounds` measurements in turns, after one call that is not measured.

    The shortest, because other work on the machine, or on the computer that hosts it, can only add to the time.
    """
    for loop in loops:
        jax.block_until_ready(loop())
    times = [[seconds(loop) for loop in loops] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


def random_episode(rng: np.random.Generator, observation_size: int, action_size: int, steps: int) -> Episode:
    """Return an episode of noise that is truncated by its time limit."""
    return Episode(
        observations=rng.standard_normal((steps + 1, observation_size), np.float32),
        actions=rng.uniform(-1, 1, (steps, action_size)).astype(np.float32),
        rewards=rng.standard_normal(steps, np.float32),
        terminated=False,
        total=0.0,
        steps=steps,
    )


def filled_replay(observation_size: int, action_size: int, capacity: int, steps: int = 1000) -> ReplayBuffer:
    """Return a replay buffer full of episodes of noise."""
    rng = np.random.default_rng(0)
    replay = ReplayBuffer(capacity, observation_size, action_size)
    replay.extend(random_episode(rng, observation_size, action_size, steps) for _ in range(capacity // steps))
    return replay
