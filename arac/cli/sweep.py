"""`arac sweep` and `arac sweep status`."""

import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from arac.cli.common import parse, program, say_stopped
from arac.errors import UserError

if TYPE_CHECKING:
    from arac.sweeps.jobs import Job


@dataclass(frozen=True)
class SweepArgs:
    """Carry out many ordinary runs: algorithms by tasks by seeds by settings, as a TOML file lists them.

    What is finished is not run again, what was stopped goes on, what fails is tried again: give the same command once
    more at any time. `arac sweep status DIR` shows from elsewhere how far it is. docs/scaling.md describes the file.
    """

    spec: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SPEC.toml")]
    """What to run."""
    runs: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Where the run folders are; by default below runs/, named after the file. On a cluster: a folder that all nodes
    share."""
    engine: Literal["local", "ray"] = "local"
    """Where the runs are at work: processes of this machine, or a Ray cluster."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Local runs at a time, each on cores of its own; by default as many as the cores allow."""
    address: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Of the Ray cluster; by default that in RAY_ADDRESS, or one of this machine."""
    retries: int = 2
    """How often a run is tried again that failed without getting any further."""
    keep: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Copy the small files of finished runs there, the champion's policy among them, without checkpoints and replay; a
    run that is kept there is not run again, on any machine."""
    fresh: int = 0
    """Fresh episodes in which the champion of each finished run is measured, into champion.json; 0: none."""
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only list the runs."""


@dataclass(frozen=True)
class StatusArgs:
    """Show every run of a sweep, with its progress and the time left."""

    sweep: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
    """The folder of its runs."""
    watch: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Go on showing it until Ctrl-C, or until nothing is at work any more."""


def sweep(argv: list[str]) -> None:
    """Carry out `arac sweep`."""
    if argv[:1] == ["status"]:
        _status(argv[1:])
        return
    from arac.sweeps import choose
    from arac.sweeps import spec as specs
    from arac.sweeps.keeping import missing
    from arac.sweeps.scheduler import carry_out
    from arac.utils.paths import make_folder

    args = parse(SweepArgs, "sweep", argv)
    for flag, value in (("--retries", args.retries), ("--fresh", args.fresh)):
        if value < 0:
            raise UserError(f"{flag} must be at least 0, got {value}.")
    spec = specs.read(args.spec)
    folder = args.runs or Path("runs") / args.spec.stem
    engine = choose(args.engine, jobs=args.jobs, address=args.address, resources=spec.resources)
    steps = sum(job.steps for job in spec.jobs)
    if args.dry_run:
        for job in spec.jobs:
            print(f"{job.name}  {job.steps:,} steps")
        print(f"{len(spec.jobs)} runs, {steps:,} steps, into {folder}; nothing was started")
        return
    jobs = missing(spec.jobs, args.keep, "champion.json" if args.fresh else None)
    if args.keep is not None:
        make_folder(args.keep)
    print(f"{len(spec.jobs)} runs, {steps:,} environment steps, into {folder}", flush=True)
    if len(jobs) < len(spec.jobs):
        print(f"{len(spec.jobs) - len(jobs)} of them are kept in {args.keep} and not run again", flush=True)

    try:
        if jobs:
            carry_out(jobs, folder, engine, retries=args.retries, on_finish=partial(_measure_and_keep, args, folder))
    except KeyboardInterrupt as stop:
        say_stopped(stop, ["sweep", *argv])
        raise
    shown = args.keep or folder
    print(f"all runs are finished. Next:\n  {program()} report {shown} --out {folder / 'report'}")


def _measure_and_keep(args: SweepArgs, folder: Path, job: "Job") -> None:
    """Play the champion's fresh episodes of a finished run and copy its files, as far as the flags ask for it."""
    from arac.sweeps import champions, keeping

    if args.fresh:
        champions.measure(folder / job.name, args.fresh)
    if args.keep is not None:
        champions.save(folder / job.name)
        keeping.keep(folder / job.name, args.keep / job.name)


def _status(argv: list[str]) -> None:
    from rich.console import Console
    from rich.live import Live

    from arac.sweeps.display import room_on, table
    from arac.sweeps.status import SweepStatus

    args = parse(StatusArgs, "sweep status", argv)
    status = SweepStatus.read(args.sweep)
    if not args.watch:
        Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table(status))
        return
    with Live(table(status), console=Console(highlight=False), auto_refresh=False) as live:
        while status.is_at_work:
            time.sleep(2)
            status = SweepStatus.read(args.sweep)
            live.update(table(status, room_on(live.console)), refresh=True)
