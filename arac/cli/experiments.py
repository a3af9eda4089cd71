"""`arac reproduce`, `arac report` and `arac bench`."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from arac.cli.words import parse, program
from arac.errors import UserError


@dataclass(frozen=True)
class ReproduceArgs:
    """Run an experiment: a series of ordinary runs, then a table and a picture of them.

    What is finished is not run again, and what was stopped goes on: give the same command once more. With more steps
    than before the runs go on, too; each has then one evaluation more than a run that was begun with as many.
    """

    experiment: tyro.conf.Positional[Literal["deceptive"]]
    """deceptive: how often ARAC, ARAC without attraction and repulsion, SAC-NF and SAC find the optimum of a task with
    a trap, and where their agents go."""
    steps: int = 15_000
    """Environment steps of each run."""
    seeds: int = 10
    """Runs of each system, with the seeds 0, 1, …"""
    runs: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Where the run folders are; by default below runs/, named after the experiment."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Where table and picture go; by default beside the run folders."""
    processes: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Runs at a time, each on one core; by default as many as there are cores."""


@dataclass(frozen=True)
class ReportArgs:
    """Draw a report on runs, finished or not: one HTML page that opens without a network, figures and tables.

    Nothing in the run folders is changed, and other processes may be working on them.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUNS")]
    """Run folders, or folders that hold some at any depth."""
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")] = Path("report")
    """A folder for index.html, the figures (PNG, PDF), table.csv and table.md."""


@dataclass(frozen=True)
class BenchArgs:
    """Measure how fast it is on this machine, as ratios taken side by side; nothing else should be running.

    The whole of it takes about 40 minutes on two cores. A table is printed, numbers and a picture are kept.
    """

    parts: tyro.conf.Positional[tuple[Literal["updates", "profile", "peers", "growth", "phases", "start"], ...]] = ()
    """updates: against their matrix products alone; profile: what the rest of an update is; peers: whole runs against
    SBX and Stable-Baselines3; growth: with agents, replay and workers; phases: where the time of a run goes; start: up
    to the first environment step. Without any: all, and peers where they are installed."""
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")] = Path("bench")
    """A folder for bench.json and bench.png; parts that were measured before stay in them."""
    peers: Annotated[Path, tyro.conf.arg(metavar="PYTHON")] = Path(".venv-peers/bin/python")
    """The interpreter of an environment with the peers; `make bench-peers` sets one up."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only see that it works: few rounds, one task."""


def bench(argv: list[str]) -> None:
    from arac import bench
    from arac.compiling import keep_between_runs

    args = parse(BenchArgs, "bench", argv)
    keep_between_runs()
    everything = tuple(name for name in bench.PARTS if name != "peers" or args.peers.exists())
    chosen: tuple[str, ...] = args.parts or everything
    bench.run(chosen, args.out, args.peers, bench.QUICK if args.quick else bench.Effort())
    print(f"\nnumbers and picture: {args.out}/bench.json, bench.png")


def reproduce(argv: list[str]) -> None:
    from arac.experiments import deceptive
    from arac.rollout.local import cores

    args = parse(ReproduceArgs, "reproduce", argv)
    processes = len(cores()) if args.processes is None else args.processes
    for name, value in (("--steps", args.steps), ("--seeds", args.seeds), ("--processes", processes)):
        if value < 1:
            raise UserError(f"{name} must be at least 1, got {value}.")
    folder = args.runs or Path("runs") / args.experiment
    out = args.out or folder
    how = shlex.join([program(), "reproduce", *argv])
    try:
        table = deceptive.run(args.steps, args.seeds, folder, out, processes=processes)
    except KeyboardInterrupt:
        print(f"\nstopped; the checkpoints are written. Go on with: {how}", file=sys.stderr)
        raise
    print(f"\n{table}\npicture, table and numbers: {out}/{args.experiment}.png, .md, .json")


def report(argv: list[str]) -> None:
    from arac.experiments import report

    args = parse(ReportArgs, "report", argv)
    if not args.runs:
        raise UserError("arac report needs at least one run folder, or a folder that holds some.")
    table = report.write(args.runs, args.out)
    print(f"{table}\npage: {args.out}/index.html; beside it the figures, table.csv and table.md")
