"""The command, in a process that dies at a chosen operation on its run folder.

    python victim.py OPERATION before|after|torn COUNT_FILE train InvertedPendulum-v5 …

Operation 0 never comes: the process ends by itself and writes how many there were.
"""

import fcntl
import os
import signal
import sys
from pathlib import Path

_OPERATIONS = ("fsync", "rename", "unlink", "rmdir", "mkdir", "ftruncate", "write")


class Fate:
    """Count the operations on files of a run folder, and kill the process at one of them."""

    def __init__(self, deadly: int, how: str) -> None:
        self.count = 0
        self._deadly = deadly
        self._how = how

    def wrap(self, name: str) -> None:
        original = getattr(os, name)

        def operation(target, *rest, **options):
            if not _in_a_run(target, options.get("dir_fd")):
                return original(target, *rest, **options)
            self.count += 1
            if self.count != self._deadly:
                return original(target, *rest, **options)
            if self._how == "torn" and name == "fsync" and _is_writable(target):
                os.truncate(target, os.fstat(target).st_size // 2)  # data that was not flushed may be lost
            if self._how == "torn" and name == "write":
                original(target, rest[0][: len(rest[0]) // 2])
            if self._how == "after":
                original(target, *rest, **options)
            os.kill(os.getpid(), signal.SIGKILL)
            return None

        setattr(os, name, operation)


def _is_writable(descriptor: int) -> bool:
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR))


def _in_a_run(target: object, folder: int | None) -> bool:
    if isinstance(target, int):
        path = os.readlink(f"/proc/self/fd/{target}")
    else:
        path = os.path.join(os.readlink(f"/proc/self/fd/{folder}") if folder else os.getcwd(), os.fspath(target))
    return "/run" in path


if __name__ == "__main__":
    fate = Fate(int(sys.argv[1]), sys.argv[2])
    for name in _OPERATIONS:
        fate.wrap(name)
    from arac.cli import main

    status = main(sys.argv[4:])
    Path(sys.argv[3]).write_text(str(fate.count))
    sys.exit(status)
