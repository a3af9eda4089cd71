"""Sweeps: many runs, on this machine or on a Ray cluster."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from arac.errors import UserError
from arac.sweeps import spec as specs
from arac.sweeps.backends import Engine, LocalEngine, RayEngine
from arac.sweeps.process import ONE_CORE, Resources
from arac.sweeps.scheduler import RETRIES, carry_out

EngineName: TypeAlias = Literal["local", "ray"]


def sweep(
    spec: str | os.PathLike[str] | Mapping[str, Any],
    folder: str | os.PathLike[str],
    *,
    engine: EngineName = "local",
    jobs: int | None = None,
    address: str | None = None,
    retries: int = RETRIES,
    progress_bar: bool = False,
) -> list[Path]:
    """Carry out every run of a sweep that is not finished yet, each in an ordinary run folder.

    Args:
        spec: a TOML file, or its content as a dictionary: {"algorithms": […], "tasks": […], "seeds": 5, …}.
        folder: the parent of the run folders; on a cluster, a folder that all nodes share.
        engine: "local" for processes of this machine, "ray" for a Ray cluster.
        jobs: number of local runs at a time; by default as many as the cores allow.
        address: address of the Ray cluster; by default that in RAY_ADDRESS, or else a cluster of this machine.
        retries: number of further attempts at a run that fails without a new checkpoint.
        progress_bar: show a live table, or plain lines where the output is not a terminal.

    Returns:
        The run folders, in the order of the sweep.

    Raises:
        UserError: if the spec or an option is invalid; nothing was started then.
        EnvironmentFailure: if runs still failed after all retries; the others are finished first.
        KeyboardInterrupt: after Ctrl-C, with a checkpoint of each run written.
    """
    if retries < 0:
        raise UserError(f"retries must be at least 0, got {retries}.")
    wanted = specs.read(spec if isinstance(spec, Mapping) else Path(spec))
    parent = Path(folder)
    chosen = choose(engine, jobs=jobs, address=address, resources=wanted.resources)
    carry_out(wanted.jobs, parent, chosen, retries=retries, show=progress_bar)
    return [parent / job.name for job in wanted.jobs]


def choose(engine: str, *, jobs: int | None, address: str | None, resources: Resources = ONE_CORE) -> Engine:
    """Return the engine with the given name.

    Args:
        engine: "local" or "ray".
        jobs: number of runs at a time, for the local engine only.
        address: address of the cluster, for Ray only.
        resources: the cores and GPUs of each run.

    Raises:
        UserError: if there is no such engine, or an option is invalid or belongs to the other engine.
    """
    if engine not in ("local", "ray"):
        raise UserError(f"There is no engine {engine!r}; the engines are local and ray.")
    if engine == "ray" and jobs is not None:
        raise UserError("jobs is only for engine 'local'.")
    if engine == "local" and address is not None:
        raise UserError("address is only for engine 'ray'.")
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs must be at least 1, got {jobs}.")
    return RayEngine(address, resources) if engine == "ray" else LocalEngine(jobs, resources)
