import difflib
import warnings
from functools import partial

import gymnasium
import mujoco
import numpy as np
import pytest
from helpers import Odd

from arac import envs
from arac.errors import UserError


def refusal(env_id, **settings):
    with pytest.raises(UserError) as caught:
        envs.check(env_id, **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("env_id", "observation_size", "action_size", "bound"),
    [("Hopper-v5", 11, 3, 1.0), ("Humanoid-v5", 348, 17, 0.4)],
)
def test_check_reads_sizes_bounds_and_time_limit(env_id, observation_size, action_size, bound):
    spec = envs.check(env_id)
    assert (spec.id, spec.observation_size, spec.action_size) == (env_id, observation_size, action_size)
    np.testing.assert_allclose(spec.low, np.full(action_size, -bound), rtol=1e-6)
    np.testing.assert_allclose(spec.high, np.full(action_size, bound), rtol=1e-6)
    assert spec.max_episode_steps == 1000


def test_make_gives_what_was_checked():
    spec = envs.check("Hopper-v5", max_episode_steps=7, kwargs={"reset_noise_scale": 0.0})
    env = envs.make(spec)
    observations = [env.reset(seed=seed)[0] for seed in (0, 1)]
    np.testing.assert_array_equal(*observations)
    lengths = sum(1 for _ in iter(lambda: env.step(np.zeros(3))[2:4] == (False, False), False))
    assert (spec.max_episode_steps, lengths + 1) == (7, 7)
    env.close()


@pytest.mark.parametrize(
    ("actions", "word"),
    [
        ("discrete", "Discrete actions"),
        ("unbounded", "without bounds"),
        ("half bounded", "without bounds"),
        ("matrix", "(2, 2)"),
    ],
)
def test_actions_that_are_no_bounded_vector_are_refused(actions, word):
    message = refusal("helpers:Odd-v0", kwargs={"actions": actions})
    assert word in message
    assert "helpers:Odd-v0" in message


def test_discrete_observations_are_refused():
    assert "Discrete(4)" in refusal("helpers:Odd-v0", kwargs={"observations": "discrete"})


@pytest.mark.parametrize(("observations", "size"), [("box", 3), ("double", 3), ("matrix", 6), ("dict", 7)])
def test_observations_of_numbers_come_as_one_vector(observations, size):
    spec = envs.check("helpers:Odd-v0", kwargs={"observations": observations})
    assert spec.observation_size == size
    env = envs.make(spec)
    assert env.reset(seed=0)[0].shape == (size,)
    assert env.step(np.zeros(2))[0].shape == (size,)


def test_an_environment_without_a_time_limit_is_refused_until_one_is_given():
    assert "max_episode_steps" in refusal("helpers:Endless-v0")
    spec = envs.check("helpers:Endless-v0", max_episode_steps=3)
    assert spec.max_episode_steps == 3
    env = envs.make(spec)
    env.reset(seed=0)
    assert [env.step(np.zeros(2))[3] for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize(
    ("env_id", "meant"),
    [("Hoper-v5", "Hopper-v5"), ("hopper-v5", "Hopper-v5"), ("HalfChetah-v5", "HalfCheetah-v5"), ("Ant-v99", "Ant-v5")],
)
def test_an_unknown_environment_is_refused_with_a_suggestion(env_id, meant):
    message = refusal(env_id)
    assert repr(env_id) in message
    assert meant in message.partition("Did you mean ")[2]


def test_an_environment_like_no_other_is_refused_without_a_suggestion():
    message = refusal("Qqqqqqqqqqqqqqqq-v0")
    assert not difflib.get_close_matches("qqqqqqqqqqqqqqqq-v0", map(str.lower, gymnasium.registry))
    assert "Did you mean" not in message


@pytest.mark.parametrize("env_id", ["", "Hopper v5", "!!", "a/b/c-v0"])
def test_what_is_no_environments_name_is_refused(env_id):
    assert repr(env_id) in refusal(env_id)


@pytest.mark.parametrize(
    ("env_id", "settings"),
    [
        ("Hopper-v2", {}),
        ("no_such_module:Thing-v0", {}),
        ("helpers:Odd-v0", {"kwargs": {"no_such_argument": 1}}),
        ("helpers:Odd-v0", {"max_episode_steps": 0}),
        ("Hopper-v5", {"kwargs": {"xml_file": "no_such_file.xml"}}),
    ],
)
def test_an_environment_that_cannot_be_made_is_refused(env_id, settings):
    assert env_id in refusal(env_id, **settings)


def test_making_half_cheetah_writes_no_file_and_says_nothing(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs.make(envs.check("HalfCheetah-v5")).close()
        envs.make(envs.check("HalfCheetah-v4")).close()
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_mujocos_warnings_are_heard_again_once_an_environment_is_made():
    heard = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(heard.append)
    try:
        mine = mujoco.get_mju_user_warning()
        envs.check("HalfCheetah-v5")
        assert mujoco.get_mju_user_warning() is mine
        assert heard == []
    finally:
        mujoco.set_mju_user_warning(before)


def test_every_short_name_is_an_environment_with_the_papers_parameters():
    from arac.algorithms.presets import paper_table, task_name
    from arac.envs.tasks import TASKS

    ours = {"DeceptivePoint": 200, "PointMaze": 200, "PointMazeWide": 200, "DeceptiveWall": 50, "AntTrap": 1000}
    assert {task_name(name) for name in TASKS} - set(ours) == set(paper_table())
    for name, env_id in TASKS.items():
        assert envs.check(name).id == env_id
        assert envs.check(name).max_episode_steps == ours.get(name, 1000)


def test_variants_of_older_versions():
    """In v2, Ant observed contact forces, and Walker2d's right foot had less friction than its left."""
    ant, walker = (envs.make(envs.check(name)).unwrapped for name in ("AntV2Like", "Walker2dV2Like"))
    assert ant.observation_space.shape == (111,)
    newer = envs.make(envs.check("Walker2d")).unwrapped
    assert [walker.model.geom(name).friction[0] for name in ("foot_geom", "foot_left_geom")] == [0.9, 1.9]
    assert [newer.model.geom(name).friction[0] for name in ("foot_geom", "foot_left_geom")] == [1.9, 1.9]


def hopper(noise=0.005):
    return gymnasium.make("Hopper-v5", reset_noise_scale=noise)


def test_a_function_makes_the_environment():
    spec = envs.check(hopper, kwargs={"noise": 0.0})
    assert (spec.id, spec.observation_size, spec.max_episode_steps) == ("test_envs.hopper", 11, 1000)
    env = envs.make(spec)
    np.testing.assert_array_equal(env.reset(seed=0)[0], env.reset(seed=1)[0])
    assert envs.check(hopper, max_episode_steps=7).max_episode_steps == 7


def test_a_class_makes_the_environment_and_needs_a_time_limit():
    assert "has no time limit" in refusal(Odd)
    assert envs.check(Odd, max_episode_steps=9, kwargs={"observations": "dict"}).observation_size == 7


def test_what_has_no_name_cannot_make_an_environment():
    assert "env_kwargs" in refusal(partial(hopper, noise=0.0))


def test_a_module_that_is_not_found_may_be_in_this_folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("raise SystemExit('somebody else wrote this')")
    monkeypatch.chdir(tmp_path)
    said = refusal("mine:Env-v0")
    assert "No module named 'mine'" in said
    assert said.endswith("Set PYTHONPATH=. to import modules from the current folder.")


def test_a_function_that_fails_is_the_users_mistake():
    assert ": TypeError" in refusal(hopper, kwargs={"nois": 1})
