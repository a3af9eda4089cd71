"""The Python interface: agents are trained, evaluated, saved and loaded."""

import threading

import gymnasium
import jax
import numpy as np
import pytest
from helpers import SMALL, Probe

import arac
from arac.agents.classes import AGENTS
from arac.models.stacked import take
from arac.storage import agent_file, pytree_io, run_folder
from arac.utils.progress import Progress


@pytest.fixture(scope="module")
def agent():
    return arac.ARAC("InvertedPendulum-v5", seed=1, **SMALL).learn(200)


def test_predict_takes_one_observation_or_many(agent):
    one, state = agent.predict(np.zeros(4), deterministic=True)
    many, _ = agent.predict(np.zeros((7, 4)), deterministic=True)
    assert one.shape == (1,)
    assert many.shape == (7, 1)
    assert state is None
    np.testing.assert_allclose(many, np.tile(one, (7, 1)), rtol=1e-5, atol=1e-6)


def test_predict_is_the_champions_mode_in_the_environments_units():
    agent = arac.SAC("Pendulum-v1", **SMALL)  # torques of ±2
    observation = np.array([[0.1, 0.9, 3.0]], np.float32)
    expected = 2 * np.asarray(agent.champion.policy.mode(observation))
    np.testing.assert_allclose(agent.predict(observation, deterministic=True)[0], expected, rtol=1e-5)
    noisy = np.stack([agent.predict(observation[0])[0] for _ in range(200)])
    assert noisy.std() > 0.1
    assert np.abs(noisy).max() <= 2


@pytest.mark.parametrize(
    ("observation", "said"),
    [
        (
            [0, np.nan, 0, 0],
            "predict got nan at index 1: every number of an observation of Inverted",
        ),
        ([[0, 0, 0, 0], [0, 0, 0, -np.inf]], "predict got -inf at index 3 of observation 1: "),
    ],
)
def test_predict_refuses_what_is_not_finite(agent, observation, said):
    for deterministic in (True, False):
        with pytest.raises(arac.UserError, match=said):
            agent.predict(np.array(observation), deterministic=deterministic)


def test_an_agent_shows_itself(agent):
    assert repr(agent) == f"{type(agent).__name__}('InvertedPendulum-v5', seed=1, env_steps={agent.state.env_steps})"


def test_steps_may_be_a_float_that_is_whole(tmp_path):
    agent = arac.SAC("InvertedPendulum-v5", **SMALL)
    agent.learn(1e2, run_dir=tmp_path / "run")
    assert run_folder.read_config(tmp_path / "run")["steps"] == 100
    for steps in (0, 1.5, -3, True, "many", float("nan")):
        with pytest.raises(arac.UserError, match="total_steps must be a whole number of at least 1, got"):
            agent.learn(steps)


def test_predict_names_a_wrong_shape(agent):
    with pytest.raises(arac.UserError, match=r"4 numbers; predict got \(3,\)"):
        agent.predict(np.zeros(3))


@pytest.mark.parametrize("kind", AGENTS.values())
def test_a_loaded_agent_learns_on_with_an_empty_replay(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(Progress, "chunks", lambda self, name, count: [])
    first = kind("InvertedPendulum-v5", seed=2, **SMALL).learn(300)
    first.save(tmp_path / "agent.safetensors")
    second, sizes = kind.load(tmp_path / "agent.safetensors"), []
    monkeypatch.setattr(Progress, "chunks", lambda self, name, count: sizes.append((len(second.replay), count)) or [])
    second.learn(100)
    assert second.state.env_steps >= first.state.env_steps + 100
    assert all(size > 0 for size, count in sizes if count > 0), "nothing is learned from nothing"


@pytest.mark.parametrize("kind", AGENTS.values())
def test_saved_and_loaded_is_the_same_agent(kind, tmp_path):
    first = kind("InvertedPendulum-v5", seed=2, **SMALL)
    first.save(tmp_path / "agent.safetensors")
    for second in (kind.load(tmp_path / "agent.safetensors"), arac.load(tmp_path / "agent.safetensors")):
        assert type(second) is kind
        assert second.config == first.config
        arrays, others = pytree_io.to_arrays(first.state), pytree_io.to_arrays(second.state)
        assert arrays.keys() == others.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, others[name])


def test_a_loaded_agent_acts_alike_and_learns_on(agent, tmp_path):
    agent.save(tmp_path / "agent.safetensors")
    second = arac.ARAC.load(tmp_path / "agent.safetensors")
    observation = np.array([0.1, -0.2, 0.3, 0.0])
    np.testing.assert_array_equal(agent.predict(observation, deterministic=True)[0],
                                  second.predict(observation, deterministic=True)[0])  # fmt: skip
    before = second.state.env_steps
    second.learn(100)
    assert second.state.env_steps >= before + 100


@pytest.mark.parametrize("kind", AGENTS.values())
@pytest.mark.parametrize("only", ["champion", "population"])
def test_policies_alone_act_as_the_whole_agent_does_and_cannot_learn(kind, only, tmp_path):
    whole, path, again = kind("InvertedPendulum-v5", seed=2, **SMALL), tmp_path / "whole", tmp_path / "again"
    whole.save(path)
    whole.save(tmp_path / "small", only=only)
    assert (tmp_path / "small").stat().st_size < path.stat().st_size / 2
    agent = arac.load(tmp_path / "small")
    agent.save(again)
    assert arac.load(again).state.members == agent.state.members
    assert type(agent) is kind
    assert len(agent.population) == (1 if only == "champion" else len(whole.population))
    observation = np.array([0.1, -0.2, 0.3, 0.0])
    np.testing.assert_array_equal(*(one.predict(observation, deterministic=True)[0] for one in (whole, agent)))
    np.testing.assert_array_equal(whole.evaluate(2).returns, agent.evaluate(2).returns)
    with pytest.raises(arac.UserError, match="policies only, and cannot learn"):
        agent.learn(100)


def test_a_file_of_policies_that_contradicts_itself_is_refused(tmp_path, monkeypatch):
    agent = arac.ARAC("InvertedPendulum-v5", **SMALL)
    for champion, members, said in ((3, 1, "number 3 of 1"), (0, 2, "holds 2 members")):
        some = take(agent.state.population, np.arange(members))
        agent_file.write(tmp_path / "file", agent.description, agent_file.Policies(some, champion, 0, 0))
        with pytest.raises(arac.UserError, match=said):
            arac.load(tmp_path / "file")
    with pytest.raises(arac.UserError, match="only must be 'champion' or 'population', got 'best'"):
        agent.save(tmp_path / "file", only="best")


def test_a_run_folder_loads_too(tmp_path):
    agent = arac.SACNF("InvertedPendulum-v5", **SMALL).learn(150, run_dir=tmp_path / "run")
    loaded = arac.load(tmp_path / "run")
    assert isinstance(loaded, arac.SACNF)
    assert loaded.state.env_steps == agent.state.env_steps


def test_the_earlier_name_of_log_warns(tmp_path):
    arac.SAC("InvertedPendulum-v5", **SMALL).save(tmp_path / "sac.safetensors")
    with pytest.deprecated_call(match="use log"):
        arac.load(tmp_path / "sac.safetensors", say=print)


def test_another_algorithms_file_is_refused_by_name(tmp_path):
    arac.SAC("InvertedPendulum-v5", **SMALL).save(tmp_path / "sac.safetensors")
    with pytest.raises(arac.UserError, match="holds an agent of SAC, not of ARAC"):
        arac.ARAC.load(tmp_path / "sac.safetensors")


@pytest.mark.parametrize("content", [b"", b"not a file of ours", b"\x80\x04]q\x00."])
def test_a_file_that_is_not_ours_is_refused(content, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(arac.UserError, match="not a file that arac saved"):
        arac.load(tmp_path / "file")


def test_evaluate_repeats_itself_and_differs_from_training(agent):
    first, again, other = agent.evaluate(4), agent.evaluate(4), agent.evaluate(4, seed=1)
    np.testing.assert_array_equal(first.returns, again.returns)
    assert first.returns.shape == other.returns.shape == (4,)
    assert first.mean == pytest.approx(first.returns.mean())


def test_a_callback_sees_every_generation_and_can_stop():
    seen = []

    def callback(agent, evaluation):
        seen.append(agent.state.generation)
        return len(seen) < 3

    arac.SAC("InvertedPendulum-v5", **SMALL).learn(10_000, callback=callback)
    assert seen == [1, 2, 3]


def test_a_mistake_in_a_keyword_names_the_close_one():
    with pytest.raises(arac.UserError, match="population_size"):
        arac.ARAC("InvertedPendulum-v5", populaton_size=3)


def pendulum():
    return gymnasium.make("InvertedPendulum-v5")


def other_pendulum():
    return pendulum()


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_from_a_function_trains_and_is_loaded_and_resumed_with_it(workers, tmp_path):
    agent = arac.SAC(pendulum, **{**SMALL, "workers": workers, "checkpoint_interval": 1, "warmup_steps": 20})
    agent.learn(60, run_dir=tmp_path / "run", callback=lambda agent, _: agent.state.env_steps < 30)
    agent.save(tmp_path / "agent")
    for path in (tmp_path / "run", tmp_path / "agent"):
        assert arac.load(path, env=pendulum).env.id == "test_agent.pendulum"
        with pytest.raises(arac.UserError, match=r"test_agent.pendulum came as a function.*env="):
            arac.load(path)
    with pytest.raises(arac.UserError, match="came as a function"):
        arac.resume(tmp_path / "run")
    assert arac.resume(tmp_path / "run", env=pendulum, log=lambda _: None).state.env_steps >= 60
    with pytest.raises(arac.UserError, match=r"environment\.id is"):
        arac.resume(tmp_path / "run", env=other_pendulum, total_steps=80)


def returns_of(env, **settings):
    agent = arac.SAC(env, **{**SMALL, "warmup_steps": 20, **settings}).learn(60)
    return agent.evaluate(3).returns


@pytest.mark.parametrize("workers", [1, 2])
def test_a_closure_and_an_object_give_the_same_numbers_in_workers(workers):
    def wrapped(env):
        return gymnasium.wrappers.ClipReward(env, -1.0, factor)

    factor = 0.5
    closure = lambda: wrapped(gymnasium.make("InvertedPendulum-v5"))  # noqa: E731
    expected = returns_of(closure, workers=0)
    np.testing.assert_array_equal(returns_of(closure, workers=workers), expected)
    np.testing.assert_array_equal(returns_of(closure(), workers=workers), expected)


def test_what_cannot_be_sent_is_played_here_with_auto_and_refused_with_workers(tmp_path):
    lock = threading.Lock()

    def locked():
        with lock:
            return gymnasium.make("InvertedPendulum-v5")

    with pytest.warns(UserWarning, match=r"locked cannot be sent to another process .* are played in this process"):
        found = returns_of(locked, workers="auto")
    np.testing.assert_array_equal(found, returns_of(locked, workers=0))
    with pytest.raises(arac.UserError, match=r"cannot be sent to another process .*Use workers=0"):
        arac.SAC(locked, **{**SMALL, "workers": 1, "warmup_steps": 20}).learn(40, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_object_with_wrappers_is_given_again_to_resume(tmp_path):
    def env(wrapper=gymnasium.wrappers.ClipReward):
        return wrapper(gymnasium.make("InvertedPendulum-v5"), -1.0, 0.5)

    settings = {**SMALL, "checkpoint_interval": 1, "warmup_steps": 20}
    whole = arac.SAC(env(), **settings).learn(60, run_dir=tmp_path / "whole")
    arac.SAC(env(), **settings).learn(
        60, run_dir=tmp_path / "run", callback=lambda agent, _: agent.state.env_steps < 30
    )
    with pytest.raises(arac.UserError, match="came as a function or an object"):
        arac.resume(tmp_path / "run")
    with pytest.raises(arac.UserError, match=r"environment\.wrappers is"):
        arac.resume(tmp_path / "run", env=gymnasium.make("InvertedPendulum-v5"))
    again = arac.resume(tmp_path / "run", env=env(), log=lambda _: None)
    for one, other in zip(jax.tree.leaves(whole.state), jax.tree.leaves(again.state), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_environment_that_ends_by_itself_trains_and_the_guard_is_told():
    with pytest.warns(UserWarning, match=r"has no time limit: an episode ends after at most 10,000 steps"):
        arac.SAC(Probe, env_kwargs={"length": 9}, **{**SMALL, "replay_capacity": 20_000, "warmup_steps": 20}).learn(60)


def test_a_name_is_not_given_a_function_to_load_with(tmp_path):
    arac.SAC("InvertedPendulum-v5", **SMALL).save(tmp_path / "agent")
    with pytest.raises(arac.UserError, match="is a registered environment: omit env"):
        arac.load(tmp_path / "agent", env=pendulum)
