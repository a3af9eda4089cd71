"""DeceptivePoint: its rewards, and that its trap is one."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import arac  # noqa: F401  registers it

ENV = "arac/DeceptivePoint-v0"


def payoff(direction, seed=0):
    """Return the return of walking in one direction at a constant speed."""
    env = gymnasium.make(ENV)
    env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        _, reward, terminated, truncated, _ = env.step(np.array(direction, np.float32))
        total, over = total + reward, terminated or truncated
    return total


@pytest.mark.filterwarnings("ignore")
def test_gymnasiums_own_checker_is_content():
    check_env(gymnasium.make(ENV).unwrapped)


def test_the_optimum_is_far_and_the_trap_is_near():
    """At full speed from the middle, 0.8 takes about 27 steps of 200, 0.5 about 17; each field pays for the rest."""
    far = [payoff((-1, 0), seed) for seed in range(20)]
    near = [payoff((1, 0), seed) for seed in range(20)]
    assert np.mean(far) == pytest.approx(200 - 0.8 / 0.03, abs=1)
    assert np.mean(near) == pytest.approx(0.2 * (200 - 0.5 / 0.03), abs=0.3)
    assert max(near) < 0.2 * 200 < min(far)


def test_no_straight_way_pays_more_than_the_straight_way_to_the_left():
    angles = np.linspace(0, 2 * np.pi, 73)
    ways = [(speed * np.cos(angle), speed * np.sin(angle)) for angle in angles for speed in (0.3, 1.0)]
    assert max(payoff(way) for way in ways) <= payoff((-1, 0)) + 1e-9


def test_between_the_fields_nothing_pays():
    env = gymnasium.make(ENV).unwrapped
    env.reset(seed=0)
    paid = {}
    for x in np.linspace(-0.97, 0.97, 195):
        env._position = np.array([x, 0.3])
        paid[x] = env.step(np.zeros(2))[1]
    assert all(reward == (1.0 if x < -0.8 else 0.2 if x > 0.5 else 0.0) for x, reward in paid.items())


def test_random_actions_find_the_trap_more_often_than_the_optimum():
    env, rng = gymnasium.make(ENV), np.random.default_rng(0)
    near = far = 0
    for seed in range(300):
        env.reset(seed=seed)
        rewards = {env.step(rng.uniform(-1, 1, 2).astype(np.float32))[1] for _ in range(200)}
        near, far = near + (0.2 in rewards), far + (1.0 in rewards)
    assert far < 0.02 * 300 < near


def test_walls_and_actions_beyond_the_bounds():
    env = gymnasium.make(ENV).unwrapped
    env.reset(seed=0)
    for _ in range(100):
        observation, *_ = env.step(np.array([5.0, -5.0]))
    np.testing.assert_array_equal(observation, [1, -1])
    start = env.reset(seed=0)[0]
    np.testing.assert_allclose(env.step(np.array([5.0, -5.0]))[0] - start, [0.03, -0.03], atol=1e-7)


def test_the_same_seed_gives_the_same_trajectory():
    starts = [gymnasium.make(ENV).reset(seed=seed)[0].tolist() for seed in (1, 1, 2)]
    assert starts[0] == starts[1] != starts[2]
    assert np.abs(starts).max() <= 0.05
