"""Learning is shown by learning: returns that random play cannot reach, on a real MuJoCo task."""

import numpy as np
import pytest

import arac

SETTINGS = {"warmup_steps": 500, "eval_interval": 2000, "eval_episodes": 3, "batch_size": 128, "hidden_size": 64}


def random_return(env_id, episodes=20):
    agent = arac.SAC(env_id, workers=0)
    env = arac.envs.make(agent.env)
    rng, returns = np.random.default_rng(0), []
    for seed in range(episodes):
        env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(rng.uniform(agent.env.low, agent.env.high))
            total, over = total + reward, terminated or truncated
        returns.append(total)
    return max(returns)


@pytest.mark.parametrize(
    ("kind", "steps", "settings"),
    [
        (arac.ARAC, 8000, {"actor_coefficient": 5.0, "temperature": 0.05}),
        (arac.SAC, 4000, {}),
        (arac.SACNF, 4000, {"temperature": 0.05}),
    ],
)
def test_it_learns_to_balance_far_longer_than_random_play(kind, steps, settings):
    agent = kind("InvertedPendulum-v5", seed=0, **SETTINGS, **settings).learn(steps)
    best_random = random_return("InvertedPendulum-v5")
    assert best_random < 50
    assert agent.evaluate(20).mean > 500
