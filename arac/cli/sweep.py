"""`arac sweep` and `arac sweep status`."""

import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from arac.cli.common import log_stopped, parse, program
from arac.errors import UserError

if TYPE_CHECKING:
    from arac.sweeps.jobs import Job


@dataclass(frozen=True)
class SweepArgs:
    """Execute many ordinary runs: algorithms by tasks by seeds by settings, as a TOML file lists them.

    Finished runs are skipped, interrupted ones resumed, failed ones retried: repeat the command at any time.
    `arac sweep status DIR` shows the progress from elsewhere. docs/scaling.md describes the file.
    """

    spec: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SPEC.toml")]
    """TOML file that lists the runs."""
    runs: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Parent of the run folders; default: a folder below runs/, named after the file. On a cluster, all nodes must
    share it."""
    engine: Literal["local", "ray"] = "local"
    """Execute the runs in local processes or on a Ray cluster."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Local runs at a time, each on separate cores; default: as many as the cores allow."""
    address: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Address of the Ray cluster; default: that in RAY_ADDRESS, or a cluster of this machine."""
    retries: int = 2
    """Retries of a run that fails without a new checkpoint."""
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
    """Refresh until Ctrl-C or the end of the sweep."""


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
        log_stopped(stop, ["sweep", *argv])
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
