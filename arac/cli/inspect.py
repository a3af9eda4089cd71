"""`arac doctor` and `arac list`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from arac.cli.common import beside, parse, wrapped


@dataclass(frozen=True)
class DoctorArgs:
    """Verify a run folder: hashes, shapes, counters, and metrics against checkpoints. Nothing in it is changed.

    Exit status 0 if all is sound, 3 if something is damaged.
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder."""


@dataclass(frozen=True)
class ListArgs:
    """List the algorithms or the tasks."""

    what: tyro.conf.Positional[Literal["algos", "envs"]]
    """algos: the algorithms; envs: the tasks that have a preset."""


def examine(argv: list[str]) -> int:
    """Carry out `arac doctor`, and return its exit status."""
    from arac.storage.verify import examine

    damaged = False
    for finding in examine(parse(DoctorArgs, "doctor", argv).run):
        print(f"{finding.level:8}{finding.text}", flush=True)
        damaged |= finding.level == "damaged"
    return 3 if damaged else 0


def list_things(argv: list[str]) -> None:
    """Carry out `arac list`."""
    from arac import envs
    from arac.algorithms.presets import paper_table, task_name
    from arac.algorithms.registry import ALGORITHMS
    from arac.envs.tasks import TASKS

    args = parse(ListArgs, "list", argv)
    if args.what == "algos":
        for algorithm in ALGORITHMS.values():
            print(f"{algorithm.name:10}{algorithm.title}")
        return
    print(beside(f"{'task':16}{'environment':24}{'obs':>4}{'act':>5}{'steps':>11}", "the paper's parameters"))
    for name, env_id in TASKS.items():
        spec, row = envs.check(env_id), paper_table().get(task_name(name), {})
        steps = f"{row['steps']:,}" if row else ""
        settings = ", ".join(f"{key} {value}" for key, value in row.items() if key != "steps")
        settings = settings or "none: a task of this library with a trap, see `arac reproduce deceptive`"
        print(beside(f"{name:16}{env_id:24}{spec.observation_size:>4}{spec.action_size:>5}{steps:>11}", settings))
    print(wrapped("Any other Gymnasium environment with continuous actions works by its id, with plain defaults."))
