"""Functions that all commands share: parsing arguments, and printing."""

import contextlib
import inspect
import io
import os
import re
import shlex
import shutil
import sys
import textwrap
import tomllib
from decimal import Decimal, InvalidOperation
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar, get_origin

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from arac.errors import Interrupted, UserError

ArgsT = TypeVar("ArgsT")

_REGISTRY = ConstructorRegistry()


@_REGISTRY.primitive_rule
def _whole_numbers(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """Return the rule by which tyro parses whole numbers such as 10000, 10_000 or 1e4."""
    if kind.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: whole_number(words[0]),
        is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
        str_from_instance=lambda number: [str(number)],
    )


def whole_number(word: str) -> int:
    """Return the whole number that is written as `word`, such as 10000, 10_000 or 1e4.

    Raises:
        ValueError: if it is not a whole number.
    """
    try:
        return int(word)
    except ValueError:
        pass
    try:
        number = Decimal(word)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or number != number.to_integral_value() or number.adjusted() > 18:
        raise ValueError(f"it must be a whole number, such as 10000 or 1e4, got {word!r}")
    return int(number)


def parse(kind: type[ArgsT], command: str, argv: list[str], default: Any = None, program: str = "arac") -> ArgsT:
    """Parse arguments with tyro, and turn its boxed error messages into one sentence.

    Args:
        kind: dataclass of the arguments; its docstring is the description in the help text.
        command: name of the command, for messages.
        argv: the arguments to parse.
        default: an instance with the default values.
        program: what precedes the command's name in messages.

    Raises:
        UserError: if the arguments are invalid.
        SystemExit: after printing the help text or the completion script.
    """
    complaint = io.StringIO()
    description = wrapped(inspect.getdoc(get_origin(kind) or kind) or "", hang=" ")  # without `hang`, tyro joins lines
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                kind,
                prog=f"{program} {command}",
                description=description,
                args=argv,
                default=default,
                registry=_REGISTRY,
            )
    except SystemExit as error:
        if not error.code:  # --help, or the options for arac.cli.completion
            raise
        raise UserError(
            f"{_one_sentence(complaint.getvalue())} `{program} {command} --help` lists all options."
        ) from None


def peek(argv: list[str], flag: str) -> str | None:
    """Return the value of a flag before parsing, since it decides which other flags there are; None if not given."""
    for number, word in enumerate(argv):
        if word == flag and number + 1 < len(argv):
            return argv[number + 1]
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return None


def keyword_arguments(words: tuple[str, ...]) -> dict[str, Any]:
    """Return KEY=VALUE words as a dictionary, with values read as TOML or else as plain strings.

    Raises:
        UserError: if a word has no such form.
    """
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


def wrapped(text: str, indent: str = "", hang: str = "") -> str:
    """Break the paragraphs of a text at the terminal's width; `hang` indents all lines of each but its first."""
    rest = indent + hang
    parts = (
        textwrap.fill(part, terminal_width(), initial_indent=indent, subsequent_indent=rest)
        for part in text.split("\n\n")
    )
    return "\n\n".join(parts)


def hanging(head: str, text: str) -> str:
    """Put a text behind a head of fixed width, its further lines aligned with its first."""
    return textwrap.fill(text, terminal_width(), initial_indent=head, subsequent_indent=" " * len(head))


def beside(head: str, text: str) -> str:
    """Put a text behind a head of fixed width, or on indented lines below it where the terminal is too narrow."""
    if len(head) + 2 + len(text) <= terminal_width() or not (sys.stdout.isatty() or "COLUMNS" in os.environ):
        return f"{head}  {text}"
    return f"{head}\n{wrapped(text, indent='    ')}"


def terminal_width() -> int:
    """Return the width to print for: the terminal's, that of COLUMNS, or 80."""
    return shutil.get_terminal_size().columns


def can_print(characters: str) -> bool:
    """Return whether the output's encoding has these characters."""
    try:
        characters.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def log(sentence: str) -> None:
    """Print a sentence at once."""
    print(sentence, flush=True)


def log_stopped(stop: KeyboardInterrupt, words: list[str], *, kept: bool = True) -> None:
    """Print what is saved after a series of runs was interrupted, and the command that continues it."""
    saved = isinstance(stop, Interrupted)
    what = "stopped; the checkpoints are saved" if saved else "stopped at once; the last checkpoints remain"
    sentence = f"{what}. Resume" if kept else "stopped; nothing was saved. Restart"
    print(f"\n{sentence} with: {program()} {shlex.join(words)}", file=sys.stderr)


def has_screen() -> bool:
    """Return whether a window can be opened; without a screen, a browser might start in the terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def program(name: str = "arac") -> str:
    """Return the words with which the user can call a command of this environment."""
    if name == "arac" and Path(sys.argv[0]).name == "__main__.py":  # python -m arac
        python = "python" if shutil.which("python") == sys.executable else shlex.quote(sys.executable)
        return f"{python} -m arac"
    beside = Path(sys.argv[0]).with_name(name)
    return name if shutil.which(name) or not beside.exists() else str(beside)


def _one_sentence(box: str) -> str:
    """Return the message in tyro's error box, between title and next rule, with the options suggested further down."""
    lines = [line.strip("│╭╮╰╯ ") for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()[1:]]
    parts = [list(part) for is_rule, part in groupby(lines, lambda line: bool(re.match("──|---", line))) if not is_rule]
    first, *others = parts
    said = " ".join(first).removeprefix("Error parsing config: ").strip().rstrip(".")
    if choice := re.match(r"Error parsing (\S+): no type matching (\S+) could be instantiated from \[(.*?)\]", said):
        option, either, given = choice.groups()
        kinds = re.sub("[{}]", "", either).replace("FLOAT", "a number").split("|")
        return f"{option} takes {' or '.join(kinds)}, got {given}."
    meant = [line.split()[0] for part in others for line in part if line.startswith("--")]
    return f"{said}. Did you mean {' or '.join(meant[:3])}?" if "Unrecognized" in said and meant else f"{said}."
