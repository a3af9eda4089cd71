"""`arac export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from arac.cli.common import log, parse


@dataclass(frozen=True)
class ExportArgs:
    """Write the champion of a run into one file of plain arrays, to act without JAX and without arac.

    docs/api.md shows how it is read with NumPy alone, under "Without JAX".
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder, or a file that an agent was saved to."""
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE.npz")]
    """The npz file to write."""


def export(argv: list[str]) -> None:
    """Carry out `arac export`."""
    from arac.agents.classes import load

    args = parse(ExportArgs, "export", argv)
    agent = load(args.run, log=log)
    agent.export(args.out)
    log(f"{agent.algorithm.title} on {agent.env.id}, trained for {agent.state.env_steps:,} steps: {args.out}")
