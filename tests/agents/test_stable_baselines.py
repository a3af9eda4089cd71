"""Arguments of Stable-Baselines3 are understood, or answered with what to write here."""

import inspect
import re

import gymnasium
import numpy as np
import pytest
from helpers import SMALL

import arac
from arac.agents import stable_baselines
from arac.agents.classes import AGENTS


@pytest.mark.parametrize("arguments", [("MlpPolicy", "Pendulum-v1"), ("MlpPolicy",), ("Pendulum-v1", 0)])
def test_a_policy_in_the_first_place_is_refused_with_the_call(arguments):
    with pytest.raises(arac.UserError, match=r"Pass the environment as the only argument without a name: SAC\(env\)"):
        arac.SAC(*arguments)


@pytest.mark.parametrize("name", stable_baselines.NAMES)
def test_a_setting_of_another_name_is_answered(name):
    for kind in AGENTS.values():
        assert name not in kind.algorithm.config.__dataclass_fields__
    with pytest.raises(arac.UserError, match=f"TD3 has no setting '{name}': {re.escape(stable_baselines.NAMES[name])}"):
        arac.TD3("Pendulum-v1", **{name: 1})


def test_the_answers_name_what_there_is():
    fields = {field for kind in AGENTS.values() for field in kind.algorithm.config.__dataclass_fields__}
    fields |= set(inspect.signature(arac.SAC).parameters)
    named = [match for answer in stable_baselines.NAMES.values() for match in re.findall(r"it is (?!an)(\w+)", answer)]
    assert len(named) == 5
    assert set(named) <= fields


def test_total_timesteps_spaces_and_num_timesteps():
    agent = arac.SAC("Pendulum-v1", **{**SMALL, "warmup_steps": 100})
    assert agent.num_timesteps == 0
    agent.learn(total_timesteps=200)
    assert agent.num_timesteps == agent.state.env_steps >= 200
    env = gymnasium.make("Pendulum-v1")
    assert (agent.observation_space, agent.action_space) == (env.observation_space, env.action_space)
    assert agent.action_space.contains(agent.predict(np.zeros(3, np.float32))[0])
    for steps in ({}, {"total_steps": 1, "total_timesteps": 1}):
        with pytest.raises(arac.UserError, match="learn needs total_steps"):
            agent.learn(**steps)
