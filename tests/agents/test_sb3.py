"""Stable-Baselines3's evaluation accepts our agents; `make test-sb3` installs that package and runs this."""

import itertools

import gymnasium
import numpy as np
import pytest
from drawn_agents import drawn
from gymnasium.wrappers import TimeLimit
from helpers import Odd

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

SEEDS = range(100, 106)
TASKS = ["Pendulum-v1", "Hopper-v5"]


class Seeded(gymnasium.Wrapper):
    """Begin each episode with the next of the seeds, and ignore the seed that is passed."""

    def __init__(self, env):
        super().__init__(env)
        self.seeds = itertools.cycle(SEEDS)

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=next(self.seeds), options=options)


@pytest.mark.parametrize("env_id", TASKS)
def test_one_environment_gives_the_mean_of_ours_on_the_same_seeds(env_id):
    agent = drawn("arac", env_id)
    theirs = evaluate_policy(agent, Monitor(Seeded(gymnasium.make(env_id))), n_eval_episodes=len(SEEDS))
    ours = agent.evaluate(reset_seeds=SEEDS)
    np.testing.assert_allclose(theirs, (ours.mean, ours.std), rtol=1e-5)


@pytest.mark.parametrize("env_id", TASKS)
def test_a_vector_of_environments_does_too(env_id):
    agent = drawn("arac", env_id)
    returns, lengths = evaluate_policy(
        agent,
        make_vec_env(env_id, n_envs=len(SEEDS), seed=SEEDS[0]),
        n_eval_episodes=len(SEEDS),
        return_episode_rewards=True,
    )
    ours = agent.evaluate(reset_seeds=SEEDS)
    assert sorted(lengths) == sorted(ours.lengths.tolist())
    np.testing.assert_allclose(np.mean(returns), ours.mean, rtol=1e-4)


def test_every_member_is_taken_too_and_noise_is_theirs_to_choose():
    agent = drawn("arac", "Pendulum-v1")
    env = Monitor(Seeded(gymnasium.make("Pendulum-v1")))
    means = [evaluate_policy(member, env, n_eval_episodes=6, deterministic=True)[0] for member in agent.population]
    assert means[agent.state.champion] == pytest.approx(agent.evaluate(reset_seeds=SEEDS).mean, rel=1e-5)
    assert len(set(means)) == len(agent.population)
    noisy = [evaluate_policy(agent, env, n_eval_episodes=1, deterministic=False)[0] for _ in range(2)]
    assert noisy[0] != noisy[1]


def test_dictionaries_of_observations_are_taken():
    agent = drawn("sac", "Odd-v0", kwargs={"observations": "dict"})
    env = make_vec_env(lambda: TimeLimit(Odd(observations="dict"), 5), n_envs=3)
    assert evaluate_policy(agent, env, n_eval_episodes=3) == (0.0, 0.0)
