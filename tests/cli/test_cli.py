"""The command as users run it: real processes, their output, exit status and files."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path

import gymnasium
import pytest
from helpers import HERE, SMALL_FLAGS

from arac.agents.classes import ARAC
from arac.cli import main
from arac.cli.common import whole_number
from arac.envs.tasks import TASKS
from arac.storage import metrics

# A run that is stopped after some generations, with the algorithm that starts fastest.
STOPPED = ["--algo", "sac", "--steps", "900", *SMALL_FLAGS, "--run-dir", "run"]


def arac(*words, cwd, timeout=300):
    command = [sys.executable, "-m", "arac", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Train a small run by the command, and return its folder and output."""
    folder = tmp_path_factory.mktemp("cli")
    return folder, arac("train", "InvertedPendulum-v5", "--steps", 300, *SMALL_FLAGS, cwd=folder)


def test_training_says_what_it_does_and_shows_what_came_out(finished):
    folder, done = finished
    run = folder / "runs" / "InvertedPendulum-v5-arac-seed0"
    assert done.returncode == 0, done.stderr
    assert "settings: plain defaults" in done.stdout
    assert re.search(
        r"3\d\d / 300 steps · .* steps/s · 0:00 left · fitness .*\*.* · archive \d+ · mean KL", done.stdout
    )
    assert "champion: member" in done.stdout
    assert f"arac evaluate {run.relative_to(folder)}" in done.stdout
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert {"config.toml", "evaluations.jsonl", "episodes.csv", "tensorboard", "checkpoints", "replay"} <= {
        path.name for path in run.iterdir()
    }


def test_the_run_folder_describes_itself(finished):
    run = finished[0] / "runs" / "InvertedPendulum-v5-arac-seed0"
    table = tomllib.loads((run / "config.toml").read_text())
    assert table["environment"]["id"] == "InvertedPendulum-v5"
    assert (table["config"]["hidden_size"], table["config"]["flows"]) == (16, 3), "what was asked for, and a default"
    assert table["versions"].keys() >= {"arac-rl", "jax", "mujoco"}
    rows = metrics.read_evaluations(run)
    assert [len(row["fitness"]) for row in rows] == [5] * len(rows)
    episodes = (run / "episodes.csv").read_text().splitlines()
    assert episodes[0] == "env_steps,generation,member,episode,return,length"
    assert len(episodes) == 1 + len(rows) * 5 * 2


def test_the_events_show_in_the_real_tensorboard(finished):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = finished[0] / "runs" / "InvertedPendulum-v5-arac-seed0"
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    rows = metrics.read_evaluations(run)
    shown = [(event.step, event.value) for event in events.Scalars("eval/champion_return")]
    assert shown == [(row["env_steps"], pytest.approx(row["champion_return"])) for row in rows]


def test_a_second_run_gets_a_folder_of_its_own_and_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "InvertedPendulum-v5", "--algo", "sac", "--steps", "200", *HERE]) == 0
    assert main(["train", "--algo", "sac", "--steps", "200", *HERE, "InvertedPendulum-v5"]) == 0
    first, second = (tmp_path / "runs" / f"InvertedPendulum-v5-sac-seed0{suffix}" for suffix in ("", "-2"))
    assert (first / "evaluations.jsonl").read_bytes() == (second / "evaluations.jsonl").read_bytes()


def test_evaluate_plays_fresh_episodes(finished, capsys):
    folder, _ = finished
    assert main(["evaluate", str(folder / "runs" / "InvertedPendulum-v5-arac-seed0"), "--episodes", "3"]) == 0
    assert re.search(r"champion over 3 fresh episodes: [\d.,]+ ± [\d.,]+", capsys.readouterr().out)


def test_resume_goes_further_and_says_so_when_there_is_nothing_to_do(whole, tmp_path, capsys):
    run = shutil.copytree(whole, tmp_path / "run")
    assert main(["resume", str(run)]) == 0
    assert "already at" in capsys.readouterr().out
    assert main(["resume", str(run), "--steps", "1000"]) == 0
    assert metrics.read_evaluations(run)[-1]["env_steps"] >= 1000


def test_report_draws_a_page_of_the_run(finished, capsys):
    folder, _ = finished
    assert main(["report", str(folder / "runs"), "--out", str(folder / "page")]) == 0
    assert "| InvertedPendulum-v5 | ARAC | 1 |" in capsys.readouterr().out
    names = {"index.html", "table.csv", "table.md", "curves_paper.png", "curves_robust.pdf"}
    assert names <= {path.name for path in (folder / "page").iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Train the run that the interrupted runs must equal in the end."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main(["train", "InvertedPendulum-v5", *STOPPED[:-1], str(folder), "--workers", "0"]) == 0
    return folder


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    ("number", "generations"),
    [
        (signal.SIGINT, 0),
        (signal.SIGTERM, 8),
        *(pytest.param(number, 8, marks=pytest.mark.slow) for number in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_a_run_that_was_stopped_goes_on_where_it_was(number, generations, whole, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "arac", "train", "InvertedPendulum-v5", *STOPPED],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for_generations(tmp_path / "run", generations)
    process.send_signal(number)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130, complaint
    assert "arac resume run" in complaint
    assert "Traceback" not in complaint
    assert main(["resume", str(tmp_path / "run")]) == 0
    for name in ("evaluations.jsonl", "episodes.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes()


def test_what_is_stopped_before_it_began_is_not_said_to_go_on(tmp_path, monkeypatch, capsys):
    def stopped(*_args, **_settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(ARAC, "learn", stopped)
    assert main(["train", "Pendulum-v1", "--steps", "20000", "--run-dir", str(tmp_path / "run")]) == 130
    said = capsys.readouterr().err
    assert "stopped before it began" in said
    assert "resume" not in said


def wait_for_generations(run, generations):
    """Wait until that many generations are recorded or, if it is 0, until the run has begun."""
    timings, deadline = run / "timings.jsonl", time.monotonic() + 120
    while time.monotonic() < deadline:
        if generations == 0 and (run / "config.toml").exists():
            return
        if generations > 0 and timings.exists() and len(timings.read_text().splitlines()) >= generations:
            return
        time.sleep(0.02)
    raise TimeoutError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "Hoper-v5"], "Hopper-v5"),
        (["train", "Hopper-v5", "--algo", "arca"], "Did you mean arac"),
        (["train", "CartPole-v1"], "Discrete"),
        (["train", "Hopper-v5", "--elites", "7"], "population_size"),
        (["train", "Hopper-v5", "--preset", "published"], "preset must be one of paper, paper-letter, none for ARAC"),
        (["train", "Hopper-v5", "--population-size", "-3"], "must be from 1 to 10000, got -3"),
        (["train", "Hopper-v5", "--batch-size", "0"], "batch_size must be at least 1, got 0"),
        (["train", "Hopper-v5", "--steps", "-1"], "steps must be at least 1"),
        (["train", "Hopper-v5", "--steps", "500"], "warmup_steps"),
        (["train", "Hopper-v5", "--seed", "-1"], "seed"),
        (["train", "Hopper-v5", "--replay-capacity", "500"], "replay_capacity"),
        (["train", "Hopper-v5", "--populaton-size", "3"], "--population-size"),
        (["train", "Hopper-v5", "--population-size", "many"], "--population-size"),
        (["train", "Hopper-v5", "--sigma", "lerned"], "--sigma takes a number or learned, got 'lerned'."),
        (["train"], "Gymnasium id"),
        (["trian", "Hopper-v5"], "Did you mean train"),
        (["resume", "nowhere"], "holds no run"),
        (["resume", sys.executable], "holds no run"),
        (["evaluate", "nowhere"], "nowhere"),
        (["list", "things"], "algos"),
    ],
)
def test_a_mistake_is_one_sentence_with_status_2_and_nothing_is_written(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    out, complaint = capsys.readouterr()
    assert said in complaint
    assert complaint.startswith("arac: ")
    assert complaint.count("\n") == 1
    assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [(["Hopper-v5", "--populaton-size", "3"], "Did you mean --population-size?"), (["CartPole-v1"], "Discrete")],
)
def test_a_mistake_is_one_sentence_in_a_real_process_whose_output_knows_no_boxes(words, said, tmp_path):
    command = [sys.executable, "-m", "arac", "train", *words]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert "---" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_actions_without_bounds_are_refused_before_anything_is_written(tmp_path, monkeypatch, capsys):
    gymnasium.register("Boundless-v0", "helpers:Odd", max_episode_steps=10, kwargs={"actions": "unbounded"})
    monkeypatch.chdir(tmp_path)
    assert main(["train", "Boundless-v0"]) == 2
    assert "without bounds" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_the_users_mistake(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(["train", "InvertedPendulum-v5", "--steps", "300", *SMALL_FLAGS, "--run-dir", "file/run"]) == 2
    assert "choose another --run-dir" in capsys.readouterr().err


def test_help_names_every_setting_with_the_presets_values(capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "Hopper-v5", "--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0
    for flag in ("--population-size", "--kl-clip", "--sigma", "--checkpoint-interval", "--seed", "--run-dir"):
        assert flag in text
    assert re.search(r"--sigma .*?default:\s+0\.8", text, re.DOTALL)


def test_list_shows_algorithms_and_tasks(capsys):
    assert main(["list", "algos"]) == 0
    assert main(["list", "envs"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("arac", "sac", "sac_nf", "Hopper", "SparseHumanoid"))


def test_list_shows_the_dimensions_of_the_papers_tasks(capsys):
    assert main(["list", "envs"]) == 0
    rows = {line.split()[0]: line.split()[1:5] for line in capsys.readouterr().out.splitlines()}
    assert rows["HumanoidRllab"] == ["arac/HumanoidRllab-v0", "142", "21", "2,000,000"]
    assert rows["SparseHumanoid"] == ["arac/SparseHumanoid-v0", "348", "17", "600,000"]
    assert rows["Hopper"] == ["Hopper-v5", "11", "3", "1,000,000"]


def test_short_names_and_arguments_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        "Hopper",
        "--algo",
        "sac",
        *SMALL_FLAGS[:8],
        "--eval-episodes",
        "1",
        "--workers",
        "0",
        "--steps",
        "60",
    ]
    kwargs = ["--env-kwargs", "reset_noise_scale=0.0", "xml_file=hopper.xml", "terminate_when_unhealthy=true"]
    assert main([*words, *kwargs]) == 0
    table = tomllib.loads((tmp_path / "runs" / "Hopper-v5-sac-seed0" / "config.toml").read_text())
    assert table["environment"]["id"] == "Hopper-v5"
    assert table["environment"]["kwargs"] == {
        "reset_noise_scale": 0.0,
        "xml_file": "hopper.xml",
        "terminate_when_unhealthy": True,
    }


@pytest.mark.parametrize("words", [["noise"], ["=3"], ["a b=3"]])
def test_arguments_that_are_none_are_refused(words, capsys):
    assert main(["train", "Hopper", "--env-kwargs", *words]) == 2
    assert "KEY=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize(("word", "steps"), [("300", 300), ("3e2", 300), ("0.3e3", 300), ("300.0", 300), ("3_00", 300)])
def test_whole_numbers_may_be_written_as_people_do(word, steps):
    assert whole_number(word) == steps


@pytest.mark.parametrize("word", ["1.5", "1e-2", "nan", "inf", "1e30", "many", ""])
def test_what_is_no_whole_number_is_refused(word, capsys):
    assert main(["train", "Hopper-v5", "--steps", word]) == 2
    said = capsys.readouterr().err
    assert f"must be a whole number, such as 10000 or 1e4, got {word!r}" in said
    assert said.count("\n") == 1


def test_steps_in_powers_of_ten(tmp_path, capsys):
    run = tmp_path / "run"
    words = ["train", "InvertedPendulum-v5", "--algo", "sac", *HERE, "--steps", "1e2", "--run-dir", str(run)]
    assert main(words) == 0
    assert tomllib.loads((run / "config.toml").read_text())["steps"] == 100
    assert main(["resume", str(run), "--steps", "2e2"]) == 0
    assert tomllib.loads((run / "config.toml").read_text())["steps"] == 200
    capsys.readouterr()


def test_a_run_of_one_agent_suggests_what_one_agent_can_do(whole, tmp_path, capsys):
    run = shutil.copytree(whole, tmp_path / "run")
    assert main(["resume", str(run)]) == 0
    said = capsys.readouterr().out
    assert f"play {run} --video champion.mp4" in said
    assert "--member" not in said
    assert "┤" in said
    assert said.partition("next:\n")[2].count("\n") == 3


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize(
    "words", [[], ["--help"], ["list", "envs"], ["train", "Hopper-v5", "--help"], ["sweep", "--help"]]
)
def test_help_and_lists_keep_to_the_terminals_width(words, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    with suppress(SystemExit):
        main(words)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) <= columns


def test_a_list_that_is_piped_has_a_line_for_each_task(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["list", "envs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(name) for name, line in zip(["task", *TASKS], lines, strict=False))


@pytest.mark.parametrize("words", [["list", "envs"], ["--help"]])
def test_a_reader_that_goes_away_ends_a_command_quietly(words, tmp_path):
    """A reader such as `head -1` may close the pipe before the first line."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-m", "arac", *words], cwd=tmp_path, **pipes)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 0


def test_a_run_trains_on_when_its_reader_goes_away(tmp_path):
    """This holds even if the environment prints in a worker process."""
    chatty = ["helpers:Probe-v0", "--env-kwargs", "trouble=prints", "at=1"]
    words = [
        sys.executable,
        "-m",
        "arac",
        "train",
        *chatty,
        *STOPPED[:-6],
        "--steps",
        "200",
        "--workers",
        "1",
        "--run-dir",
        "run",
    ]
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, cwd=tmp_path, env=variables, **pipes)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=120) == 0
    assert metrics.read_evaluations(tmp_path / "run")[-1]["env_steps"] >= 200


def test_without_a_command_the_usage_is_shown(capsys):
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert main(["--version"]) == 0
    assert "arac 0.1" in capsys.readouterr().out
