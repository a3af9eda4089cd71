"""The paper's two humanoids against MuJoCo's own numbers, at random states."""

import os
import subprocess
import sys
from ctypes.util import find_library

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from arac.envs import tasks

RLLAB, SPARSE = "arac/HumanoidRllab-v0", "arac/SparseHumanoid-v0"


tasks.register()


def made(env_id, **kwargs):
    return gymnasium.make(env_id, **kwargs)


def played(env, policy, episodes):
    """Return the returns and lengths of whole episodes."""
    returns, lengths = [], []
    for seed in range(episodes):
        env.reset(seed=seed)
        rng, total, steps, over = np.random.default_rng(seed), 0.0, 0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(policy(rng))
            total, steps, over = total + reward, steps + 1, terminated or truncated
        returns.append(total)
        lengths.append(steps)
    return np.array(returns), np.array(lengths)


def still(env):
    return lambda rng: np.zeros(env.action_space.shape, np.float32)


def at_random(env):
    space = env.action_space
    return lambda rng: rng.uniform(space.low, space.high).astype(np.float32)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("env_id", [RLLAB, SPARSE])
def test_gymnasiums_own_checker_is_content(env_id):
    check_env(made(env_id).unwrapped, skip_render_check=True)


@pytest.mark.skipif(find_library("OSMesa") is None, reason="drawing without a screen needs Debian's libosmesa6")
@pytest.mark.parametrize("env_id", [RLLAB, SPARSE])
def test_it_can_be_looked_at(env_id):
    """The picture is drawn in a separate process, because MuJoCo chooses the renderer on import."""
    script = f"""
import gymnasium, numpy as np, arac
env = gymnasium.make({env_id!r}, render_mode="rgb_array", width=160, height=120)
env.reset(seed=0)
standing = env.render()
assert standing.shape == (120, 160, 3) and standing.dtype == np.uint8
skin = lambda picture: (picture[..., 0] > picture[..., 2] + 40).sum()  # the body is orange, all else is not
assert skin(standing) > 50
for _ in range(20):
    env.step(env.action_space.high)
assert (env.render() != standing).any()
env.close()
"""
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "MUJOCO_GL": "osmesa"}, check=True)


@pytest.mark.parametrize(
    ("env_id", "observations", "actions", "bound"), [(RLLAB, 142, 21, 1.0), (SPARSE, 348, 17, 0.4)]
)
def test_dimensions_and_horizon(env_id, observations, actions, bound):
    env = made(env_id)
    assert env.observation_space.shape == (observations,)
    assert env.action_space.shape == (actions,)
    np.testing.assert_allclose(env.action_space.high, bound)
    np.testing.assert_allclose(env.action_space.low, -bound)
    assert env.spec.max_episode_steps == 1000


@pytest.mark.parametrize("env_id", [RLLAB, SPARSE])
def test_the_same_seed_gives_the_same_trajectory(env_id):
    def trajectory():
        env = made(env_id)
        observations, rng = [env.reset(seed=4)[0]], np.random.default_rng(0)
        for _ in range(30):
            observations.append(env.step(at_random(env)(rng))[0])
        return np.array(observations)

    np.testing.assert_array_equal(trajectory(), trajectory())


def random_states(env, count, seed=0):
    """Lead the environment through distant states, by actions of random strength from random positions."""
    rng = np.random.default_rng(seed)
    simulated = env.unwrapped
    for _ in range(count):
        env.reset(seed=int(rng.integers(2**31)))
        qpos = simulated.init_qpos + 0.1 * rng.standard_normal(simulated.model.nq)
        qpos[:2] += rng.uniform(-1.5, 1.5, 2)
        qpos[2] = rng.uniform(0.7, 2.1)
        qpos[3:7] /= np.linalg.norm(qpos[3:7])
        simulated.set_state(qpos, rng.standard_normal(simulated.model.nv))
        for _ in range(int(rng.integers(1, 4))):
            action = rng.uniform(env.action_space.low, env.action_space.high).astype(np.float32)
            outcome = env.unwrapped.step(action)
        yield action, *outcome


def body_sum(model, values):
    """Return the mean over bodies, weighted by mass."""
    return sum(model.body_mass[b] * values[b] for b in range(model.nbody)) / model.body_mass.sum()


def test_sparse_humanoid_pays_for_the_distance_of_the_centre_of_mass_and_nothing_else():
    env = made(SPARSE)
    paid = []
    for _, _, reward, terminated, _, info in random_states(env, 200):
        model, data = env.unwrapped.model, env.unwrapped.data
        centre = body_sum(model, data.xipos)[0]
        assert info["centre_of_mass_x"] == pytest.approx(centre)
        assert reward == (1.0 if abs(centre) >= 0.6 else 0.0)
        assert terminated == (not 1 < data.qpos[2] < 2)
        paid.append((reward, np.sign(centre)))
    assert {(1.0, 1.0), (1.0, -1.0)} < set(paid), "on either side"
    assert any(reward == 0 for reward, _ in paid)


@pytest.mark.parametrize("policy", [still, at_random])
def test_sparse_humanoid_pays_nothing_to_those_who_do_not_walk(policy):
    env = made(SPARSE)
    returns, _ = played(env, policy(env), 50)
    assert (returns == 0).all()


def test_sparse_humanoid_moves_and_sees_as_gymnasiums_does():
    sparse, dense = made(SPARSE), made("Humanoid-v5")
    np.testing.assert_array_equal(sparse.reset(seed=1)[0], dense.reset(seed=1)[0])
    rng = np.random.default_rng(0)
    for _ in range(20):
        action = at_random(sparse)(rng)
        mine, others = sparse.step(action), dense.step(action)
        np.testing.assert_array_equal(mine[0], others[0])
        assert mine[2:4] == others[2:4]


def test_rllabs_reward_recomputed_from_the_bodies():
    """The centre of mass has the velocity that follows from the bodies' velocities."""
    env = made(RLLAB)
    for action, _, reward, terminated, _, info in random_states(env, 100):
        model, data = env.unwrapped.model, env.unwrapped.data
        velocities = np.zeros((model.nbody, 6))
        for body in range(model.nbody):
            mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, velocities[body], 0)
        offsets = data.xipos - data.xpos
        linear = velocities[:, 3:] + np.cross(velocities[:, :3], offsets)
        forward, sideways, upwards = body_sum(model, linear)
        control = data.ctrl / 0.4
        np.testing.assert_allclose(control, action, rtol=1e-6)
        expected = (
            forward + 0.2
            - 0.5e-3 * (control**2).sum()
            - 0.5e-5 * (np.clip(data.cfrc_ext, -1, 1) ** 2).sum()
            - 0.5e-2 * (sideways**2 + upwards**2)
        )  # fmt: skip
        assert reward == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert reward == pytest.approx(sum(info.values()))
        assert terminated == (data.qpos[2] < 0.8 or data.qpos[2] > 2.0)


def test_rllabs_observation_is_what_it_says():
    env = made(RLLAB)
    for _, observation, *_ in random_states(env, 20):
        model, data = env.unwrapped.model, env.unwrapped.data
        np.testing.assert_array_equal(observation[:28], data.qpos)
        np.testing.assert_array_equal(observation[28:55], data.qvel)
        np.testing.assert_array_equal(observation[55:139], np.clip(data.cfrc_ext, -1, 1).ravel())
        np.testing.assert_allclose(observation[139:], body_sum(model, data.xipos), rtol=1e-6, atol=1e-8)


def test_rllabs_reset_noise():
    env = made(RLLAB).unwrapped
    drawn = np.array([env.reset(seed=seed)[0][:55] for seed in range(400)])
    noise = drawn - np.concatenate([env.init_qpos, env.init_qvel])
    scale = noise.std(0)
    np.testing.assert_allclose(scale[:28], 0.01, rtol=0.2)
    np.testing.assert_allclose(scale[28:], 0.1, rtol=0.2)
    assert np.abs(noise.mean(0) / scale).max() < 5 / np.sqrt(400)


def test_rllabs_body():
    model = made(RLLAB).unwrapped.model
    assert (model.nq, model.nv, model.nu, model.nbody) == (28, 27, 21, 14)
    assert (model.opt.timestep, model.opt.integrator) == (0.002, mujoco.mjtIntegrator.mjINT_RK4)
    np.testing.assert_allclose(model.geom_solref, [[0.02, 1]] * model.ngeom)
    np.testing.assert_allclose(model.geom_solimp[:, :3], [[0.8, 0.8, 0.01]] * model.ngeom)
    np.testing.assert_allclose(model.geom("floor").friction, [1, 0.005, 0.0001])
    np.testing.assert_allclose(np.degrees(model.joint("left_hip_y").range), [-120, 20])
    np.testing.assert_allclose(np.degrees(model.joint("right_hip_y").range), [-110, 20])
    gears = {model.actuator(i).name: model.actuator_gear[i, 0] for i in range(model.nu)}
    assert gears["abdomen_z"] == gears["left_hip_x"] == gears["right_hip_z"] == gears["left_elbow"] == 200
    assert gears["right_hip_y"] == 600
    assert gears["left_knee"] == 400
    assert gears["left_ankle_x"] == gears["right_ankle_y"] == gears["right_shoulder2"] == 100
    np.testing.assert_allclose(model.actuator_ctrlrange, [[-0.4, 0.4]] * 21)


@pytest.mark.parametrize(("side", "outwards"), [("right", -1), ("left", 1)])
def test_rllabs_feet(side, outwards):
    model = made(RLLAB).unwrapped.model
    np.testing.assert_allclose(model.body(f"{side}_foot").pos, [0, 0, -0.39])
    for name, position, axis, stiffness, armature in (
        ("ankle_y", [0, 0, 0.08], [0, 1, 0], 4, 0.0008),
        ("ankle_x", [0, 0, 0.04], [1, 0, 0.5], 1, 0.0006),
    ):
        joint = model.joint(f"{side}_{name}")
        np.testing.assert_allclose(joint.pos, position)
        np.testing.assert_allclose(joint.axis, np.array(axis) / np.linalg.norm(axis))
        np.testing.assert_allclose(np.degrees(joint.range), [-50, 50])
        assert (joint.stiffness[0], joint.damping[0], joint.armature[0]) == (stiffness, 1, armature)
    for number, heel, toe in (
        (1, [-0.07, 0.02 * outwards, 0], [0.14, 0.04 * outwards, 0]),
        (2, [-0.07, 0, 0], [0.14, -0.02 * outwards, 0]),
    ):
        geom = model.geom(f"{side}_foot{number}")
        np.testing.assert_allclose(geom.pos, np.add(heel, toe) / 2, atol=1e-9)
        np.testing.assert_allclose(geom.size[:2], [0.027, np.linalg.norm(np.subtract(toe, heel)) / 2])
        assert (geom.condim[0], geom.margin[0]) == (1, 0.001)


@pytest.mark.parametrize(("policy", "length", "payoff", "spread"), [(still, 86, 23, 7), (at_random, 60, 15, 5)])
def test_rllabs_humanoid_falls_as_it_should(policy, length, payoff, spread):
    """Mean length and return are close to reference values; those of single episodes are up to twice as high."""
    env = made(RLLAB)
    returns, lengths = played(env, policy(env), 60)
    print(f"{policy.__name__}: {lengths.mean():.1f} steps, return {returns.mean():.1f}, spread {returns.std():.1f}")
    assert lengths.mean() == pytest.approx(length, abs=4)
    assert returns.mean() == pytest.approx(payoff, abs=spread)
