"""Small versions of every command and every piece of Python in README and docs are run.

The Python blocks of a page run in order, in one namespace and a temporary folder, with smaller sizes: TASK takes the
place of LARGER tasks, `learn` takes at most STEPS environment steps, episodes EPISODE_STEPS, `resume` uses the run's
first total, `evaluate` plays at most two episodes, and the settings in TINY are upper limits.

`arac` commands run with small numbers after their flags: SMALLER, TRAINED and REPRODUCED. `train` is on TASK, whichever
task the page names; experiments have the sizes of `small_experiments`; `watch` runs until its page has answered;
`sweep` has SWEEP in place of the page's file, which is read with --dry-run. Commands that need a screen, several
machines or half an hour are only parsed: PARSED. The `arac` commands of a target of make are treated alike. Folders
below runs/ that a page names but does not make are copies of one small run: README's first `arac train`, on TASK. TASK
and sizes are those of test_cli.py, and for custom policies those of test_custom_policy.py, to share compiled code.
"""

import importlib
import re
import shutil
import subprocess
import sys
import tomllib
import webbrowser
from contextlib import suppress
from ctypes.util import find_library
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

import documents
import pytest
import tyro
from helpers import SMALL_FLAGS

from arac import envs
from arac.agents import agent
from arac.algorithms.registry import ALGORITHMS
from arac.cli import COMMANDS, main
from arac.cli.completion import options
from arac.errors import exit_status
from arac.experiments import didactic, repulsion
from arac.experiments.catalogue import EXPERIMENTS
from arac.sweeps.child import carry_out
from arac.sweeps.process import Ended
from arac.watch.server import Server

TASK = "InvertedPendulum-v5"
LARGER = re.compile(r"\b((Hopper|HalfCheetah|Walker2d|Ant|Humanoid)-v5|Pendulum-v1)\b")
STEPS, EPISODE_STEPS = 100, 50
TINY = {
    "hidden_size": 16,
    "batch_size": 16,
    "warmup_steps": 50,
    "eval_episodes": 2,
    "replay_capacity": 10_000,
    "workers": 0,
}
FEW = {"population_size": 2, "elites": 1}  # with a custom policy
SMALLER = {"--steps": "400", "--episodes": "2", "--port": "0"}
TRAINED = {"--steps": "200", **dict(zip(SMALL_FLAGS[::2], SMALL_FLAGS[1::2], strict=True))}
IF_GIVEN = {"--video-interval": "100", "--population-size": "5", "--elites": "2"}
REPRODUCED = {"--steps": "200", "--seeds": "1"}
RUN = {"resume", "evaluate", "doctor", "report", "list", "completion", "export", "--version", "--help"}
PARSED = {
    "play": "in a window, or where nothing can draw; tests/video/test_play.py",
    "sweep": "on a cluster of several machines; tests/reliability has one of two nodes",
}
MY_MODULE = """
import gymnasium
from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv

def make(size):
    assert size == 3
    return InvertedPendulumEnv()

gymnasium.register("MyEnv-v0", entry_point=make)
"""
SWEEP = f'algorithms = ["sac"]\ntasks = ["{TASK}"]\nseeds = 1\nsteps = {STEPS}\n[settings]\n'
SWEEP += "".join(f"{name} = {value}\n" for name, value in TINY.items())
NOT_RUN = {
    "source": "changes the reader's shell",
    "pip": "tests/packaging/test_wheel.py installs the package",
    "printf": "damages a run, for show",
    "ray": "starts a cluster; tests/reliability has real ones",
    "tensorboard": "runs until it is stopped; tests/cli/test_cli.py reads the events",
}
CAN_DRAW = find_library("OSMesa") is not None
FILMS = re.compile(r"\b(film|PeriodicVideo)\(")
OPTIONAL = {"stable_baselines3"}  # a block that imports one of these is left out where it is not installed


def pages(what):
    return pytest.mark.parametrize("page", [page for page in documents.PAGES if what(page)], ids=lambda page: page.stem)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train README's first run in small."""
    words = next(words for words in documents.commands(documents.ROOT / "README.md") if words[:2] == ["arac", "train"])
    folder = tmp_path_factory.mktemp("docs") / "run"
    assert status(["train", TASK, *shrunk(words[3:], TRAINED | {"--steps": "300", "--run-dir": str(folder)})]) == 0
    return folder


@pytest.fixture
def small(monkeypatch):
    """Shrink the settings of Python code as this file's docstring describes."""
    cls = agent.Agent
    init, learn, resume, evaluate = cls.__init__, cls.learn, cls.resume.__func__, cls.evaluate

    def small_init(self, env, **given):
        wanted = TINY | (FEW if "policy" in given else {})
        known = {name: value for name, value in wanted.items() if hasattr(self.algorithm.config, name)}
        limits = {"max_episode_steps": EPISODE_STEPS, **known}
        init(self, env, **given | {name: min(given.get(name, value), value) for name, value in limits.items()})

    monkeypatch.setattr(cls, "__init__", small_init)
    monkeypatch.setattr(cls, "learn", lambda self, total_steps, **rest: learn(self, min(total_steps, STEPS), **rest))
    monkeypatch.setattr(cls, "resume", classmethod(lambda cls, run, total_steps=None, **rest: resume(cls, run, **rest)))
    monkeypatch.setattr(cls, "evaluate", lambda self, episodes=2, **rest: evaluate(self, min(episodes, 2), **rest))


@pages(lambda page: documents.blocks(page, "python"))
@pytest.mark.usefixtures("small")
def test_python(page, run, tmp_path, monkeypatch):
    code = documents.blocks(page, "python")
    if FILMS.search("".join(code)):
        if not CAN_DRAW:
            pytest.skip("drawing without a screen needs Debian's libosmesa6")
        monkeypatch.setenv("MUJOCO_GL", "osmesa")
    spoken_of, made = (re.findall(pattern, "".join(code)) for pattern in (r'"(runs[/\w-]*)"', r'run_dir="([^"]+)"'))
    provide(run, tmp_path, set(spoken_of) - set(made))
    monkeypatch.chdir(tmp_path)
    for program in (words for words in documents.commands(page) if words[0] == "python"):
        monkeypatch.setattr(sys, "argv", program[1:])  # a page may show a program and its command line
    namespace = {"__name__": "__main__"}
    for number, text in enumerate(code, 1):
        try:
            exec(compile(LARGER.sub(TASK, text), f"{page.name}, Python block {number}", "exec"), namespace)
        except ModuleNotFoundError as missing:
            if str(missing.name).partition(".")[0] not in OPTIONAL:
                raise


def test_the_example_without_jax_is_shown_as_it_is():
    example = documents.ROOT / "examples" / "act_without_jax.py"
    assert example.read_text() in documents.blocks(documents.ROOT / "docs" / "api.md", "python")


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """Return a folder for the runs of all experiments on all pages, so that none is repeated."""
    return tmp_path_factory.mktemp("reproduced")


class RunHere:
    """A run of a sweep, executed in this process to save imports and compilation."""

    def __init__(self, job, parent, resources, turn):
        self._status = exit_status(lambda: carry_out(job, parent / job.name, resources.cpus))

    def poll(self):
        return Ended(self._status, "")


@pytest.fixture
def small_experiments(monkeypatch):
    """Shrink every experiment to seconds, also at the paper's scale; `deceptive` is as in test_experiments.py."""
    on_task = {"envs": (TASK,), "settings": TINY | {"eval_interval": 100, "workers": 0}}
    for name, experiment in EXPERIMENTS.items():
        steps = 1400 if name == "deceptive" else int(REPRODUCED["--steps"])
        small, full = (
            replace(size, seeds=1, steps=steps, **({} if name == "deceptive" or not size.envs else on_task))
            for size in (experiment.small, experiment.full)
        )
        monkeypatch.setitem(EXPERIMENTS, name, replace(experiment, small=small, full=full))
    monkeypatch.setattr("arac.sweeps.backends.RunProcess", RunHere)
    monkeypatch.setattr(repulsion, "ACTIONS", 20)
    monkeypatch.setattr(didactic, "CONTENDERS", dict(list(didactic.CONTENDERS.items())[:3]))


@pytest.fixture
def equipped(tmp_path, monkeypatch):
    """Return a folder with the files that the pages assume: a sweep's file, a module with an environment."""
    [spec] = documents.blocks(documents.ROOT / "docs" / "scaling.md", "toml")
    (tmp_path / "lambda.toml").write_text(spec)
    (tmp_path / "mymodule.py").write_text(MY_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with suppress(ImportError):
        importlib.import_module("wandb").teardown()  # forget the variables of earlier tests
    if CAN_DRAW:
        monkeypatch.setenv("MUJOCO_GL", "osmesa")
    shutil.copytree(documents.ROOT / "results" / "agents", tmp_path / "results" / "agents")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pages(documents.commands)
def test_commands_are_understood(page, monkeypatch):
    """The real parsers accept the commands; `test_commands` runs them."""
    for program, *words in documents.commands(page):
        if program == "arac":
            assert words[0] in ("--version", "--help") or parsed(words, monkeypatch), words
        elif program == "make":
            assert all(parsed(ours, monkeypatch) for ours in made_by(words)), words
        elif program not in NOT_RUN:
            {"pip": try_pip, "python": try_python}[program](words)


@pytest.mark.slow
@pages(documents.commands)
@pytest.mark.usefixtures("small_experiments")
def test_commands(page, run, reproduced, equipped, monkeypatch):
    def try_arac(name, *words):
        assert name in (*COMMANDS, "--version", "--help")
        if name == "train":
            try_train(words)
        elif name == "reproduce":
            try_reproduce(words, reproduced)
        else:
            provide(run, equipped, [word for word in words if word.startswith("runs")])
            try_other([name, *words], run, monkeypatch)

    for program, *words in documents.commands(page):
        if program == "arac":
            try_arac(*words)
        elif program == "make":
            for ours in made_by(words):
                try_arac(*ours)


@pages(documents.scripts)
def test_scripts(page, monkeypatch):
    for text in documents.scripts(page):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
        for words in documents.split(text):
            if words[0] == "arac":
                assert parsed(words[1:], monkeypatch)


@pages(documents.mentioned)
def test_commands_in_the_text(page):
    """The command, its flags and the target exist; their values may be placeholders."""
    for program, name, *rest in documents.mentioned(page):
        if program == "make":
            made_by([name])
        elif name not in ("COMMAND", "--version", "--help"):
            assert {word for word in rest if re.fullmatch("--[a-z-]+", word)} <= flags_of(name), (name, rest)


@pages(lambda page: page.parent == documents.ROOT)
def test_links(page):
    """Links of README and CONTRIBUTING work; building the site tests those of docs/."""
    for path in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / path).exists(), path


def provide(run, folder, paths):
    """Copy the small run to the paths that a page expects; a folder of runs gets one run."""
    for path in {word.rstrip("/") for word in paths}:
        wanted = folder / path / "small" if path == "runs" else folder / path
        if not wanted.exists() and not any((folder / path).glob("*")):
            shutil.copytree(run, wanted)


def shrunk(words, smaller, always=True):
    """Return the words with small numbers after their flags, and with the missing flags."""
    kept = [smaller.get(before, word) for before, word in pairwise(["", *words])]
    return kept + [word for flag in smaller if always and flag not in words for word in (flag, smaller[flag])]


def try_train(words):
    task, *flags = words
    if ":" not in task:
        envs.check(task)
        task = TASK
    if "--video-interval" in flags and not CAN_DRAW:
        pytest.skip("drawing without a screen needs Debian's libosmesa6")
    shutil.rmtree("runs", ignore_errors=True)  # where a run may have the same name
    small = shrunk(shrunk(flags, IF_GIVEN, always=False), TRAINED)
    assert status(["train", task, *small]) == 0, words


def try_reproduce(words, folder):
    name, *flags = (LARGER.sub(TASK, word) for word in words)
    small = shrunk(flags, REPRODUCED, always=False)
    agreed = ["--yes"] if "--full" in flags else []
    places = {"--runs": str(folder / "runs"), "--out": str(folder / "shown")}
    assert status(["reproduce", name, *shrunk(small, places), *agreed]) == 0, words


def try_other(words, run, monkeypatch):
    name = words[0]
    small = shrunk(words, SMALLER, always=False)
    if name in RUN:
        assert status(small) == 0, words
    elif name == "watch":
        visit(small, monkeypatch)
    elif name == "play" and "--video" in words and CAN_DRAW:
        flags = re.sub(r"\S+(?=\.(mp4|gif))", "video", re.sub(r"--max-steps \d+", "", " ".join(small[2:])))
        assert film(name, str(run), *flags.split(), "--max-steps", "5") == 0, words
    elif name == "sweep" and "--address" not in words:
        try_sweep(words)
    else:
        assert name in PARSED, f"say in tests/docs/test_docs.py how `arac {name}` is tried"
        assert parsed(words, monkeypatch), words


@cache
def film(*words):
    """Return the exit status of `arac play`; commands that differ only in names and lengths run once."""
    return status(words)


def try_sweep(words):
    """Read the page's file, and run a small one under the same name."""
    if words[1] != "status":
        assert status([*words, "--dry-run"]) == 0, words
        tiny = Path("tiny", words[1])
        tiny.parent.mkdir(exist_ok=True)
        tiny.write_text(SWEEP)
        words = [words[0], str(tiny), *words[2:]]
    assert status(words) == 0, words


def visit(words, monkeypatch):
    """Start the page's server, read the page once and stop the server."""
    real, answers = Server.serve_forever, []

    def serve(server):
        thread = Thread(target=real, args=(server,))
        thread.start()
        with urlopen(server.address) as page:
            answers.append(page.status)
        server.shutdown()
        thread.join()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Server, "serve_forever", serve)
        patched.setattr(webbrowser, "open", lambda _: None)
        assert (status(words), answers) == (130, [200]), words


def status(words):
    try:
        return main(words)
    except SystemExit as end:  # --help
        return end.code or 0


def parsed(words, monkeypatch):
    """Return True if the command's parser accepts the words; the command itself is not run."""

    class Parsed(BaseException):
        pass

    real = tyro.cli

    def only_parse(*args, **settings):
        real(*args, **settings)
        raise Parsed

    with monkeypatch.context() as patched:
        patched.setattr(tyro, "cli", only_parse)
        try:
            return status(words) == 0
        except Parsed:
            return True


def made_by(words):
    """Return the `arac` commands of a target of make."""
    shown = subprocess.run(["make", "-n", *words], cwd=documents.ROOT, check=True, capture_output=True, text=True)
    lines = "\n".join(line for line in shown.stdout.splitlines() if line.startswith(".venv/bin/arac "))
    return [words for _, *words in documents.split(lines)]


def try_pip(words):
    """Check that the extras of `pip install 'arac-rl[extra]'` exist; other packages are not checked."""
    known = tomllib.loads((documents.ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = [extra for word in words for found in re.findall(r"\[(.*)\]", word) for extra in found.split(",")]
    assert words[0] == "install"
    assert set(asked) <= set(known)


def try_python(words):
    """Check that the files and modules of a `python` command exist."""
    for before, word in pairwise(["", *words]):
        if "/" in word:
            assert (documents.ROOT / word).exists(), word
        elif before == "-m":
            subprocess.run([sys.executable, "-c", f"import {word}"], check=True)


@cache
def flags_of(command):
    """Return all flags of a command, with any algorithm."""
    names = ALGORITHMS if command == "train" else ["arac"]
    return {flag for name in names for flag in options(command, COMMANDS, algo=name)} | (
        set(options("sweep status", COMMANDS)) if command == "sweep" else set()
    )
