"""What can go wrong, sorted by who can mend it, and the exit status that tells it."""

import sys
from collections.abc import Callable


class UserError(ValueError):
    """A mistake in what was asked for. The message is one sentence that says what to do (exit status 2).

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
    """The numbers themselves failed. Resuming would fail again in the same way."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, noticed at a safe point (exit status 130)."""


class StorageFailure(OSError):
    """The run folder cannot be written: a full disk, a lost mount (exit status 3)."""


def exit_status(work: Callable[[], int | None]) -> int:
    """Carry out a command, print what went wrong in a sentence, and return the exit status."""
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
