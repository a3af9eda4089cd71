"""Runs of `make train` with several seeds, and a table of their returns.

    python -m benchmarks.demonstration [--seeds 0 1 2 3 4] [--out results/demonstration]

The command is that of the Makefile, with a seed and a run folder. A finished run is not repeated; an interrupted one is
resumed.
"""

import argparse
import json
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path

from arac import __version__
from arac.storage import metrics
from arac.storage.metrics import timings, wall_clock
from arac.utils.processes import cores

ROOT = Path(__file__).parents[1]


def command() -> list[str]:
    """Return the arguments that `make train` passes to arac."""
    shown = subprocess.run(["make", "-n", "train"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    [line] = [line for line in shown.splitlines() if line.startswith(".venv/bin/arac train ")]
    return shlex.split(line)[1:]


def run(seed: int, folder: Path) -> float:
    """Train with a seed, unless that is done, and return the seconds of the whole command."""
    took = folder / "seconds.json"
    if took.exists():
        return float(json.loads(took.read_text()))
    begun = (folder / "config.toml").exists()
    words = ["resume", str(folder)] if begun else [*command(), "--seed", str(seed), "--run-dir", str(folder)]
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "arac", *words], check=True)
    seconds = time.monotonic() - began
    if begun:  # the time that it would have taken without interruption
        seconds = wall_clock(timings(folder / "timings.jsonl")) or seconds
    took.write_text(json.dumps(seconds))
    return seconds


def row_of(seed: int, folder: Path, seconds: float) -> dict[str, float]:
    rows = metrics.read_evaluations(folder)
    returns = [row["champion_return"] for row in rows]
    return {
        "seed": seed,
        "first": returns[0],
        "last": returns[-1],
        "best": max(returns),
        "steps": rows[-1]["env_steps"],
        "seconds": seconds,
    }


def as_table(rows: list[dict[str, float]]) -> str:
    lines = ["| seed | first evaluation | last evaluation | best | minutes |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        minutes, seconds = divmod(round(row["seconds"]), 60)
        returns = " | ".join(f"{row[name]:,.0f}" for name in ("first", "last", "best"))
        lines.append(f"| {row['seed']} | {returns} | {minutes}:{seconds:02d} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "demonstration")
    parser.add_argument("--runs", type=Path, default=Path("runs") / "demonstration")
    arguments = parser.parse_args()
    folders = {seed: arguments.runs / f"seed{seed}" for seed in arguments.seeds}
    rows = [row_of(seed, folder, run(seed, folder)) for seed, folder in folders.items()]
    machine = f"{len(cores())} cores, {platform.machine()}"
    said = f"`arac {shlex.join(command())}`, {machine}, arac {__version__}:\n\n{as_table(rows)}\n"
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "table.md").write_text(said)
    (arguments.out / "runs.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(said)


if __name__ == "__main__":
    main()
