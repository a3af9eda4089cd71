"""Phases and parts of the work, and Ctrl-C."""

import os
import signal

import pytest

from arac.errors import Interrupted
from arac.utils.progress import Progress


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 1000])
def test_the_pieces_cover_all_updates_once_and_in_order(count):
    pieces = list(Progress().chunks("critic", count))
    assert [i for start, stop in pieces for i in range(start, stop)] == list(range(count))


def test_the_time_of_a_phase_adds_up_over_its_visits():
    progress = Progress()
    for _ in range(2):
        with progress.phase("collect", 3):
            progress.advance(3)
    assert (progress.name, progress.done, progress.total) == ("collect", 3, 3)
    assert progress.seconds["collect"] > 0


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_for_a_safe_point_and_a_second_one_does_not(number):
    progress, before = Progress(), signal.getsignal(number)
    with progress.handle_signals():
        progress.check()
        os.kill(os.getpid(), number)
        with pytest.raises(Interrupted):
            progress.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
    progress.check()


def test_a_signal_that_the_process_was_told_to_ignore_stays_ignored():
    """SIGHUP is ignored, as under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with (progress := Progress()).handle_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            progress.check()
    finally:
        signal.signal(signal.SIGHUP, before)
