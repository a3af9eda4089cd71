"""An environment that records the time of its first step; `python -m benchmarks.speed start` trains on it."""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium

NOTE = "ARAC_BENCH_NOTE"  # the environment variable with the file to write to


class FirstStep(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self) -> None:
        super().__init__(gymnasium.make("Hopper-v5"))

    def step(self, action: Any) -> Any:
        note = Path(os.environ[NOTE])
        if not note.exists():
            note.write_text(str(time.time()))
        return super().step(action)


gymnasium.register("FirstStep-v0", "benchmarks.speed.first_step:FirstStep", max_episode_steps=1000)
