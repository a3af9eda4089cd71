"""What the benchmarks share."""

import platform
from pathlib import Path

import numpy as np

from arac.rollout.episode import Episode


def random_episode(rng: np.random.Generator, observation_size: int, action_size: int, steps: int) -> Episode:
    """A whole episode of noise, cut off by its time limit."""
    return Episode(
        observations=rng.standard_normal((steps + 1, observation_size), np.float32),
        actions=rng.uniform(-1, 1, (steps, action_size)).astype(np.float32),
        rewards=rng.standard_normal(steps, np.float32),
        terminated=False,
        total=0.0,
        steps=steps,
    )


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()
