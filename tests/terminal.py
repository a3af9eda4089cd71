"""The signals of a program that was started in a terminal."""

import signal
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_of_a_terminal():
    """Handle SIGINT, SIGTERM and SIGHUP in this process and those that it starts within the block.

    Tests are also started with `nohup` or in the background of a script, where some of them are ignored.
    """
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
