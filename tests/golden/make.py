"""Make the golden files of the current format: a small run and a saved agent of every algorithm but ERL.

    python tests/golden/make.py

Made once per format, when it is new, and never again: later versions must load what earlier ones wrote.
"""

import json
import shutil
from pathlib import Path

import numpy as np

from arac.agents.classes import AGENTS
from arac.storage.manifest import FORMAT

OBSERVATIONS = np.linspace(-1, 1, 12).reshape(3, 4).round(3)
SETTINGS = {
    "hidden_size": 2,
    "batch_size": 4,
    "warmup_steps": 20,
    "eval_interval": 40,
    "eval_episodes": 1,
    "checkpoint_interval": 30,
    "replay_capacity": 1000,
}
SMALL_POPULATION = {"population_size": 2, "elites": 1, "archive_capacity": 3, "archive_sample": 2}


def make(folder: Path) -> None:
    folder.mkdir()
    expected = {}
    for name, kind in AGENTS.items():
        if name == "erl":  # its critic has a fixed size, of megabytes
            continue
        population = SMALL_POPULATION if name == "arac" else {}
        agent = kind("InvertedPendulum-v5", seed=5, **SETTINGS, **population).learn(90, run_dir=folder / name)
        agent.save(folder / f"{name}.safetensors")
        actions, _ = agent.predict(OBSERVATIONS, deterministic=True)
        expected[name] = {"actions": actions.tolist(), "env_steps": agent.state.env_steps, "replay": len(agent.replay)}
        shutil.rmtree(folder / name / "tensorboard")
        (folder / name / "timings.jsonl").unlink()
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    make(Path(__file__).with_name(f"format-{FORMAT}"))
