"""The cost of checkpoints: their share of a Hopper run with default settings, and its growth with replay.

    python -m benchmarks.saving [--json results/saving.json]

First, 1,000,000 Hopper-sized transitions are added to a default replay, with a checkpoint every 10,000 as in a run, and
the saves are timed at each size. Then ARAC trains on Hopper-v5 with default settings for 30,000 steps, and the time of
the saves is compared with that of the run, from its first learning generation on.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from arac import ARAC
from arac.replay.buffer import ReplayBuffer
from arac.storage import checkpoint
from arac.storage.metrics import DETERMINISTIC_FILES
from arac.storage.replay_segments import ReplayLog
from arac.utils.atomic_io import checksum
from benchmarks.speed.machine import processor, random_episode

SIZES = (50_000, 100_000, 500_000, 1_000_000)
INTERVAL = 10_000  # the default of checkpoint_interval
METRICS = {name: checksum(b"") for name in DETERMINISTIC_FILES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    args = parser.parse_args()
    rows = growth()
    ratio = rows[-1]["save_ms"] / rows[0]["save_ms"]
    print(
        f"a save with 1,000,000 stored transitions takes {ratio:.2f} times as long as one with {SIZES[0]:,}\n",
        flush=True,
    )
    share = in_a_run()
    if args.json:
        numbers = {"machine": processor(), "growth": rows, "growth_ratio": ratio, "run": share}
        args.json.write_text(json.dumps(numbers, indent=1) + "\n")


def growth() -> list[dict[str, Any]]:
    """Time saves into one folder while replay fills up, and return the median of the last five at each size."""
    agent, rng = ARAC("Hopper-v5"), np.random.default_rng(0)
    replay, log = ReplayBuffer(1_000_000, agent.env.observation_size, agent.env.action_size), ReplayLog()
    replay.on_add = log.unsaved.append
    identity, times, rows = agent.description.identity(), [], []
    print(f"{'stored':>12}{'save (ms)':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for stored in range(INTERVAL, SIZES[-1] + 1, INTERVAL):
            replay.extend(random_episode(rng, *replay.sizes, 1000) for _ in range(INTERVAL // 1000))
            state = type(agent.state)(**{**vars(agent.state), "env_steps": stored})
            began = time.perf_counter()
            checkpoint.save(Path(folder), state, log, replay.cursor, METRICS, identity)
            times.append(1000 * (time.perf_counter() - began))
            if stored in SIZES:
                rows.append({"stored": stored, "save_ms": statistics.median(times[-5:])})
                print(f"{stored:>12,}{rows[-1]['save_ms']:>12.1f}", flush=True)
    return rows


def in_a_run() -> dict[str, float]:
    """Measure the share of checkpoints in the learning part of a real run."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        ARAC("Hopper-v5").learn(3 * INTERVAL, run_dir=run)
        rows = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    before = next(row for row in rows if row["env_steps"] >= INTERVAL)
    after = rows[-1]
    saves = after["env_steps"] // INTERVAL - before["env_steps"] // INTERVAL
    numbers = {
        "env_steps": after["env_steps"] - before["env_steps"],
        "seconds": after["seconds"] - before["seconds"],
        "saving_seconds": after["phases"]["save"] - before["phases"]["save"],
        "saves": saves,
    }
    numbers["share"] = numbers["saving_seconds"] / numbers["seconds"]
    print(
        f"Hopper-v5, default settings: {numbers['saves']} saves took {1000 * numbers['saving_seconds']:.0f} ms "
        f"of {numbers['seconds']:.0f} s, {100 * numbers['share']:.2f} %"
    )
    return numbers


if __name__ == "__main__":
    main()
