"""The parts of `python -m benchmarks.speed`, with ratios that are measured side by side in one run.

Each part yields rows, which are printed at once and kept in one JSON file with the machine and the versions, so that a
part can be measured again without the others.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arac.algorithms.presets import paper_table
from benchmarks.speed import growth, peers, phases, profile, start, updates
from benchmarks.speed.machine import machine
from benchmarks.speed.picture import draw

Rows = Iterator[dict[str, Any]]


class Effort(NamedTuple):
    """The amount of measurement. `QUICK` only shows that everything works; its numbers are rough."""

    tasks: tuple[str, ...] = tuple(paper_table())
    rounds: int = 15
    updates: int = 64
    turns: int = 15  # of each contender, in whole runs against peers
    stretch: int = 400  # environment steps of such a turn
    with_evaluation: bool = True
    phase_steps: int = 30_000


QUICK = Effort(("Hopper",), rounds=1, updates=32, turns=3, with_evaluation=False, phase_steps=12_000)


class Part(NamedTuple):
    title: str
    head: str
    line: Callable[[dict[str, Any]], str]
    measure: Callable[[Effort, Path], Rows]


def _growth(effort: Effort) -> Rows:
    yield from growth.with_members(min(effort.rounds, 3))
    yield from growth.with_replay(effort.rounds, effort.updates)
    yield from growth.with_workers(min(effort.rounds, 3))


PARTS = {
    "updates": Part(
        "Updates against their matrix products alone; milliseconds",
        f"{'task':17}{'update':18}{'per second':>11}{'ms':>8}{'products':>10}{'GFLOP/s':>9}{'sampling':>10}"
        f"{'Adam':>7}{'ratio':>7}",
        lambda row: (
            f"{row['task']:17}{row['update']:18}{row['per_second']:>11.0f}{row['update_ms']:>8.2f}"
            f"{row['products_ms']:>10.2f}{row['products_gflops']:>9.0f}{row['sampling_ms']:>10.2f}{row['adam_ms']:>7.2f}"
            f"{row['ratio']:>7.2f}"
        ),
        lambda effort, _: updates.measure(list(effort.tasks), rounds=effort.rounds, count=effort.updates),
    ),
    "repulsion": Part(
        "Updates of an environment step with each kind of repulsion; milliseconds",
        f"{'task':17}{'repulsion':14}{'ms':>8}{'ratio':>7}",
        lambda row: f"{row['task']:17}{row['repulsion']:14}{row['ms']:>8.2f}{row['ratio']:>7.2f}",
        lambda effort, _: updates.cost_of_repulsion(list(effort.tasks), rounds=effort.rounds, count=effort.updates),
    ),
    "profile": Part(
        "Time of an update by operation, in percent",
        f"{'task':17}{'update':18}{'operations':>11}" + "".join(f"{name:>12}" for name in profile.NAMES),
        lambda row: (
            f"{row['task']:17}{row['update']:18}{row['operations']:>11.0f}"
            + "".join(f"{100 * share:>12.1f}" for share in row["shares"].values())
        ),
        lambda effort, _: profile.measure([task for task in ("Hopper", "Humanoid") if task in effort.tasks], count=64),
    ),
    "peers": Part(
        "Whole runs against peers; milliseconds per environment step",
        f"{'task':14}{'what':36}{'library':19}{'ms':>8}{'times ours':>12}{'peak GB':>9}",
        lambda row: (
            f"{row['task']:14}{row['what']:36}{row['library']:19}{row['ms_per_step']:>8.2f}{row['times_ours']:>12.2f}"
            f"{row['peak_bytes'] / 1e9:>9.2f}"
        ),
        lambda effort, python: peers.measure(
            python,
            rounds=effort.turns,
            stretch=effort.stretch,
            with_evaluation=effort.with_evaluation,
        ),
    ),
    "growth": Part(
        "Growth of the cost; milliseconds per environment step, or per critic update for replay",
        f"{'with':10}{'size':>11}{'ms':>9}{'ratio':>8}{'memory GB':>11}",
        lambda row: (
            f"{row['what']:10}{row['size']:>11,}{row['ms']:>9.3f}{row['ratio']:>8.2f}"
            + (f"{row['bytes'] / 1e9:>11.2f}" if row["bytes"] else "")
        ),
        lambda effort, _: _growth(effort),
    ),
    "phases": Part(
        "Time of a default run of ARAC by phase, in percent",
        f"{'task':14}{'steps':>8}{'seconds':>9}"
        + "".join(f"{name:>10}" for name in (*phases.NAMES, "other", "updates")),
        lambda row: (
            f"{row['task']:14}{row['steps']:>8,}{row['seconds']:>9.1f}"
            + "".join(f"{100 * share:>10.1f}" for share in (*row["shares"].values(), row["updates"]))
        ),
        lambda effort, _: phases.measure(peers.TASKS[: 1 if effort is QUICK else 2], effort.phase_steps),
    ),
    "start": Part(
        "From the command to the first environment step",
        f"{'start':>5}{'seconds':>9}",
        lambda row: f"{row['start']:>5}{row['seconds']:>9.1f}",
        lambda effort, _: start.measure(min(effort.rounds, 3)),
    ),
}


def run(parts: Sequence[str], out: Path, peers_python: Path, effort: Effort) -> None:
    """Measure parts, print their rows, and update bench.json and bench.png, which keep the rows of other parts.

    Args:
        parts: names of the parts to measure.
        out: folder of bench.json and bench.png.
        peers_python: interpreter of the environment in which the peers are installed.
        effort: the amount of measurement.
    """
    path = out / "bench.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    out.mkdir(parents=True, exist_ok=True)
    print(
        f"{machine()['processor']}; products of 1024-cubed matrices: {updates.peak_gflops(5):.0f} GFLOP/s", flush=True
    )
    for number, name in enumerate(parts, 1):
        part = PARTS[name]
        print(f"\n{number} of {len(parts)}: {part.title}\n{part.head}", flush=True)
        rows = []
        for row in part.measure(effort, peers_python):
            rows.append(row)
            print(part.line(row), flush=True)
            results |= {name: {"machine": machine(), "quick": effort is QUICK, "rows": rows}}
            path.write_text(json.dumps(results, indent=1) + "\n")
        draw(results, out / "bench.png")
