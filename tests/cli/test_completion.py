"""The scripts of `arac completion` in real shells."""

import contextlib
import dataclasses
import io
import os
import pty
import select
import shutil
import subprocess
import time

import pytest

from arac.algorithms.registry import ALGORITHMS
from arac.cli import COMMANDS, main
from arac.cli.completion import options

ASK_BASH = """
source ./script
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_arac
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """Write the script of each shell to its folder."""
    folders = {}
    for shell in ("bash", "zsh", "fish"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert main(["completion", shell]) == 0
        folders[shell] = tmp_path_factory.mktemp(shell)
        (folders[shell] / "script").write_text(printed.getvalue())
    return folders


def needs(shell):
    return pytest.mark.skipif(not shutil.which(shell), reason=f"{shell} is not installed")


def in_bash(folder, *words):
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK_BASH, "bash", *words], cwd=folder, capture_output=True, text=True, check=True
    )
    assert not done.stderr
    return done.stdout.split()


CASES = [
    (["arac", "re"], {"resume", "reproduce", "report"}),
    (["arac", "train", "Hop"], {"Hopper", "Hopper-v5"}),
    (["arac", "train", "Hopper", "--algo", "ce"], {"cem_td3", "cerl"}),
    (["arac", "train", "--strategy", ""], {"proactive", "reactive"}),
    (["arac", "train", "--preset", "p"], {"paper", "paper-letter", "published", "public-code"}),
    (["arac", "list", ""], {"algos", "envs"}),
    (["arac", "evaluate", "runs/x", "--ep"], {"--episodes"}),
]


@needs("bash")
@pytest.mark.parametrize(("words", "offered"), CASES)
def test_bash_completes(scripts, words, offered):
    assert set(in_bash(scripts["bash"], *words)) == offered


@needs("bash")
def test_bash_knows_the_flags_of_each_algorithm_and_the_second_word_of_sweep(scripts):
    for name, algorithm in ALGORITHMS.items():
        fields = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(algorithm.config)}
        assert fields < set(in_bash(scripts["bash"], "arac", "train", "Hopper", "--algo", name, "--"))
    assert "--policy-delay" not in in_bash(scripts["bash"], "arac", "train", "Hopper", "--")
    assert in_bash(scripts["bash"], "arac", "sweep", "status", "--w") == ["--watch"]


@needs("bash")
def test_bash_offers_every_command_and_leaves_paths_to_itself(scripts):
    assert {*COMMANDS, "--help", "--version"} == set(in_bash(scripts["bash"], "arac", ""))
    assert in_bash(scripts["bash"], "arac", "train", "Hopper", "--run-dir", "") == []
    shown = subprocess.check_output(["bash", "-c", "source ./script; complete -p arac"], cwd=scripts["bash"])
    assert shown == b"complete -o default -F _arac arac\n"


@needs("fish")
@pytest.mark.parametrize(("words", "offered"), CASES)
def test_fish_completes(scripts, words, offered):
    asked = ["fish", "--no-config", "-c", f"source ./script; complete -C '{' '.join(words)}'"]
    done = subprocess.run(asked, cwd=scripts["fish"], capture_output=True, text=True, check=True)
    assert {line.split("\t")[0] for line in done.stdout.splitlines()} == offered


@needs("zsh")
def test_zsh_completes(scripts):
    """The line is typed, because zsh completes only while a line is edited."""
    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "HOME": str(scripts["zsh"])}
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=its, stdout=its, stderr=its, cwd=scripts["zsh"], env=environment, close_fds=True
    )
    try:
        os.write(ours, b"source ./script && echo re''ady\n")
        assert read_until(ours, "ready")
        os.write(ours, b"arac train Hopper --algo td3 --pol\t")
        assert read_until(ours, "--policy-delay")
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
        os.close(its)


def read_until(terminal, wanted, seconds=30):
    told, deadline = "", time.monotonic() + seconds
    while wanted not in told and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            told += os.read(terminal, 4096).decode(errors="replace")
    return wanted in told


def test_every_command_tells_its_flags():
    for command in (*COMMANDS, "sweep status"):
        assert "--help" in options(command, COMMANDS)
    assert options("train", COMMANDS)["--strategy"].choices == ("proactive", "reactive")
    assert "attraction and repulsion" in options("train", COMMANDS)["--ar-coefficient"].help
