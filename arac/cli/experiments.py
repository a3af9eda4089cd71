"""`arac reproduce`."""

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
