"""One run of a sweep in a separate process, on cores that no other run uses."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from arac.errors import UserError
from arac.sweeps.jobs import Job
from arac.utils.processes import cores, how_it_ended, one_thread

# Share of a GPU's memory that the runs on it take together; the rest is left to the driver.
_GPU_MEMORY = 0.9
# Characters of a failed run's output that are reported: the end of a traceback.
_TOLD = 4000


class Resources(NamedTuple):
    """The cores and GPUs reserved for one run. Another number of cores changes the last digits of its results."""

    cpus: int = 1
    gpus: float = 0.0  # 0.25: four runs share one


ONE_CORE = Resources()


class Ended(NamedTuple):
    """The outcome of one attempt at a run."""

    status: int | None  # exit status of its process; None if unknown
    said: str  # the end of its output, or a description of the failure


class RunProcess:
    """A process that begins or resumes a run, with its output in a log. It is killed when this process ends."""

    def __init__(self, job: Job, parent: Path, resources: Resources, turn: int) -> None:
        self._cores = _Cores(resources.cpus, turn)
        self._log = log_of(job, parent)
        with self._log.open("ab") as log:
            lifeline, self._lifeline = os.pipe()
            self._from = log.tell()
            where = f"{socket.gethostname()}, cores {self._cores.numbers}"
            log.write(f"--- {time.strftime('%F %T')} on {where}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                command(job, parent / job.name, lifeline, resources.cpus),
                pass_fds=[lifeline],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # so that Ctrl-C does not reach it; `ask_to_stop` ends it
                # JAX tells of devices that are not there.
                env={"TF_CPP_MIN_LOG_LEVEL": "2", **one_thread(), **_graphics(resources.gpus)},
            )
        os.close(lifeline)
        if self._cores.numbers:
            os.sched_setaffinity(self._process.pid, self._cores.numbers)

    def poll(self) -> Ended | None:
        """Return the outcome if the process has ended, else None."""
        status = self._process.poll()
        if status is None:
            return None
        self._close()
        with self._log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._from, size - 4 * _TOLD))
            _, _, written = log.read().decode(errors="replace").partition("\n")
        how = [f"it {how_it_ended(status)}"] if status < 0 or not written.strip() else []
        return Ended(status, "\n".join([written.strip()[-_TOLD:], *how]).strip())

    def ask_to_stop(self) -> None:
        """Send SIGTERM; the run saves a checkpoint before it ends."""
        self._process.terminate()

    def wait(self) -> None:
        """Wait until the process has ended."""
        self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
            self._cores.give_back()


def command(job: Job, folder: Path, lifeline: int, cpus: int) -> list[str]:
    """Return the command of a process that carries out `job` in `folder` (see child.py)."""
    words = [str(lifeline), json.dumps(asdict(job)), str(folder), str(cpus)]
    return [sys.executable, "-m", "arac.sweeps.child", *words]


def log_of(job: Job, parent: Path) -> Path:
    """Return the path of the log of a job's run."""
    return parent / "logs" / f"{job.name}.log"


def _graphics(gpus: float) -> dict[str, str]:
    if gpus == 0:
        return {"JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{_GPU_MEMORY * min(gpus, 1):.3f}"}


class _Cores:
    """Cores of this machine, each reserved by binding a socket to a name that only one process can hold at a time.

    The kernel releases the name however the process ends. In this way several sweeps, and several Ray nodes on one
    machine, use different cores. If there are more runs than cores, some runs share cores: `turn` selects which.
    """

    def __init__(self, wanted: int, turn: int) -> None:
        self.numbers: list[int] = []
        self._held: list[socket.socket] = []
        if not hasattr(os, "sched_setaffinity"):
            return
        ours = cores()
        if len(ours) < wanted:
            raise UserError(f"A run needs {wanted} cores, and on {socket.gethostname()} there are {len(ours)} for it.")
        for core in ours:
            if len(self.numbers) < wanted and self._take(core):
                self.numbers.append(core)
        others = [core for core in ours if core not in self.numbers]
        self.numbers += [others[(turn + more) % len(others)] for more in range(wanted - len(self.numbers))]

    def _take(self, core: int) -> bool:
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0arac-core-{core}")
        except OSError:
            name.close()
            return False
        self._held.append(name)
        return True

    def give_back(self) -> None:
        for name in self._held:
            name.close()
