"""Kill real runs of every algorithm many times, and compare the results with an undisturbed run.

    python tests/reliability/torture.py [--kills 36] [--seed 0]

Some kills come at a random time, some at a random operation on the run folder (before it, after it, or with a write
torn in half), some twice in a row with nothing saved in between. After each, no worker process may be left; after the
last, every parameter, replay file, metrics row and manifest must have the same bytes as in the run that went through.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from arac.algorithms.registry import ALGORITHMS

SETTINGS = ["--hidden-size", "16", "--batch-size", "16", "--warmup-steps", "200", "--eval-interval", "300"]
SETTINGS += ["--eval-episodes", "2", "--replay-capacity", "1000", "--checkpoint-interval", "60"]
STEPS = 1300  # more than replay holds
# Kills of a run before it may finish.
PER_RUN = 3
# Times of a kill, and the probability of each.
DEATHS = {
    "early": 0.2,
    "at a random time": 0.3,
    "before a disk operation": 0.15,
    "after one": 0.15,
    "in a torn write": 0.2,
}


@dataclass
class Report:
    """The kills of the runs of one algorithm."""

    algorithm: str
    kills: Counter = field(default_factory=Counter)  # by how
    in_a_row: int = 0  # kills with no checkpoint since the previous kill
    runs: int = 0
    identical: int = 0
    orphans: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {how}" for how, count in sorted(self.kills.items()))
        verdict = f"{self.identical} of {self.runs} runs identical, {self.orphans} processes left behind"
        return f"{self.algorithm:8} {self.kills.total()} kills ({kinds}; {self.in_a_row} with nothing saved): {verdict}"


class Torturer:
    """Run and kill one algorithm in a temporary folder."""

    def __init__(
        self,
        algorithm: str,
        folder: Path,
        rng: np.random.Generator,
        steps: int = STEPS,
        workers: int = 2,
        options: tuple[str, ...] = (),
    ) -> None:
        run = ["InvertedPendulum-v5", "--algo", algorithm, "--steps", str(steps), "--workers", str(workers)]
        self._train = ["train", *run, *SETTINGS, *options]
        self._folder = folder
        self._rng = rng
        self.report = Report(algorithm)

    def reference(self, times: int = 1) -> None:
        """Train the undisturbed run, and record its files, its time (of the last, compiled, one) and its operations."""
        for name in ["run0", "run00"][:times]:
            began = time.monotonic()
            process = self._start(0, "before", [*self._train, "--run-dir", name])
            _, complaint = process.communicate()
            assert process.returncode == 0, complaint
            self._seconds = time.monotonic() - began
            self._operations = int((self._folder / "count").read_text())
            self._expected = digest(self._folder / name)

    def run_to_its_end(self, name: str, deaths: list[str]) -> None:
        """Kill a run in these ways, unless it ends before, and let it finish."""
        folder, done = self._folder / name, False
        for death in deaths:
            done = done or self._live(folder, death)
        if not done:
            process = self._start(0, "before", self._words(folder))
            _, complaint = process.communicate()
            if process.returncode:
                self.report.faults.append(complaint)
        self.report.runs += 1
        found = digest(folder)
        different = {
            part for part in found.keys() | self._expected.keys() if found.get(part) != self._expected.get(part)
        }
        self.report.identical += not different
        if different:
            self.report.faults.append(f"{name} differs in {sorted(different)}")

    def random_deaths(self, count: int) -> list[str]:
        return [str(death) for death in self._rng.choice(list(DEATHS), size=count, p=list(DEATHS.values()))]

    def _live(self, folder: Path, death: str) -> bool:
        """Start a run and kill it; return True if it finished first."""
        saved = checkpoints(folder)
        if death in ("early", "at a random time"):
            seconds = self._rng.uniform(0.2, 2.2) if death == "early" else self._rng.uniform(0.4, 1.0) * self._seconds
            process = self._start(0, "before", self._words(folder))
            try:
                process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
        else:
            how = {"before a disk operation": "before", "after one": "after", "in a torn write": "torn"}[death]
            most = self._operations // (2 if saved else 1)
            process = self._start(int(self._rng.integers(1, most)), how, self._words(folder))
        _, complaint = process.communicate()
        if process.returncode == 0:
            return True
        if process.returncode != -9:
            self.report.faults.append(complaint)
        self.report.kills[death] += 1
        self.report.in_a_row += checkpoints(folder) == saved
        self.report.orphans += self._left_behind()
        return False

    def _words(self, folder: Path) -> list[str]:
        begun = (folder / "config.toml").exists()
        return ["resume", folder.name] if begun else [*self._train, "--run-dir", folder.name]

    def _start(self, operation: int, how: str, words: list[str]) -> subprocess.Popen:
        self._marker = uuid.uuid4().hex
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("victim.py")), str(operation), how, "count", *words],
            cwd=self._folder,
            env={**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "ARAC_MARKER": self._marker},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _left_behind(self) -> int:
        """Return the number of processes that are left two seconds after a kill."""
        deadline = time.monotonic() + 2
        while (count := len(marked(self._marker))) and time.monotonic() < deadline:
            time.sleep(0.02)
        return count


def marked(marker: str) -> list[Path]:
    """Return the processes, except zombies, that have the marker in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (path / "environ").read_bytes():
                found.append(path)
        except OSError:
            continue
    return found


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").glob("[0-9]*"))


def digest(folder: Path) -> dict[str, str]:
    """Return a hash of every file of a run, except those with wall-clock times."""
    parts = [path for path in folder.rglob("*") if path.is_file() and path.name != "timings.jsonl"]
    kept = [path for path in parts if path.name != "curve.png" and path.parent.name != "tensorboard"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}


def torture(algorithm: str, kills: int, seed: int) -> Report:
    """Kill runs of one algorithm at least `kills` times."""
    with tempfile.TemporaryDirectory() as folder:
        torturer = Torturer(algorithm, Path(folder), np.random.default_rng(seed))
        torturer.reference(times=2)
        while (missing := kills - torturer.report.kills.total()) > 0:
            deaths = torturer.random_deaths(min(PER_RUN, missing))
            torturer.run_to_its_end(f"run{torturer.report.runs + 1}", deaths)
        return torturer.report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=36, help="over all algorithms together")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", tempfile.mkdtemp())
    reports = []
    for number, algorithm in enumerate(ALGORITHMS):
        share = -(-arguments.kills // len(ALGORITHMS))
        reports.append(torture(algorithm, share, arguments.seed + number))
        print(reports[-1], *reports[-1].faults, sep="\n  ", flush=True)
    sound = all(report.identical == report.runs and not report.orphans and not report.faults for report in reports)
    total = sum(report.kills.total() for report in reports)
    sound &= sum(report.in_a_row for report in reports) > 0  # otherwise the kills were too gentle
    print(f"{total} kills: {'every run ended with the same bytes' if sound else 'NOT the same'}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
