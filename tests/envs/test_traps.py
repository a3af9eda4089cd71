"""PointMaze, DeceptiveWall and AntTrap: geometry, and the returns in the trap and around it."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import arac  # noqa: F401  registers them
from arac.experiments.deceptive import TRAPS
from arac.replay.episode import Episode

TASKS = ("PointMaze", "PointMazeWide", "DeceptiveWall", "AntTrap")


def play(task, policy, seed=0, **kwargs):
    """Return the observations, the return and the last info of an episode."""
    env = gymnasium.make(f"arac/{task}-v0", **kwargs)
    observation, _ = env.reset(seed=seed)
    observations, total, over = [observation], 0.0, False
    while not over:
        observation, reward, terminated, truncated, info = env.step(np.asarray(policy(observation), np.float32))
        observations.append(observation)
        total, over = total + reward, terminated or truncated
    return np.array(observations), total, info


def succeeded(task, observations):
    empty = np.zeros((0, 2), np.float32)
    return TRAPS[task].succeeded(Episode(observations, empty, empty[:, 0], False, 0.0, len(observations) - 1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task", TASKS)
def test_gymnasiums_own_checker_is_content(task):
    check_env(gymnasium.make(f"arac/{task}-v0").unwrapped, skip_render_check=True)


def towards(*target):
    return lambda position: (np.array(target) - position) / max(np.abs(np.array(target) - position).max(), 0.1)


def through_the_maze(position):
    x, y = position
    if y < -0.5:
        return towards(-0.6, -0.55)(position) if x > -0.52 else towards(-0.6, -0.4)(position)
    if y < 0.2:
        return towards(0.6, 0.15)(position) if x < 0.52 else towards(0.6, 0.3)(position)
    return towards(-0.5, 0.8)(position)


def test_a_way_through_the_maze_pays_four_times_less_loss_than_its_trap():
    observations, total, info = play("PointMaze", through_the_maze)
    assert -35 < total < -25
    assert info["is_success"]
    assert len(observations) < 40
    assert succeeded("PointMaze", observations)
    greedy, loss, info = play("PointMaze", towards(-0.5, 0.8))
    assert loss < -250
    assert greedy[-1].tolist() == pytest.approx([-0.5, -0.505], abs=0.01), "in front of the first wall"
    assert not succeeded("PointMaze", greedy)
    assert not info["is_success"]


def test_the_second_wall_is_the_better_trap():
    def to_the_second_wall(position):
        return through_the_maze(position) if position[1] < -0.49 else towards(-0.5, 0.8)(position)

    observations, loss, _ = play("PointMaze", to_the_second_wall)
    assert -140 < loss < -120
    assert observations[-1, 1] == pytest.approx(0.195)


def test_the_first_wall_of_the_wide_maze_stops_nobody_and_the_second_is_the_trap():
    greedy, loss, info = play("PointMazeWide", towards(-0.5, 0.8))
    assert greedy[-1].tolist() == pytest.approx([-0.5, 0.195], abs=0.01)
    assert -140 < loss < -120
    assert not info["is_success"]

    def around(position):
        x, y = position
        if y > 0.2:
            return towards(-0.5, 0.8)(position)
        return towards(-0.15, -0.3)(position) if y < -0.45 else towards(0.15, 0.15 if x < 0.12 else 0.3)(position)

    observations, total, info = play("PointMazeWide", around)
    assert info["is_success"]
    assert succeeded("PointMazeWide", observations)
    assert -20 < total < -14, total


@pytest.mark.parametrize(("gap", "stopped"), [(0.3, True), (0.5, True), (1.2, False)])
def test_a_wall_stops_what_crosses_it_and_slides_it_along(gap, stopped):
    env = gymnasium.make("arac/PointMaze-v0", gap=gap).unwrapped
    env.reset(seed=0)
    env._position = np.array([0.0, -0.55])
    observation, *_ = env.step(np.array([0.5, 1.0]))
    assert observation.tolist() == pytest.approx([0.05, -0.505 if stopped else -0.45])
    env._position = np.array([0.0, -0.45])
    observation, *_ = env.step(np.array([0.0, -1.0]))
    assert observation[1] == pytest.approx(-0.495 if stopped else -0.55)


@pytest.mark.parametrize("task", ["PointMaze", "DeceptivePoint"])
def test_points_are_drawn(task):
    env = gymnasium.make(f"arac/{task}-v0", render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (256, 256, 3)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) >= 4
    env.step(np.array([1.0, 1.0], np.float32))
    assert (env.render() != picture).any()


def steered(observation, target):
    return np.clip(0.2 * (np.array(target) - observation[:2]) - 0.1 * observation[3:5], -1, 1)


def around_the_cup(observation):
    x, y = observation[:2]
    if x < 11 and abs(y) < 3.5:
        return steered(observation, (12, 5))
    return steered(observation, (17, 4.5) if x < 15 else (25, 0))


def test_rolling_straight_on_ends_in_the_cup_and_the_way_around_pays_more():
    straight, caught, info = play("DeceptiveWall", lambda observation: steered(observation, (25, 0)))
    assert not succeeded("DeceptiveWall", straight)
    assert not info["is_success"]
    assert straight[-1, 0] == pytest.approx(13.2, abs=0.1), "the back of the cup is at 13.7, the ball's radius 0.5"
    around, free, info = play("DeceptiveWall", around_the_cup)
    assert succeeded("DeceptiveWall", around)
    assert info["is_success"]
    assert free > caught + 50


def test_the_ant_sees_where_it_is_and_the_cup_is_ahead():
    env = gymnasium.make("arac/AntTrap-v0").unwrapped
    observation, _ = env.reset(seed=0)
    plain = gymnasium.make("Ant-v5").unwrapped
    assert observation.shape == (plain.observation_space.shape[0] + 2,)
    assert env.model.ngeom == plain.model.ngeom + 3
    walls = [env.model.geom(f"wall{number}") for number in range(3)]
    np.testing.assert_allclose([wall.pos for wall in walls], [[11.5, 0, 1], [8.5, 3, 1], [8.5, -3, 1]])
    np.testing.assert_allclose([wall.size for wall in walls], [[0.5, 3.5, 1], [2.5, 0.5, 1], [2.5, 0.5, 1]])
    position = env.data.qpos.copy()
    position[0] = 13.0
    env.set_state(position, env.data.qvel)
    _, _, _, _, info = env.step(np.zeros(8))
    assert info["is_success"]


def test_nothing_passes_the_walls_of_the_ants_cup():
    env = gymnasium.make("arac/AntTrap-v0").unwrapped
    env.reset(seed=0)
    position, velocity = env.data.qpos.copy(), env.data.qvel.copy()
    position[0], velocity[0] = 9.0, 8.0
    env.set_state(position, velocity)
    xs = [env.step(np.zeros(8))[4]["x_position"] for _ in range(60)]
    assert max(xs) < 11.0
