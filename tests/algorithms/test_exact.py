"""The same config and seed give the same bytes: run twice, stopped and resumed, on one worker or many."""

import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import pytest
from run_folders import assert_same_run

import arac
from arac.agents.classes import AGENTS
from arac.algorithms import sac
from arac.algorithms.cerl import CERLConfig
from arac.algorithms.erl import ERLConfig
from arac.replay.buffer import sample
from arac.storage import checkpoint, manifest

SETTINGS = {
    "hidden_size": 16,
    "batch_size": 16,
    "warmup_steps": 60,
    "eval_interval": 100,
    "eval_episodes": 2,
    "checkpoint_interval": 1,
    "replay_capacity": 10_000,
    "workers": 0,
}
STEPS = 500
FEWER = dict.fromkeys(("sac", "sac_nf", "td3"), 300)  # a generation of theirs is one episode: these are enough
OFTEN = {"erl": {"synchronisation_interval": 2}, "cerl": {"migration_interval": 2}}  # so that a short run has some


def trained(name, folder, *, steps=None, callback=None, **settings):
    steps = steps or FEWER.get(name, STEPS)
    agent = AGENTS[name]("InvertedPendulum-v5", seed=3, **{**SETTINGS, **OFTEN.get(name, {}), **settings})
    agent.learn(steps, run_dir=folder, callback=callback)
    return agent


def resumed(folder):
    return arac.resume(folder, log=lambda _: None)


def assert_same(agent, other, folder, other_folder):
    assert_same_run(agent, other, folder, other_folder)
    keys = jax.random.key(0), 500
    for mine, others in zip(sampled(agent, *keys), sampled(other, *keys), strict=True):
        np.testing.assert_array_equal(mine, others)


def sampled(agent, key, size):
    return sample(agent.replay.view, key, size)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Train each algorithm once without interruption."""
    folder = tmp_path_factory.mktemp("reference")
    return {name: (trained(name, folder / name), folder / name) for name in AGENTS}


@pytest.mark.parametrize("name", AGENTS)
def test_the_same_seed_gives_the_same_bytes(name, reference, tmp_path):
    agent, folder = reference[name]
    assert_same(agent, trained(name, tmp_path / "again"), folder, tmp_path / "again")


@pytest.mark.parametrize("name", AGENTS)
def test_another_seed_gives_other_numbers(name, reference):
    agent, _ = reference[name]
    other = AGENTS[name]("InvertedPendulum-v5", seed=4, **SETTINGS, **OFTEN.get(name, {})).learn(FEWER.get(name, STEPS))
    leaves = zip(jax.tree.leaves(agent.state.population), jax.tree.leaves(other.state.population), strict=True)
    assert not any(np.array_equal(a, b) for a, b in leaves if np.ptp(a) > 0)  # layer norms begin with ones and zeros


@pytest.mark.parametrize("name", AGENTS)
def test_stopped_after_any_generation_and_resumed_is_like_never_stopped(name, reference, tmp_path):
    agent, folder = reference[name]
    for stop in {1, agent.state.generation // 2}:
        target = tmp_path / str(stop)
        stopped = trained(name, target, callback=lambda agent, _, stop=stop: agent.state.generation < stop)
        assert stopped.state.generation == stop
        assert_same(agent, resumed(target), folder, target)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("arac", {"preset": "paper-letter", "noise_hold": 8}),
        *(
            pytest.param(name, settings, marks=pytest.mark.slow)
            for name, settings in (
                ("arac", {"ar_from": "members", "ar_coefficient": 2.0, "ar_base": "gaussian"}),
                ("arac", {"ar_from": "archive", "ar_base": "shared", "strategy": "reactive"}),
                ("arac", {"ar_felt_by": "all", "ar_target": 1.0}),
                ("arac", {"temperature": 0.1}),
                ("erl", ERLConfig.named_presets["public-code"]),
                ("cerl", CERLConfig.named_presets["public-code"]),
            )
        ),
    ],
)
def test_other_settings_resume_exactly(name, settings, tmp_path):
    agent = trained(name, tmp_path / "whole", **settings)
    half = agent.state.generation // 2
    trained(name, tmp_path / "run", callback=lambda agent, _: agent.state.generation < half, **settings)
    assert_same(agent, resumed(tmp_path / "run"), tmp_path / "whole", tmp_path / "run")


def test_a_run_stopped_after_every_single_generation_ends_the_same(reference, tmp_path):
    agent, folder = reference["arac"]
    target = tmp_path / "run"
    trained("arac", target, callback=lambda *_: False)
    for _ in range(agent.state.generation - 1):
        again = arac.resume(target, callback=lambda *_: False, log=lambda _: None)
    assert_same(agent, again, folder, target)


def test_rows_written_after_the_last_checkpoint_are_not_written_twice(reference, tmp_path):
    """A kill after an evaluation's rows and before its checkpoint: resuming plays that generation again."""
    agent, folder = reference["arac"]
    target = tmp_path / "run"
    trained("arac", target, callback=lambda agent, _: agent.state.generation < 10)
    with (target / "evaluations.jsonl").open("a") as file:
        file.write('{"env_steps": 1, "torn')
    with (target / "episodes.csv").open("a") as file:
        file.write("1,2,3\n")
    assert_same(agent, resumed(target), folder, target)


@pytest.mark.parametrize(
    ("name", "workers"), {**dict.fromkeys(AGENTS, 2), **dict.fromkeys(FEWER, 1), "arac": 3}.items()
)
def test_the_number_of_workers_changes_nothing(name, workers, reference, tmp_path):
    agent, folder = reference[name]
    assert_same(agent, trained(name, tmp_path / "run", workers=workers), folder, tmp_path / "run")


def test_a_longer_goal_goes_on_from_where_the_run_was(tmp_path):
    trained("sac", tmp_path / "run", steps=300)
    with pytest.raises(arac.UserError, match="may only grow"):
        arac.resume(tmp_path / "run", total_steps=200)
    agent = arac.resume(tmp_path / "run", total_steps=400, log=lambda _: None)
    assert agent.state.env_steps >= 400


def test_a_folder_that_holds_a_run_is_not_overwritten(reference):
    _, folder = reference["sac"]
    before = (folder / "evaluations.jsonl").read_bytes()
    with pytest.raises(arac.UserError, match="arac resume"):
        trained("sac", folder)
    assert (folder / "evaluations.jsonl").read_bytes() == before


def test_nothing_is_written_without_a_run_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = arac.SAC("InvertedPendulum-v5", **SETTINGS).learn(200)
    assert list(Path().iterdir()) == []
    assert agent.replay.on_add is None


def test_an_agent_that_learned_before_can_begin_a_run_that_resumes_exactly(tmp_path):
    whole = arac.SACNF("InvertedPendulum-v5", seed=3, **SETTINGS).learn(150)
    whole.learn(100, run_dir=tmp_path / "elsewhere").learn(250, run_dir=tmp_path / "whole")
    again = arac.SACNF.load(tmp_path / "whole")
    checkpoint.fill(tmp_path / "whole", manifest_of(tmp_path / "whole"), again.replay)
    assert len(again.replay) == len(whole.replay)
    assert_same(whole, again, tmp_path / "whole", tmp_path / "whole")


def manifest_of(folder):
    return manifest.read(checkpoint.list_checkpoints(folder)[-1] / "manifest.json")


def test_a_run_falls_back_to_the_older_checkpoint_and_still_ends_the_same(reference, tmp_path):
    agent, folder = reference["arac"]
    target = tmp_path / "run"
    trained("arac", target, callback=lambda agent, _: agent.state.generation < 12)
    newest = checkpoint.list_checkpoints(target)[-1] / "state.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert_same(agent, resumed(target), folder, target)


def test_a_run_whose_checkpoints_are_gone_is_refused_and_keeps_its_metrics(tmp_path):
    trained("sac", tmp_path / "run", callback=lambda agent, _: agent.state.env_steps < 250)
    rows = (tmp_path / "run" / "evaluations.jsonl").read_bytes()
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(arac.UserError, match="no usable checkpoint"):
        resumed(tmp_path / "run")
    assert (tmp_path / "run" / "evaluations.jsonl").read_bytes() == rows


@pytest.mark.parametrize("interval", [1, pytest.param(10**6, id="longer than replay")])
def test_a_replay_that_wraps_around_resumes_exactly(interval, tmp_path):
    small = {"checkpoint_interval": interval, "replay_capacity": 1000, "store_evaluation": True, "eval_episodes": 30}
    agent = trained("sac", tmp_path / "whole", steps=STEPS, **small)
    assert agent.replay.cursor.first_episode > 0
    stopped = trained(
        "sac", tmp_path / "run", steps=STEPS, callback=lambda agent, _: agent.state.env_steps < 450, **small
    )
    assert stopped.replay.cursor.first_episode > 0
    assert_same(agent, resumed(tmp_path / "run"), tmp_path / "whole", tmp_path / "run")


@pytest.mark.usefixtures("signals")
def test_an_interrupted_generation_leaves_nothing_in_replay(reference, monkeypatch):
    """A second `learn` in the same process gives the result of a single one."""
    whole, _ = reference["sac_nf"]
    agent = arac.SACNF("InvertedPendulum-v5", seed=3, **SETTINGS)
    update, interrupted = sac.update, []

    def interrupt_once(context, state, count):
        if state.generation == 12 and not interrupted:
            interrupted.append(context.replay.cursor.episodes)
            signal.raise_signal(signal.SIGINT)
        return update(context, state, count)

    monkeypatch.setattr(sac, "update", interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(FEWER["sac_nf"])
    assert interrupted == [13]
    assert (agent.state.generation, agent.replay.cursor.episodes) == (12, 12)
    agent.learn(FEWER["sac_nf"] - agent.state.env_steps)
    for one, other in zip(jax.tree.leaves(whole.state), jax.tree.leaves(agent.state), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_was_learned_before_a_failure_is_kept_and_saved(reference, tmp_path):
    agent, folder = reference["arac"]

    def fail(agent, _):
        if agent.state.generation == 7:
            raise RuntimeError("a callback broke")

    broken = arac.ARAC("InvertedPendulum-v5", seed=3, **SETTINGS)
    with pytest.raises(RuntimeError, match="a callback broke"):
        broken.learn(STEPS, run_dir=tmp_path / "run", callback=fail)
    assert broken.state.generation == 7
    assert_same(agent, resumed(tmp_path / "run"), folder, tmp_path / "run")


@pytest.mark.parametrize("change", ["lost", "gone", "edited"])
def test_metrics_that_are_not_as_they_were_are_said_and_left_as_they_are(change, reference, tmp_path):
    agent, folder = reference["sac"]
    trained("sac", tmp_path / "run", callback=lambda agent, _: agent.state.env_steps < 250)
    rows = tmp_path / "run" / "evaluations.jsonl"
    before = rows.read_text()
    if change == "gone":
        rows.unlink()
    else:
        rows.write_text(before[:-30] if change == "lost" else before.replace('"generation": ', '"generation": 1', 1))
    said = []
    again = arac.resume(tmp_path / "run", log=said.append)
    assert any("evaluations.jsonl is not as the run wrote it" in sentence for sentence in said)
    for one, other in zip(jax.tree.leaves(agent.state), jax.tree.leaves(again.state), strict=True):
        np.testing.assert_array_equal(one, other)
    whole = (folder / "evaluations.jsonl").read_text().splitlines()
    assert rows.read_text().splitlines()[-1] == whole[-1]
    assert (
        len(rows.read_text().splitlines()) == len(whole) - {"lost": 1, "gone": before.count("\n"), "edited": 0}[change]
    )
