"""The command `python -m benchmarks.speed [PART ...]`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from arac.cli.common import parse
from arac.errors import exit_status
from arac.learning.jit import keep_between_runs
from benchmarks.speed import parts


@dataclass(frozen=True)
class BenchArgs:
    """Measure the speed on this machine, as ratios of alternating measurements. Stop other programs first.

    All parts take about 40 minutes on two cores. Tables are printed, and numbers and a picture are saved.
    """

    parts: tyro.conf.Positional[
        tuple[Literal["updates", "repulsion", "profile", "peers", "growth", "phases", "start"], ...]
    ] = ()
    """updates: against their matrix products alone; repulsion: updates with and without it; profile: an update by
    operation; peers: whole runs against SBX and Stable-Baselines3; growth: with agents, replay and workers; phases: a
    run by phase; start: from the command to the first environment step. Default: all, and peers if installed."""
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")] = Path("bench")
    """Folder of bench.json and bench.png; parts that were measured before are kept."""
    peers: Annotated[Path, tyro.conf.arg(metavar="PYTHON")] = Path(".venv-peers/bin/python")
    """Python interpreter of the environment with the peers; `make bench-peers` creates it."""
    tasks: tuple[str, ...] = ()
    """Tasks for updates, repulsion and profile; default: the paper's."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only test that everything works, with few rounds and one task."""


def main(argv: list[str]) -> None:
    args = parse(BenchArgs, "benchmarks.speed", argv, program="python -m")
    keep_between_runs()
    everything = tuple(name for name in parts.PARTS if name != "peers" or args.peers.exists())
    effort = parts.QUICK if args.quick else parts.Effort()
    effort = effort._replace(tasks=args.tasks) if args.tasks else effort
    parts.run(args.parts or everything, args.out, args.peers, effort)
    print(f"\nnumbers and picture: {args.out}/bench.json, bench.png")


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(sys.argv[1:])))
