"""The progress of a run: its current phase, the time of each phase, and requests to stop."""

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from arac.errors import Interrupted

# Updates per jitted call: about a second of work, after which progress is shown and Ctrl-C takes effect.
_CHUNK = 256
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Progress:
    """The progress of a run, set by the algorithms and read by the display. Results never depend on it."""

    def __init__(self) -> None:
        self.name = "start"
        self.done = 0
        self.total = 0
        self.seconds: dict[str, float] = {}
        self.on_advance: Callable[[], None] | None = None
        self.log: Callable[[str], None] = warnings.warn  # shows a message to the user at once
        self._stop = False

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[None]:
        """Enter a phase of `total` units of work, and add its time to `seconds`."""
        self.name, self.done, self.total = name, 0, total
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def chunks(self, name: str, count: int) -> Iterator[tuple[int, int]]:
        """Split `count` updates into (start, stop) ranges, one for each jitted call, and yield them."""
        with self.phase(name, count):
            for start in range(0, count, _CHUNK):
                self.check()
                stop = min(start + _CHUNK, count)
                yield start, stop
                self.advance(stop - start)

    def advance(self, units: int = 1) -> None:
        """Count finished units of the phase, and inform the display."""
        self.done += units
        if self.on_advance is not None:
            self.on_advance()

    def check(self) -> None:
        """Stop the run here if it was asked to stop; called where nothing is lost by that.

        Raises:
            Interrupted: if it was.
        """
        if self._stop:
            raise Interrupted

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Let Ctrl-C, SIGTERM and the loss of the terminal stop the run at its next `check`, within the block.

        A second signal stops it at once. Signals that the process ignores, as under `nohup`, remain ignored.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def request(number: int, frame: FrameType | None) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self._stop = True

        handled = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
        before: dict[int, Any] = {number: signal.signal(number, request) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._stop = False
