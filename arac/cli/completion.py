"""`arac completion`: a script for the shell, generated from the commands and their parsers."""

import ast
import contextlib
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import tyro

from arac.cli.common import parse


@dataclass(frozen=True)
class CompletionArgs:
    """Print a shell script that completes commands, algorithms, tasks and flags; docs/index.md says where to put it."""

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """The shell."""


class Option(NamedTuple):
    """A flag of a command."""

    help: str
    takes_value: bool
    choices: tuple[str, ...]  # empty where any value is allowed, such as a path


Options = dict[str, Option]
Commands = Mapping[str, Callable[[list[str]], int | None]]

BASH = """\
# Completion of the command arac; made by `arac completion`.
_arac() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}}
    local words= algo=arac number
    for ((number = 2; number < COMP_CWORD; number++)); do
        [[ ${{COMP_WORDS[number - 1]}} == --algo ]] && algo=${{COMP_WORDS[number]}}
    done
    [[ $command == sweep && ${{COMP_WORDS[2]}} == status ]] && command="sweep status"
    [[ $command == train && $current == -* ]] && command="train $algo"
    if ((COMP_CWORD == 1)); then
        words="{commands}"
    else
        case "$command:$previous" in
{values}
        *) case "$command:$current" in
{flags}
{positionals}
            esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _arac arac
"""
ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"


def completion(argv: list[str], commands: Commands) -> None:
    """Carry out `arac completion`: print the completion script of a shell."""
    shell = parse(CompletionArgs, "completion", argv).shell
    print(_fish(commands) if shell == "fish" else (ZSH if shell == "zsh" else "") + _bash(commands), end="")


def options(command: str, commands: Commands, *, algo: str = "arac") -> Options:
    """Return the flags of a command by name, from the completion script that tyro makes of its parser.

    Args:
        command: the command, such as "train" or "sweep status".
        commands: all commands by name.
        algo: the algorithm, on which the flags of train depend.
    """
    first, *rest = command.split()
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        commands[first]([*rest, "--tyro-write-completion", "bash", "-", "--algo", algo])
    found = re.search(r"^COMPLETION_SPEC = (.*)$", told.getvalue(), re.MULTILINE)
    assert found, f"tyro says nothing of the flags of {command}"
    return {
        flag: Option(
            re.sub(r"^\S+ • | \(default: .*", "", option["description"]),
            option["type"] in ("value", "path", "choice"),
            tuple(option.get("choices") or _names().get(flag, ())),
        )
        for option in ast.literal_eval(found[1])["options"]
        for flag in option["flags"]
        if flag.startswith("--")
    }


def _names() -> dict[str, tuple[str, ...]]:
    """Return the values of flags and the first arguments of commands whose parsers accept any word."""
    from arac.algorithms.registry import ALGORITHMS, preset_names
    from arac.envs.tasks import TASKS
    from arac.experiments.catalogue import EXPERIMENTS

    algorithms, tasks = tuple(ALGORITHMS), (*TASKS, *TASKS.values())
    flags = {"--algo": algorithms, "--algos": algorithms, "--envs": tasks, "--preset": preset_names()}
    first = {"reproduce": tuple(EXPERIMENTS), "list": ("algos", "envs"), "sweep": ("status",)}
    return {**flags, **first, "train": tasks, "completion": ("bash", "zsh", "fish")}


def _all_options(commands: Commands) -> dict[str, Options]:
    """Return the flags of each command; those of train for each algorithm, and all of these together."""
    from arac.algorithms.registry import ALGORITHMS

    training = {f"train {name}": options("train", commands, algo=name) for name in ALGORITHMS}
    together = {flag: option for known in training.values() for flag, option in known.items()}
    others = {name: options(name, commands) for name in commands if name != "train"}
    return {**training, "train": together, **others, "sweep status": options("sweep status", commands)}


def _bash(commands: Commands) -> str:
    known, names = _all_options(commands), _names()
    places: dict[tuple[str, ...], list[str]] = {}  # the command:flag pairs of each set of values
    for command, taken in known.items():
        for flag, option in taken.items():
            if option.takes_value and not command.startswith("train "):
                places.setdefault(option.choices, []).append(f'"{command}:{flag}"')
    values = [f'        {" | ".join(where)}) words="{" ".join(choices)}" ;;' for choices, where in places.items()]
    flags = [f'            "{command}:-"*) words="{" ".join(taken)}" ;;' for command, taken in known.items()]
    positionals = [f'            "{name}:"*) words="{" ".join(names[name])}" ;;' for name in commands if name in names]
    lines = {"values": values, "flags": flags, "positionals": positionals}
    return BASH.format(
        commands=" ".join((*commands, "--help", "--version")), **{name: "\n".join(rows) for name, rows in lines.items()}
    )


def _fish(commands: Commands) -> str:
    known, names = _all_options(commands), _names()
    lines = [f"complete -c arac -n __fish_use_subcommand -f -a '{' '.join([*commands, '--help', '--version'])}'"]
    for command in commands:
        here = f"complete -c arac -n '__fish_seen_subcommand_from {command}'"
        if command in names:
            lines.append(f"{here} -f -a '{' '.join(names[command])}'")
        for flag, option in known[command].items():
            value = (f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r") if option.takes_value else ""
            about = option.help.replace("\\", "").replace("'", "\\'")
            lines.append(f"{here} -l {flag.removeprefix('--')}{value} -d '{about}'")
    return "\n".join(lines) + "\n"
