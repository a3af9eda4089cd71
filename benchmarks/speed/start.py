"""The time from the command to the first environment step, without and with compiled code in the cache."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arac.errors import EnvironmentFailure
from benchmarks.speed.first_step import NOTE
from benchmarks.speed.turns import ROOT

PATIENCE = 120.0  # seconds


def measure(rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the seconds of successive starts of `arac train`, with a compilation cache that is empty at the first."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1 + rounds):
            yield {"start": number + 1, "seconds": _start(Path(folder), number)}


def _start(folder: Path, number: int) -> float:
    note = folder / f"note-{number}"
    words = [
        "train",
        "benchmarks.speed.first_step:FirstStep-v0",
        "--steps",
        "100000",
        "--run-dir",
        str(folder / str(number)),
    ]
    settings = {"PYTHONPATH": str(ROOT), NOTE: str(note), "XDG_CACHE_HOME": str(folder / "cache")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    began = time.time()
    process = subprocess.Popen(
        [sys.executable, "-m", "arac", *words],
        env={**kept, **settings}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not (note.exists() and note.read_text()):
            if process.poll() is not None or time.time() - began > PATIENCE:
                raise EnvironmentFailure("`arac train` did not get to its first step.")
            time.sleep(0.02)
        return float(note.read_text()) - began
    finally:
        process.terminate()
        process.wait()
