"""What all commands need: reading their arguments, and saying things."""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tomllib
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import tyro

from arac.errors import Interrupted, UserError

ArgsT = TypeVar("ArgsT")


def parse(kind: type[ArgsT], command: str, argv: list[str], default: Any = None) -> ArgsT:
    """tyro's parsing, with its boxed complaints turned into one sentence."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(kind, prog=f"arac {command}", args=argv, default=default)
    except SystemExit as error:
        if not error.code:  # --help, or what arac.cli.completion asks for
            raise
        raise UserError(f"{_one_sentence(complaint.getvalue())} `arac {command} --help` lists all options.") from None


def peek(argv: list[str], flag: str) -> str | None:
    """The value of a flag that decides which other flags there are."""
    for number, word in enumerate(argv):
        if word == flag and number + 1 < len(argv):
            return argv[number + 1]
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return None


def keyword_arguments(words: tuple[str, ...]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"--env-kwargs takes KEY=VALUE, got {word!r}.")
        try:
            arguments |= tomllib.loads(f"{key} = {value}")
        except tomllib.TOMLDecodeError:
            arguments[key] = value
    return arguments


def say(sentence: str) -> None:
    print(sentence, flush=True)


def say_stopped(stop: KeyboardInterrupt, words: list[str], *, kept: bool = True) -> None:
    """After a series of runs was stopped: what is kept of them, and the command that goes on."""
    saved = isinstance(stop, Interrupted)
    what = "stopped; what was trained is saved" if saved else "stopped at once; the last checkpoints stand"
    sentence = f"{what}. Go on" if kept else "stopped; nothing is kept of it. Once more"
    print(f"\n{sentence} with: {shlex.join([program(), *words])}", file=sys.stderr)


def has_screen() -> bool:
    """Whether a window can be opened; where there is none, a browser might start in the terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def program(name: str = "arac") -> str:
    """How a command of this environment is called from here."""
    beside = Path(sys.argv[0]).with_name(name)
    return name if shutil.which(name) or not beside.exists() else str(beside)


def _one_sentence(box: str) -> str:
    """What a box of tyro's says below its title and above its next rule, and the options it suggests further down."""
    lines = [line.strip("│╭╮╰╯ ") for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()[1:]]
    parts = [list(part) for is_rule, part in groupby(lines, lambda line: bool(re.match("──|---", line))) if not is_rule]
    first, *others = parts
    said = " ".join(first).removeprefix("Error parsing config: ").strip().rstrip(".")
    meant = [line.split()[0] for part in others for line in part if line.startswith("--")]
    return f"{said}. Did you mean {' or '.join(meant[:3])}?" if "Unrecognized" in said and meant else f"{said}."
