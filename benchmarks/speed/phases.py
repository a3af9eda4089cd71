"""The share of time of each phase of ARAC's generations, with default settings, once it learns."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arac.agents.classes import ARAC

UPDATES = ("critic", "actors")
NAMES = (*UPDATES, "collect", "evaluate", "save")


def measure(tasks: tuple[str, ...], steps: int) -> Iterator[dict[str, Any]]:
    for env in tasks:
        with tempfile.TemporaryDirectory() as folder:
            agent = ARAC(env)
            agent.learn(steps, run_dir=Path(folder) / "run")
            lines = (Path(folder) / "run" / "timings.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        # The first generation that learns also compiles: it is where the clock starts.
        learning = [row for row in rows if row["phases"].get("critic", 0) > 0]
        first, last = learning[0], learning[-1]
        total = last["seconds"] - first["seconds"]
        spent = {name: last["phases"].get(name, 0.0) - first["phases"].get(name, 0.0) for name in NAMES}
        spent["other"] = total - sum(spent.values())
        yield {
            "task": env,
            "steps": last["env_steps"] - first["env_steps"],
            "seconds": total,
            "shares": {name: seconds / total for name, seconds in spent.items()},
            "updates": sum(spent[name] for name in UPDATES) / total,
        }
