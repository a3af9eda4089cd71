"""Calls and arguments of callbacks, stopping a run, and errors in a callback."""

from itertools import pairwise

import helpers
import imageio.v3 as iio
import jax
import numpy as np
import pytest

import arac
from arac.callbacks import Callback, PeriodicVideo, StopAtReturn
from arac.cli import main
from arac.storage import checkpoint, metrics, pytree_io
from arac.video.picture import arrange

SMALL = {**helpers.SMALL, "checkpoint_interval": 70}
FLAGS = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
STEPS = 300
EVENTS = ["on_generation", "on_evaluation", "on_checkpoint"]


def trained(callback, run_dir=None, steps=STEPS):
    return arac.SAC("InvertedPendulum-v5", seed=3, **SMALL).learn(steps, run_dir=run_dir, callback=callback)


class Recorder(Callback):
    """Record each call and the agent's state at that time."""

    def __init__(self):
        self.told = []

    def on_start(self, agent, run_dir):
        self.told.append(("on_start", agent.state, run_dir))

    def on_generation(self, agent, evaluation):
        action, _ = agent.predict(np.full(4, 0.1), deterministic=True)
        expected = 3 * agent.champion.policy.mode(np.full(4, 0.1, np.float32))  # forces of ±3
        np.testing.assert_allclose(action, expected, rtol=1e-5)
        self.told.append(("on_generation", agent.state, evaluation))

    def on_evaluation(self, agent, evaluation):
        self.told.append(("on_evaluation", agent.state, evaluation))

    def on_checkpoint(self, agent, folder):
        saved = arac.load(folder.parents[1]).state
        for one, other in zip(jax.tree.leaves(saved), jax.tree.leaves(agent.state), strict=True):
            np.testing.assert_array_equal(one, other)
        self.told.append(("on_checkpoint", agent.state, folder))

    def on_end(self, agent, outcome):
        self.told.append(("on_end", agent.state, outcome))

    def of(self, event):
        return [(state, what) for name, state, what in self.told if name == event]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Train an undisturbed run, and return its folder and the recorded calls."""
    folder, recorder = tmp_path_factory.mktemp("whole") / "run", Recorder()
    return trained(recorder, folder), folder, recorder


def test_every_generation_evaluation_and_checkpoint_is_told_with_the_agent_as_it_is_then(whole):
    agent, folder, recorder = whole
    assert [name for name, _, _ in recorder.told][:: len(recorder.told) - 1] == ["on_start", "on_end"]
    assert recorder.of("on_start")[0][1] == folder
    assert recorder.of("on_end") == [(agent.state, "done")]
    generations = [state.generation for state, _ in recorder.of("on_generation")]
    assert generations == list(range(1, agent.state.generation + 1))
    rows = metrics.read_evaluations(folder)
    assert [row for _, row in recorder.of("on_evaluation")] == rows
    assert [row for _, row in recorder.of("on_generation") if row] == rows
    assert [state.env_steps for state, _ in recorder.of("on_evaluation")] == [row["env_steps"] for row in rows]


def test_the_checkpoints_told_are_those_at_intervals_and_the_last_one(whole):
    agent, folder, recorder = whole
    told = [path for _, path in recorder.of("on_checkpoint")]
    assert len(told) >= STEPS // SMALL["checkpoint_interval"]
    assert told[-checkpoint.KEPT :] == checkpoint.list_checkpoints(folder)
    assert int(told[-1].name) == agent.state.env_steps


def test_without_a_run_folder_there_is_none_to_tell_of(whole):
    recorder = Recorder()
    agent = trained(recorder)
    assert recorder.of("on_start")[0][1] is None
    assert not recorder.of("on_checkpoint")
    assert agent.state.env_steps == whole[0].state.env_steps


@pytest.mark.parametrize("no", [False, np.False_])
@pytest.mark.parametrize("event", EVENTS)
def test_false_from_any_of_several_stops_after_all_are_told(event, no, tmp_path):
    class Stop(Callback):
        pass

    setattr(Stop, event, lambda self, agent, what: no)
    called, recorder = [], Recorder()
    agent = trained([Stop(), lambda agent, _: called.append(agent.state.generation), recorder], tmp_path / "run")
    assert agent.state.env_steps < STEPS
    assert called == [state.generation for state, _ in recorder.of("on_generation")]
    assert recorder.of(event)[0][0].env_steps == agent.state.env_steps
    assert recorder.of("on_end") == [(agent.state, "stopped")]
    assert int(checkpoint.list_checkpoints(tmp_path / "run")[-1].name) == agent.state.env_steps


@pytest.mark.parametrize("event", EVENTS)
def test_one_that_raises_stops_the_run_with_a_checkpoint_and_it_resumes_exactly(event, whole, tmp_path):
    class Broken(Callback):
        calls = 0

    def fail(self, agent, what):
        self.calls += 1
        if self.calls == 2:
            raise RuntimeError(f"{event} broke")

    setattr(Broken, event, fail)
    agent, recorder = arac.SAC("InvertedPendulum-v5", seed=3, **SMALL), Recorder()
    with pytest.raises(RuntimeError, match=f"{event} broke"):
        agent.learn(STEPS, run_dir=tmp_path / "run", callback=[recorder, Broken()])
    assert recorder.of("on_end") == [(agent.state, "failed")]
    assert int(checkpoint.list_checkpoints(tmp_path / "run")[-1].name) == agent.state.env_steps < STEPS
    resumed = arac.resume(tmp_path / "run", log=lambda _: None)
    expected, folder, _ = whole
    arrays = pytree_io.to_arrays(resumed.state)
    for name, array in pytree_io.to_arrays(expected.state).items():
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)
    for path in metrics.DETERMINISTIC_FILES:
        assert (tmp_path / "run" / path).read_bytes() == (folder / path).read_bytes()


def test_one_that_cannot_start_ends_those_that_had(tmp_path):
    class Broken(Recorder):
        def on_start(self, agent, run_dir):
            raise OSError("no network")

    first, broken, last = Recorder(), Broken(), Recorder()
    with pytest.raises(OSError, match="no network"):
        trained([first, broken, last], tmp_path / "run")
    assert [name for name, _, _ in first.told] == ["on_start", "on_end"]
    assert (broken.told, last.told) == ([], [])
    assert arac.resume(tmp_path / "run", total_steps=STEPS, log=lambda _: None).state.env_steps >= STEPS


@pytest.mark.parametrize("callback", [3, StopAtReturn, [None]])
def test_what_cannot_be_called_is_refused_before_there_is_a_run(callback, tmp_path):
    with pytest.raises(arac.UserError, match="takes a Callback, a function or a list"):
        trained(callback, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_stop_at_return_stops_at_the_first_evaluation_that_reaches_it(whole):
    rows = metrics.read_evaluations(whole[1])
    best = max(row["champion_return"] for row in rows)
    first = next(row["env_steps"] for row in rows if row["champion_return"] == best)
    assert trained(StopAtReturn(best)).state.env_steps == first
    assert trained(StopAtReturn(best + 1)).state.env_steps == rows[-1]["env_steps"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_return_that_is_no_number_is_refused(value):
    with pytest.raises(arac.UserError, match=f"finite number, got {value}"):
        StopAtReturn(value)


@pytest.fixture
def filmed(monkeypatch):
    """Record the requests for films instead of drawing."""
    calls = []

    def film(env, policies, labels, path):
        calls.append((env.id, len(policies), labels, path))
        return [0.0] * len(policies)

    monkeypatch.setattr("arac.video.periodic.film", film)
    return calls


def test_videos_are_made_at_the_start_and_whenever_the_interval_is_crossed_also_after_a_resume(whole, filmed, tmp_path):
    _, _, recorder = whole
    steps = [0, *(state.env_steps for state, _ in recorder.of("on_generation"))]
    due = [0] + [now for before, now in pairwise(steps) if now // 90 > before // 90]
    video = PeriodicVideo(90)
    trained([video, lambda agent, _: agent.state.env_steps < 150], tmp_path / "run")
    arac.resume(tmp_path / "run", callback=video, log=lambda _: None)
    assert [path for _, _, _, path in filmed] == [tmp_path / "run" / "videos" / f"{step:012d}.mp4" for step in due]
    assert [labels for _, _, labels, _ in filmed] == [[f"champion at {step} steps"] for step in due]


def test_the_whole_population_is_filmed_into_a_folder_of_ones_own(filmed, tmp_path):
    agent = arac.ARAC("InvertedPendulum-v5", seed=3, **SMALL)
    PeriodicVideo(60, members="all", folder=tmp_path / "films").on_start(agent, None)
    names = [f"member {member}" for member in range(5)]
    assert filmed == [(agent.env.id, 5, names, tmp_path / "films" / f"{0:012d}.mp4")]
    assert (tmp_path / "films").is_dir()


def test_a_real_film_of_a_population(tmp_path):
    agent = arac.ARAC("drawing:Painted-v0", seed=3, max_episode_steps=4, **SMALL)
    PeriodicVideo(60, members="all", folder=tmp_path).on_start(agent, None)
    [film] = tmp_path.iterdir()
    shown = iio.imread(film, plugin="FFMPEG")
    assert shown.shape[:3] == (1 + 4 // 2 + 25, *arrange(5, (60, 80), 480).size[::-1])


def test_videos_need_an_interval_and_a_place(tmp_path):
    with pytest.raises(arac.UserError, match="at least 1, got 0"):
        PeriodicVideo(0)
    with pytest.raises(arac.UserError, match="'champion' or 'all', got 'best'"):
        PeriodicVideo(10, members="best")
    with pytest.raises(arac.UserError, match="no place for videos"):
        trained(PeriodicVideo(10))


def test_the_command_stops_at_a_return_and_says_so(tmp_path, capsys):
    words = ["train", "InvertedPendulum-v5", "--algo", "sac", *FLAGS, "--steps", str(STEPS)]
    run = tmp_path / "run"
    assert main([*words, "--run-dir", str(run), "--stop-at-return", "1"]) == 0
    [row] = metrics.read_evaluations(run)
    assert f"stopped at {row['env_steps']} of 300 steps" in capsys.readouterr().out
    assert main(["resume", str(run), "--stop-at-return", "1"]) == 0, "which the next evaluation reaches as well"
    assert len(metrics.read_evaluations(run)) == 2
    assert "stop_at_return" not in (run / "config.toml").read_text()


@pytest.mark.parametrize(("flag", "value"), [("--stop-at-return", "nan"), ("--video-interval", "0")])
def test_the_command_refuses_what_cannot_be_before_there_is_a_run(flag, value, tmp_path, capsys):
    words = ["train", "InvertedPendulum-v5", *FLAGS, "--steps", "300", "--run-dir", str(tmp_path / "run")]
    assert main([*words, flag, value]) == 2
    assert f"got {value}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
