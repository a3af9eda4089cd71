"""Exceptions, by who can resolve them, and the exit status of each."""

import sys
from collections.abc import Callable


class UserError(ValueError):
    """An invalid request. The message is one sentence that says what to do (exit status 2).

    Args:
        message: the sentence.
        fields: the settings that it is about, for callers that know where these were given.
    """

    def __init__(self, message: str, *, fields: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.fields = fields


class EnvironmentFailure(RuntimeError):
    """The environment or a worker process failed while training (exit status 3)."""


class NotFinite(EnvironmentFailure):
    """A NaN or an infinity in a state or a loss. Resuming would fail again in the same way."""


class Interrupted(KeyboardInterrupt):
    """A stop by Ctrl-C or SIGTERM, raised where a run can stop without loss (exit status 130)."""


class StorageFailure(OSError):
    """The run folder cannot be written: a full disk, a lost mount (exit status 3)."""


def exit_status(work: Callable[[], int | None]) -> int:
    """Run a command, print its error, if any, as one sentence, and return the exit status."""
    try:
        return work() or 0
    except UserError as error:
        print(f"arac: {error}", file=sys.stderr)
        return 2
    except (EnvironmentFailure, StorageFailure) as error:
        print(f"arac: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        print(f"arac: the machine failed: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130
