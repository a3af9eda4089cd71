"""What can go wrong, sorted by who can mend it."""


class UserError(ValueError):
    """A mistake in what was asked for. The message is one sentence that says what to do (exit status 2)."""


class EnvironmentFailure(RuntimeError):
    """The environment or a worker process failed while training (exit status 3)."""


class NotFinite(EnvironmentFailure):
    """The numbers themselves failed. Resuming would fail again in the same way."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, noticed at a safe point (exit status 130)."""


class StorageFailure(OSError):
    """The run folder cannot be written: a full disk, a lost mount (exit status 3)."""
