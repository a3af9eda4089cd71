"""Every algorithm learns to swing up a pendulum or a comparable task, which random actions do not solve."""

import numpy as np
import pytest

import arac
from arac import envs
from arac.callbacks import StopAtReturn

pytestmark = pytest.mark.slow

SETTINGS = {
    "warmup_steps": 1000,
    "eval_interval": 1000,
    "eval_episodes": 10,
    "batch_size": 128,
    "hidden_size": 64,
    "learning_rate": 1e-3,
}
# The authors' rates are for millions of steps.
ERL = {"critic_learning_rate": 1e-3, "synchronisation_interval": 1, "tau": 0.005}


def best_random_return(spec, episodes=50):
    env, rng = envs.make(spec), np.random.default_rng(0)

    def play(seed):
        env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(rng.uniform(spec.low, spec.high))
            total, over = total + reward, terminated or truncated
        return total

    return max(play(seed) for seed in range(episodes))


@pytest.mark.parametrize(
    ("kind", "steps", "settings"),
    [
        (arac.ARAC, 9000, {"actor_coefficient": 5.0}),
        (arac.SAC, 8000, {}),
        (arac.SAC, 8000, {"critic": "value", "temperature": 0.2}),
        (arac.SACNF, 8000, {}),
        (arac.TD3, 14_000, {}),
        (arac.CEMTD3, 20_000, {}),
        pytest.param(arac.ERL, 30_000, ERL, marks=pytest.mark.smoke),
        pytest.param(arac.CERL, 50_000, {}, marks=pytest.mark.smoke),
    ],
)
def test_it_learns_what_random_play_never_reaches(kind, steps, settings):
    """The return is reached at some evaluation within these steps.

    The last evaluation alone would depend on chance, because a return fluctuates and processors round differently.
    """
    agent = kind("Pendulum-v1", seed=0, **SETTINGS, **settings).learn(steps, callback=StopAtReturn(-200))
    assert best_random_return(agent.env) < -500
    assert agent.evaluate(20).mean > -300
