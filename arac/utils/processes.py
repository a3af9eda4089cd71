"""Other processes: the cores and threads they may use, how they end, and that none is left behind."""

import fcntl
import io
import os
import select
import signal
import sys
from typing import Any

# Variables of a process whose NumPy keeps to one thread.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def one_thread() -> dict[str, str]:
    """The variables of a process that finds the same modules as this one, and whose NumPy keeps to one thread."""
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class _LastingFile(io.FileIO):
    """A file that swallows what is written to it once its reader is gone."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return len(data)


def outlive_readers() -> None:
    """Let this process go on when the reader of its output goes away, as `head` does: the rest is written nowhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not getattr(sys, f"__{name}__") or not isinstance(stream, io.TextIOWrapper):
            continue  # closed, or captured by somebody
        stream.flush()
        lasting = io.TextIOWrapper(
            io.BufferedWriter(_LastingFile(stream.fileno(), "w", closefd=False)),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, lasting)


def end_with(lifeline: int) -> None:
    """Has the kernel kill this process and its group once another process ends, whatever they are doing.

    Args:
        lifeline: the reading end of a pipe that nobody writes to, and whose other end only that process has open.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    if hasattr(fcntl, "F_SETSIG"):  # elsewhere SIGIO comes, which ends a process too
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it was gone before this was set up
        os._exit(0)


def how_it_ended(status: int | None) -> str:
    """In words that follow "it"."""
    if status is None:
        return "stopped answering"
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
