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
    """Measure how fast it is on this machine, as ratios taken side by side; nothing else should be running.

    The whole of it takes about 40 minutes on two cores. A table is printed, numbers and a picture are kept.
    """

    parts: tyro.conf.Positional[
        tuple[Literal["updates", "repulsion", "profile", "peers", "growth", "phases", "start"], ...]
    ] = ()
    """updates: against their matrix products alone; repulsion: updates with and without it, side by side; profile: what
    the rest of an update is; peers: whole runs against SBX and Stable-Baselines3; growth: with agents, replay and
    workers; phases: where the time of a run goes; start: up to the first environment step. Without any: all, and peers
    where they are installed."""
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")] = Path("bench")
    """A folder for bench.json and bench.png; parts that were measured before stay in them."""
    peers: Annotated[Path, tyro.conf.arg(metavar="PYTHON")] = Path(".venv-peers/bin/python")
    """The interpreter of an environment with the peers; `make bench-peers` sets one up."""
    tasks: tuple[str, ...] = ()
    """Tasks for updates, repulsion and profile; by default the paper's."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only see that it works: few rounds, one task."""


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
