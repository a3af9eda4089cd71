"""Support for child processes: cores and threads, exit with their parent, and descriptions of their end."""

import fcntl
import io
import os
import select
import signal
import sys
from typing import Any

# Environment variables that limit NumPy to one thread.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


def cores() -> list[int]:
    """Return the cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def one_thread() -> dict[str, str]:
    """Return environment variables for a process that finds the same modules as this one and has one NumPy thread."""
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class _LastingFile(io.FileIO):
    """A file that discards what is written to it once its reader is gone."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return len(data)


def outlive_readers() -> None:
    """Let this process continue when the reader of its output ends, as `head` does: further output is discarded."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not getattr(sys, f"__{name}__") or not isinstance(stream, io.TextIOWrapper):
            continue  # closed or captured
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
    """Let the kernel kill this process and its group once another process ends.

    Args:
        lifeline: the reading end of a pipe that nobody writes to, and whose other end only that process has open.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    if hasattr(fcntl, "F_SETSIG"):  # elsewhere the kernel sends SIGIO, which ends a process, too
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # the other process ended before this was set up
        os._exit(0)


def how_it_ended(status: int | None) -> str:
    """Describe the end of a process by its exit status, in a phrase that follows "it"."""
    if status is None:
        return "stopped answering"
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
