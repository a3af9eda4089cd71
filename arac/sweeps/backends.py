"""The engines that execute the runs of a sweep: processes of this machine, or a Ray cluster."""

import os
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Protocol, Self

from arac.errors import UserError
from arac.sweeps.jobs import Job, becomes_free
from arac.sweeps.process import ONE_CORE, Ended, Resources, RunProcess, log_of
from arac.utils import ray_utils
from arac.utils.processes import cores

# Seconds to wait for the lock of a run whose process is dying on another node.
_PATIENCE = 60.0


class Engine(Protocol):
    """An executor of runs, used as a context manager."""

    name: str

    def __enter__(self) -> Self: ...

    def __exit__(self, *failure: object) -> None:
        """Ask all runs to save and stop, and wait until they have ended."""

    def places(self) -> int:
        """Return the number of runs that can be executed at a time."""

    def has_room(self) -> bool:
        """Return True if another job can be started."""

    def start(self, job: Job, parent: Path) -> None:
        """Start or resume a job in its folder below `parent`."""

    def at_work(self, job: Job) -> bool:
        """Return whether a started job is running, rather than waiting for free resources."""

    def ended(self) -> list[tuple[Job, Ended]]:
        """Remove the jobs whose attempt has ended, and return them with the outcome."""


class LocalEngine:
    """Processes of this machine, each pinned to cores that no other run uses."""

    name = "local"

    def __init__(self, jobs: int | None = None, resources: Resources = ONE_CORE) -> None:
        """Prepare `jobs` places for runs; by default as many as the machine has cores for.

        Raises:
            UserError: if a run needs more cores than there are, or GPUs.
        """
        there = len(cores())
        if resources.cpus > there:
            raise UserError(f"cpus must be at most {there}, the cores of this machine, got {resources.cpus}.")
        if resources.gpus:
            raise UserError("gpus needs --engine ray.")
        self._places = there // resources.cpus if jobs is None else jobs
        self._resources = resources
        self._at_work: list[tuple[Job, RunProcess]] = []
        self._turns = count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        for _, process in self._at_work:
            process.ask_to_stop()
        for _, process in self._at_work:
            process.wait()
        self._at_work = []

    def places(self) -> int:
        return self._places

    def has_room(self) -> bool:
        return len(self._at_work) < self._places

    def start(self, job: Job, parent: Path) -> None:
        self._at_work.append((job, RunProcess(job, parent, self._resources, next(self._turns))))

    def at_work(self, job: Job) -> bool:
        return any(job is other for other, _ in self._at_work)

    def ended(self) -> list[tuple[Job, Ended]]:
        polled = [(job, process, process.poll()) for job, process in self._at_work]
        self._at_work = [(job, process) for job, process, ended in polled if ended is None]
        return [(job, ended) for job, _, ended in polled if ended is not None]


class RayEngine:
    """A Ray cluster: one task per run, which starts the same process on its node as `LocalEngine` does here.

    All tasks are submitted at once, so that an autoscaling cluster sees the demand; Ray begins them as resources
    become free.
    """

    name = "ray"

    def __init__(self, address: str | None = None, resources: Resources = ONE_CORE) -> None:
        self._address = address
        self._resources = resources
        self._at_work: dict[Any, tuple[Job, Path, int]] = {}  # by Ray's reference; the int: log size before

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._ray = self._stack.enter_context(ray_utils.connected(self._address, show_output=False))
        cpus, gpus = self._resources
        self._task = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(_carry_out_here)
        if not self.places():
            self._stack.close()
            raise UserError(f"No node of the Ray cluster has {cpus} CPUs and {gpus:g} GPUs, which each run needs.")
        return self

    def __exit__(self, *failure: object) -> None:
        try:
            for reference in self._at_work:
                self._ray.cancel(reference, force=False)
            saving = list(self._at_work)
            while saving:
                _, saving = self._ray.wait(saving, num_returns=len(saving), timeout=0.5)
        finally:
            self._at_work = {}
            self._stack.close()

    def places(self) -> int:
        return sum(_places_on(node["Resources"], self._resources) for node in self._ray.nodes() if node["Alive"])

    def has_room(self) -> bool:
        return True

    def start(self, job: Job, parent: Path) -> None:
        log = log_of(job, parent)
        before = log.stat().st_size if log.exists() else 0
        reference = self._task.remote(job, parent.absolute(), self._resources)
        self._at_work[reference] = (job, log, before)

    def at_work(self, job: Job) -> bool:
        return any(
            job is other and log.exists() and log.stat().st_size > before
            for other, log, before in self._at_work.values()
        )

    def ended(self) -> list[tuple[Job, Ended]]:
        if not self._at_work:
            return []
        done, _ = self._ray.wait(list(self._at_work), num_returns=len(self._at_work), timeout=0)
        return [(self._at_work.pop(reference)[0], self._outcome(reference)) for reference in done]

    def _outcome(self, reference: Any) -> Ended:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            return Ended(None, str(error))
        except self._ray.exceptions.RayError as error:  # its process or its node has died
            return Ended(None, f"its Ray worker was lost: {error}")


def _carry_out_here(job: Job, parent: Path, resources: Resources) -> Ended:
    """Start a run's process on this node, and wait for it; a Ray worker calls this.

    If the Ray task is cancelled, the process is asked to save and stop.
    """
    if not (parent / "logs").is_dir():
        raise UserError(f"{parent} is not there on this node: the folder of a sweep must be shared by all nodes.")
    folder = parent / job.name
    if folder.is_dir():
        becomes_free(folder, _PATIENCE)  # if not, the run itself reports it
    process = None
    try:
        process = RunProcess(job, parent, resources, turn=os.getpid())  # Ray's workers do not know of each other
        while (ended := process.poll()) is None:
            time.sleep(0.2)
        return ended
    except BaseException:
        if process is not None:
            process.ask_to_stop()
            process.wait()
        raise


def _places_on(node: dict[str, float], resources: Resources) -> int:
    """Return the number of runs that fit on an empty node."""
    by_cpu = int(node.get("CPU", 0)) // resources.cpus
    if not resources.gpus:
        return by_cpu
    gpus = int(node.get("GPU", 0))
    by_gpu = gpus * int(1 / resources.gpus + 1e-9) if resources.gpus < 1 else gpus // int(resources.gpus)
    return min(by_cpu, by_gpu)
