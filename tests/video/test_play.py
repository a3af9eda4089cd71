"""`arac play`: the shown members, the printed lines and the files."""

import re
import signal
import subprocess
import sys
import time

import imageio.v3 as iio
import numpy as np
import pytest

from arac.agents.classes import ARAC
from arac.cli import main
from arac.errors import UserError
from arac.storage.run_folder import Run
from arac.utils.processes import one_thread
from arac.video.picture import arrange

LINE = re.compile(r"(?:episode (\d+): )?member (\d+), rank (\d+) of (\d+): return (-?[\d,.]+), (\d+) steps")


SMALL = {"hidden_size": 16, "population_size": 3, "elites": 1, "workers": 0}


@pytest.fixture(scope="module")
def agent():
    return ARAC("drawing:Painted-v0", **SMALL)


@pytest.fixture(scope="module")
def saved(agent, tmp_path_factory):
    path = tmp_path_factory.mktemp("agent") / "agent.safetensors"
    agent.save(path)
    return path


@pytest.fixture
def screen(monkeypatch):
    """Set the variable of a screen; Painted draws without one."""
    monkeypatch.setenv("DISPLAY", ":none")


@pytest.fixture
def _no_screen(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


def said(capsys):
    """Return (episode, member, rank, of how many, return, steps) of each line."""
    found = [LINE.fullmatch(line) for line in capsys.readouterr().out.splitlines()]
    return [
        (int(m[1] or 0), int(m[2]), int(m[3]), int(m[4]), float(m[5].replace(",", "")), int(m[6])) for m in found if m
    ]


def test_the_whole_population_in_one_video_best_first(agent, saved, tmp_path, capsys):
    video = tmp_path / "all.mp4"
    assert main(["play", str(saved), "--member", "all", "--video", str(video), "--max-steps", "30"]) == 0
    lines = said(capsys)
    assert [rank for _, _, rank, _, _, _ in lines] == [1, 2, 3]
    assert {member for _, member, _, _, _, _ in lines} == {0, 1, 2}
    returns = [line[4] for line in lines]
    assert returns == sorted(returns, reverse=True)
    shown = iio.imread(video, plugin="FFMPEG")
    assert shown.shape[1:3] == arrange(3, (60, 80), 480).size[::-1]
    assert len(shown) == 1 + max(steps for *_, steps in lines) // 2 + 25


def test_the_champion_plays_the_episodes_that_evaluate_measures(agent, saved, tmp_path, capsys):
    words = ["--episodes", "2", "--seed", "3", "--video", str(tmp_path / "a.gif")]
    assert main(["play", str(saved), *words]) == 0
    lines = said(capsys)
    score = agent.evaluate(2, seed=3)
    assert [(episode, member, of) for episode, member, _, of, _, _ in lines] == [
        (number, agent.state.champion, 3) for number in (0, 1)
    ]
    np.testing.assert_allclose([line[4] for line in lines], score.returns, atol=0.051)
    assert [line[5] for line in lines] == score.lengths.tolist()


@pytest.mark.usefixtures("screen")
def test_a_window_shows_one_after_the_other_and_a_run_folder_will_do(agent, tmp_path, capsys):
    Run.create(tmp_path / "run", agent.description, 1000, agent.state, agent.replay).close()
    assert main(["play", str(tmp_path / "run"), "--member", "all", "--episodes", "2", "--max-steps", "4"]) == 0
    lines = said(capsys)
    assert [line[0] for line in lines] == [0, 0, 0, 1, 1, 1]
    assert [line[1] for line in lines[:3]] == [line[1] for line in lines[3:]], "in the same order"


@pytest.mark.usefixtures("screen")
@pytest.mark.parametrize(("trouble", "status"), [("crashes", 0), ("crashes at once", 3)])
def test_a_window_that_is_closed_and_one_that_never_showed_anything(trouble, status, tmp_path, capsys):
    ARAC("drawing:Painted-v0", env_kwargs={"trouble": trouble}, **SMALL).save(tmp_path / "a.safetensors")
    assert main(["play", str(tmp_path / "a.safetensors")]) == status
    heard = capsys.readouterr()
    assert ("the window was closed\n" in heard.out) == (status == 0)
    assert ("lost the process that shows it: it was killed by SIGSEGV" in heard.err) == (status == 3)


def test_an_episode_may_take_as_long_as_the_run_allows(tmp_path, capsys, monkeypatch):
    def pool(env, workers, time_limit=None):
        raise UserError(f"{time_limit} s.")

    monkeypatch.setattr("arac.rollout.local_pool.LocalPool", pool)
    ARAC("drawing:Painted-v0", episode_timeout=7.0, **SMALL).save(tmp_path / "a.safetensors")
    assert main(["play", str(tmp_path / "a.safetensors"), "--video", str(tmp_path / "a.mp4")]) == 2
    assert capsys.readouterr().err == "arac: 7.0 s.\n"


@pytest.mark.usefixtures("_no_screen")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "There is no screen to open a window on; `--video FILE.mp4` films it instead."),
        (["--video", "a.avi"], "A video ends in .mp4 or .gif, got 'a.avi'."),
        (["--video", "no/a.mp4"], "There is no folder no; create it first."),
        (["--video", "a.mp4", "--member", "3"], "member must be champion, all or a number below 3, got '3'."),
        (["--video", "a.mp4", "--member", "best"], "member must be champion, all or a number below 3, got 'best'."),
        (["--video", "a.mp4", "--episodes", "0"], "episodes must be at least 1, got 0."),
        (["--video", "a.mp4", "--max-steps", "0"], "max_steps must be at least 1, got 0."),
        (["--video", "a.mp4", "--seed", "-1"], "seed must be a whole number from 0 to 4294967295, got -1."),
    ],
)
def test_mistakes_are_told_in_a_sentence(words, sentence, saved, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["play", str(saved), *words]) == 2
    assert capsys.readouterr().err == f"arac: {sentence}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_no_screen")
def test_a_run_that_is_not_there_is_told_first(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["play", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.usefixtures("signals")
def test_ctrl_c_while_it_films_leaves_nothing(tmp_path):
    agent = ARAC("drawing:Painted-v0", max_episode_steps=10_000, env_kwargs={"length": 1_000_000}, **SMALL)
    agent.save(tmp_path / "a.safetensors")
    words = [sys.executable, "-m", "arac", "play", "a.safetensors", "--video", "a.mp4"]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    variables = {**one_thread(), "TMPDIR": str(temporary)}  # with this process's path to modules
    process = subprocess.Popen(words, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(temporary.glob("arac-*/a.mp4")):  # the draft, once it films
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert "Traceback" not in process.stderr.read()
    assert {path.name for path in tmp_path.iterdir()} == {"a.safetensors", "tmp"}
    assert not list(temporary.iterdir())
