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


def test_an_environment_without_a_time_limit_ends_late_unless_one_is_given():
    guarded = envs.check("helpers:Endless-v0")
    assert (guarded.max_episode_steps, guarded.unlimited) == (envs.LONGEST_EPISODE, True)
    spec = envs.check("helpers:Endless-v0", max_episode_steps=3)
    assert (spec.max_episode_steps, spec.unlimited) == (3, False)
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


def test_a_class_makes_the_environment():
    assert envs.check(Odd).max_episode_steps == envs.LONGEST_EPISODE
    assert envs.check(Odd, max_episode_steps=9, kwargs={"observations": "dict"}).observation_size == 7


class Factory:
    def __call__(self):
        return hopper(0.0)


@pytest.mark.parametrize(
    ("maker", "name"),
    [
        (partial(partial(hopper), noise=0.0), "test_envs.hopper"),
        (Factory(), "test_envs.Factory"),
        (lambda: hopper(0.0), "test_envs.<lambda>"),
    ],
)
def test_anything_that_can_be_called_makes_the_environment(maker, name):
    spec = envs.check(maker)
    assert (spec.id, spec.from_user) == (name, True)
    np.testing.assert_array_equal(*[envs.make(spec).reset(seed=seed)[0] for seed in (0, 1)])


def test_what_cannot_be_called_is_refused():
    assert refusal(3) == "env must be a name, a function or a class, got 3."


def test_an_object_without_wrappers_is_its_name_and_arguments():
    spec = envs.check(gymnasium.make("Hopper-v5", reset_noise_scale=0.0, max_episode_steps=7, render_mode="rgb_array"))
    assert (spec.id, spec.kwargs, spec.max_episode_steps) == ("Hopper-v5", {"reset_noise_scale": 0.0}, 7)
    assert (spec.from_user, spec.wrappers) == (False, ())
    np.testing.assert_array_equal(*[envs.make(spec).reset(seed=seed)[0] for seed in (0, 1)])


def test_an_object_with_wrappers_is_made_again_with_them():
    low = np.full(3, -0.5, np.float32)
    wrapped = gymnasium.wrappers.RescaleAction(gymnasium.make("Hopper-v5", reset_noise_scale=0.0), low, -low)
    spec = envs.check(wrapped)
    assert (spec.id, spec.wrappers, spec.from_user, spec.kwargs) == ("Hopper-v5", ("RescaleAction",), True, {})
    env = envs.make(spec)
    assert env.unwrapped is not wrapped.unwrapped
    np.testing.assert_array_equal(spec.high, np.full(3, 0.5))
    np.testing.assert_array_equal(env.reset(seed=0)[0], wrapped.reset(seed=1)[0])
    np.testing.assert_array_equal(env.step(low)[0], wrapped.step(low)[0])


class Unrecorded(gymnasium.Wrapper):
    """A wrapper that does not record its arguments, so that Gymnasium cannot make it again."""


@pytest.mark.parametrize("env", [Unrecorded(gymnasium.make("InvertedPendulum-v5")), Odd()], ids=["wrapper", "bare"])
def test_an_object_that_cannot_be_made_again_is_used_itself_and_stays_open(env):
    spec = envs.check(env)
    assert spec.from_user
    made = envs.make(spec)
    assert made.unwrapped is env.unwrapped
    made.close()
    env.reset(seed=0)


def test_vector_environments_and_arguments_beside_an_object_are_refused():
    assert "pass one environment" in refusal(gymnasium.make_vec("InvertedPendulum-v5", 2))
    assert refusal(gymnasium.make("InvertedPendulum-v5"), kwargs={"a": 1}).startswith("env_kwargs has no effect")


class Faulty(Odd):
    """Has the interface of the old Gym, or spaces that no algorithm here takes."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        if fault == "images":
            self.observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 3), np.uint8)
        if fault == "whole numbers":
            self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.int64)

    def reset(self, **options):
        answer = super().reset(**options)
        return answer[0] if self.fault == "reset" else answer

    def step(self, action):
        answer = super().step(action)
        return (*answer[:3], {}) if self.fault == "step" else answer


class Selectable(Odd):
    def __init__(self, continuous=False):
        super().__init__()
        if not continuous:
            self.action_space = gymnasium.spaces.Discrete(2)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("images", "has images of 84 x 84 x 3 bytes as observations, and no policy here reads images."),
        ("whole numbers", "has actions of whole numbers (int64); declare a Box with dtype float32."),
        ("reset", "reset must return (observation, info), as in Gymnasium; older interfaces need a wrapper"),
        ("step", "step must return five values, (observation, reward, terminated, truncated, info), as in Gymnasium"),
    ],
)
def test_the_real_problem_is_told_first(fault, told):
    assert told in refusal(Faulty, kwargs={"fault": fault})


def test_an_environment_that_can_be_continuous_is_told_so():
    assert refusal(Selectable).endswith("need a continuous Box; use env_kwargs={'continuous': True}.")
    assert envs.check(Selectable, kwargs={"continuous": True}).action_size == 2


def test_a_module_that_is_not_found_may_be_in_this_folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("raise SystemExit('somebody else wrote this')")
    monkeypatch.chdir(tmp_path)
    said = refusal("mine:Env-v0")
    assert "No module named 'mine'" in said
    assert said.endswith("Set PYTHONPATH=. to import modules from the current folder.")


def test_a_function_that_fails_is_the_users_mistake():
    assert ": TypeError" in refusal(hopper, kwargs={"nois": 1})
