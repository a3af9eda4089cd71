"""The command: `arac COMMAND [...]`. Its functions raise the errors of `arac.errors`; `exit_status` prints them."""

import os
import sys
from collections.abc import Callable, Sequence

# Hides JAX's messages about missing devices, which do not concern users of the command.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from arac.cli.common import hanging, wrapped
from arac.cli.completion import completion
from arac.cli.experiments import report, reproduce
from arac.cli.export import export
from arac.cli.inspect import examine, list_things
from arac.cli.play import play
from arac.cli.sweep import sweep
from arac.cli.train import evaluate, resume, train
from arac.cli.watch import watch
from arac.errors import UserError, exit_status
from arac.utils.processes import outlive_readers

HELP = {
    "train ENV": "train ARAC, or --algo another, on a Gymnasium environment",
    "resume RUN": "resume a stopped or killed run exactly",
    "evaluate RUN": "play fresh episodes with the champion of a run",
    "export RUN FILE": "write the champion as plain arrays, to act without JAX and arac",
    "play RUN": "show the agents of a run in a window, or film them",
    "watch RUN": "follow a run on a page in your browser",
    "doctor RUN": "verify every file of a run folder",
    "sweep SPEC.toml": "execute many runs, here or on a Ray cluster; `sweep status DIR` shows their progress",
    "reproduce NAME": "run an experiment; write its table and figure",
    "report RUNS": "write a page with the curves and tables of runs, beside the paper's",
    "list algos|envs": "list the algorithms or the tasks",
    "completion SHELL": "print a script that completes commands in bash, zsh or fish",
}

COMMANDS: dict[str, Callable[[list[str]], int | None]] = {
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "export": export,
    "play": play,
    "watch": watch,
    "doctor": examine,
    "sweep": sweep,
    "reproduce": reproduce,
    "report": report,
    "list": list_things,
    "completion": lambda argv: completion(argv, COMMANDS),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    outlive_readers()
    return exit_status(lambda: _dispatch(words))


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0 if words else 2
    if words[0] == "--version":
        from arac import __version__

        print(f"arac {__version__}")
        return 0
    if words[0] not in COMMANDS:
        from arac.utils.text import suggestion

        raise UserError(f"There is no command {words[0]!r}.{suggestion(words[0], COMMANDS)} `arac --help` lists them.")
    return COMMANDS[words[0]](words[1:]) or 0


def _usage() -> str:
    lines = [hanging(f"  {head:17}", text) for head, text in HELP.items()]
    last = "`arac COMMAND --help` explains each; `arac --version` prints the version."
    return "\n".join(["usage: arac COMMAND [...]\n", *lines, "", wrapped(last)])
