"""`arac reproduce` and `arac report`."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from arac.cli.common import log_stopped, parse
from arac.errors import EnvironmentFailure, UserError

if TYPE_CHECKING:
    from arac.experiments.catalogue import Experiment
    from arac.experiments.planning import Size
    from arac.sweeps.backends import Engine
    from arac.sweeps.jobs import Job


@dataclass(frozen=True)
class ReproduceArgs:
    """Run an experiment: a series of ordinary runs, then a table and a picture of them.

    Finished runs are skipped and interrupted ones resumed: repeat the command at any time. More steps than before
    extend the runs; each then has one evaluation more than a run that was started with as many.
    """

    experiment: tyro.conf.Positional[Literal["didactic", "repulsion", "gaussian", "curves", "table", "deceptive"]]
    """didactic: which shapes policies take that imitate an expert and avoid another policy, in a plane.
    repulsion: how far apart agents are that were trained with and without repulsion.
    gaussian: attraction and repulsion on flows, on a Gaussian, and none.
    curves: learning curves of ARAC and the other populations; table: returns of all algorithms. Both make a report.
    deceptive: how often algorithms find the optimum of a task with a trap, and where their agents go."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Environment steps of each run (didactic: gradient steps). Each experiment has a small default."""
    seeds: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Runs of each algorithm on each task, with the seeds 0, 1, …"""
    envs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ENV")] = ()
    """The tasks, where there is a choice: `arac list envs`."""
    algos: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ALGO")] = ()
    """The algorithms, for curves, table and deceptive: `arac list algos`."""
    full: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use the paper's scale, except for the flags above; print the expected time and ask for confirmation."""
    yes: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Start without confirmation."""
    show: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only write the tables and pictures of the runs that are finished so far."""
    runs: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Parent of the run folders; default: a folder below runs/, named after the experiment."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Folder for tables and pictures; default: beside the run folders. The small files of finished runs are copied to
    runs/ in it; a run that is kept there is not run again, on any machine."""
    engine: Literal["local", "ray"] = "local"
    """Execute the runs in local processes or on a Ray cluster."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Local runs at a time, each on one core; default: the number of cores."""
    address: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Address of the Ray cluster; default: that in RAY_ADDRESS, or a cluster of this machine."""


@dataclass(frozen=True)
class ReportArgs:
    """Draw a report on runs, finished or not: one HTML page that opens without a network, figures and tables.

    Nothing in the run folders is changed, and other processes may be working on them.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUNS")]
    """Run folders, or folders that contain run folders at any depth."""
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")] = Path("report")
    """A folder for index.html, the figures (PNG, PDF), table.csv and table.md."""


def reproduce(argv: list[str]) -> None:
    """Carry out `arac reproduce`."""
    from arac.experiments.catalogue import EXPERIMENTS
    from arac.learning.jit import keep_between_runs
    from arac.sweeps import choose
    from arac.sweeps.jobs import check
    from arac.sweeps.keeping import missing
    from arac.utils.paths import make_folder

    args = parse(ReproduceArgs, "reproduce", argv)
    experiment = EXPERIMENTS[args.experiment]
    size = _size(args, experiment.full if args.full else experiment.small)
    for name, value in (("--steps", size.steps), ("--seeds", size.seeds)):
        if value is not None and value < 1:
            raise UserError(f"{name} must be at least 1, got {value}.")
    planned = experiment.plan(size)
    if args.show and not planned:
        raise UserError(f"{args.experiment} has no runs that could be finished; leave out --show.")
    engine = choose(args.engine, jobs=args.jobs, address=args.address)
    folder = args.runs or Path("runs") / args.experiment
    out = args.out or folder
    kept = out / "runs" if args.out and experiment.measure else None
    jobs = [] if args.show else missing(planned, kept, experiment.measured)
    check(jobs, folder)
    keep_between_runs()
    if args.full and not args.show:
        _ask(jobs, folder, engine, args.yes)
    if not args.show:
        make_folder(out)
    try:
        failure = _carry_out(experiment, jobs, folder, kept, engine)
        try:
            said = experiment.show(size, kept or folder, out)
        except UserError as nothing_to_show:
            raise failure or nothing_to_show from None
    except KeyboardInterrupt as stop:
        log_stopped(stop, ["reproduce", *argv], kept=bool(planned))
        raise
    print(f"\n{said}\ntables, numbers and pictures: {out}", flush=True)
    if failure is not None:
        raise failure


def _carry_out(
    experiment: "Experiment", jobs: "list[Job]", folder: Path, kept: Path | None, engine: "Engine"
) -> EnvironmentFailure | None:
    """Carry out the runs; measure and keep each once it is finished.

    Returns:
        The failure if some runs failed, else None.
    """
    from arac.sweeps.keeping import keep
    from arac.sweeps.scheduler import carry_out

    def on_finish(job: "Job") -> None:
        if experiment.measure is not None:
            experiment.measure(folder / job.name)
        if kept is not None:
            keep(folder / job.name, kept / job.name, experiment.files)

    try:
        if jobs:
            carry_out(jobs, folder, engine, on_finish=on_finish)
    except EnvironmentFailure as error:
        return error
    return None


def _size(args: ReproduceArgs, size: "Size") -> "Size":
    """Return the experiment's size with the choices of the command line.

    Raises:
        UserError: if the experiment leaves no such choice.
    """
    chosen: dict[str, Any] = {name: value for name in ("steps", "seeds") if (value := getattr(args, name)) is not None}
    for name in ("envs", "algos"):
        if wanted := getattr(args, name):
            if not getattr(size, name):
                raise UserError(f"{args.experiment} has no choice of --{name}; leave that out.")
            chosen[name] = tuple(dict.fromkeys(wanted))
    return replace(size, **chosen)


def _ask(jobs: "list[Job]", folder: Path, engine: "Engine", agreed: bool) -> None:
    """Print how much there is to do, and ask whether to start.

    Raises:
        UserError: if the answer is no, or there is no terminal to ask in.
    """
    from arac.experiments.forecast import forecast

    with engine:
        places = engine.places()
    expected = forecast(jobs, folder, places)
    if expected.runs == 0:  # nothing to train, only to show
        return
    print(expected, flush=True)
    if agreed:
        return
    if not sys.stdin.isatty():
        raise UserError("Nothing was started; give --yes to start without being asked.")
    try:
        answer = input("Start? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UserError("Nothing was started; --steps, --seeds, --envs and --algos make it smaller.")


def report(argv: list[str]) -> None:
    """Carry out `arac report`."""
    from arac.analysis import report

    args = parse(ReportArgs, "report", argv)
    if not args.runs:
        raise UserError("arac report needs at least one run folder, or a folder that holds some.")
    table = report.write(args.runs, args.out)
    print(f"{table}\npage: {args.out}/index.html; beside it the figures, table.csv and table.md")
