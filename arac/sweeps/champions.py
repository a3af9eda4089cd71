"""The champion of a finished run: measured over fresh episodes, and saved as a small policy file."""

import json
from pathlib import Path

from arac.agents.classes import load
from arac.sweeps.keeping import measured_at
from arac.utils.atomic_io import write_durably


def measure(folder: Path, episodes: int) -> None:
    """Write champion.json with the champion's returns over fresh episodes, unless it has them already.

    The episodes that selected the champion among several members overestimate its return.
    """
    path = folder / "champion.json"
    agent = load(folder)
    if measured_at(path) != agent.state.env_steps or len(json.loads(path.read_text()).get("returns", ())) != episodes:
        returns = agent.evaluate(episodes).returns.tolist()
        found = {"env_steps": agent.state.env_steps, "member": agent.state.champion, "returns": returns}
        write_durably(path, (json.dumps(found) + "\n").encode())


def save(folder: Path) -> None:
    """Write champion.safetensors: the champion's policy alone."""
    load(folder).save(folder / "champion.safetensors", only="champion")
