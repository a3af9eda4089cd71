"""The paper's two humanoids that Gymnasium does not have: SparseHumanoid, and rllab's Humanoid."""

from typing import Any

import mujoco
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.envs.mujoco.humanoid_v5 import DEFAULT_CAMERA_CONFIG, HumanoidEnv
from gymnasium.spaces import Box

from arac.envs.mujoco_models import simulation

# The factor by which each motor of rllab's body multiplies its control.
_GEARS = {
    "abdomen_x": 200, "abdomen_y": 200, "abdomen_z": 200, "hip_x": 200, "hip_z": 200, "hip_y": 600, "knee": 400,
    "ankle_x": 100, "ankle_y": 100, "shoulder1": 100, "shoulder2": 100, "elbow": 200,
}  # fmt: skip
_CONTROL = 0.4  # the largest control


class SparseHumanoid(HumanoidEnv):
    """Humanoid-v5 with a reward of 1 for a step with the centre of mass at least 0.6 from the origin along x, else 0.

    The paper's wording suggests a height, but the centre of mass is higher than that whenever the body is upright, so
    that a height would reward standing still. The authors' public task takes the distance from the origin along x.
    """

    def __init__(self, distance: float = 0.6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.distance = distance

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = super().step(action)
        masses = self.model.body_mass
        centre = float(masses @ self.data.xipos[:, 0] / masses.sum())
        reached = abs(centre) >= self.distance
        return observation, float(reached), terminated, truncated, {**info, "centre_of_mass_x": centre}


class HumanoidRllab(MujocoEnv):
    """rllab's Humanoid in current MuJoCo: its body, observation, reward and termination."""

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"], "render_fps": 125}  # noqa: RUF012

    def __init__(self, **kwargs: Any) -> None:
        space = Box(-np.inf, np.inf, (142,), np.float64)
        camera: Any = DEFAULT_CAMERA_CONFIG
        super().__init__("humanoid.xml", 4, space, default_camera_config=camera, **kwargs)

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        return simulation(self, rllab_body(self.fullpath))

    def _set_action_space(self) -> Box:
        self.action_space = Box(-1.0, 1.0, (self.model.nu,), np.float32)
        return self.action_space

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        self.do_simulation(_CONTROL * np.asarray(action, np.float64), self.frame_skip)
        terms = self._reward_terms(action)
        height = self.data.qpos[2]
        if self.render_mode == "human":
            self.render()
        return self._observation(), sum(terms.values()), bool(height < 0.8 or height > 2.0), False, terms

    def _reward_terms(self, action: np.ndarray) -> dict[str, float]:
        mujoco.mj_subtreeVel(self.model, self.data)
        forward, sideways, upwards = self.data.subtree_linvel[1]
        return {
            "reward_forward": float(forward),
            "reward_alive": 0.2,
            "reward_control": -0.5e-3 * float(np.square(action).sum()),
            "reward_impact": -0.5e-5 * float(np.square(self._contact_forces()).sum()),
            "reward_deviation": -0.5e-2 * float(sideways**2 + upwards**2),
        }

    def _contact_forces(self) -> np.ndarray:
        return np.clip(self.data.cfrc_ext, -1, 1).ravel()

    def _observation(self) -> np.ndarray:
        data = self.data
        return np.concatenate([data.qpos, data.qvel, self._contact_forces(), data.subtree_com[1]])

    def reset_model(self) -> np.ndarray:
        qpos = self.init_qpos + 0.01 * self.np_random.standard_normal(self.model.nq)
        qvel = self.init_qvel + 0.1 * self.np_random.standard_normal(self.model.nv)
        self.set_state(qpos, qvel)
        return self._observation()


def rllab_body(path: str) -> mujoco.MjSpec:
    """Return rllab's humanoid, made from Gymnasium's: feet with ankles, stronger motors, other contact parameters."""
    body = mujoco.MjSpec.from_file(path)
    body.option.timestep = 0.002
    body.joint("left_hip_y").range = [-120, 20]
    body.geom("floor").friction = [1, 0.005, 0.0001]
    for side, outwards in (("right", -1), ("left", 1)):
        _add_foot(body, side, outwards)
    for geom in body.geoms:
        geom.solref[:2] = 0.02, 1
        geom.solimp[:3] = 0.8, 0.8, 0.01
    for motor in body.actuators:
        motor.gear[0] = _GEARS[motor.name.removeprefix("right_").removeprefix("left_")]
    return body


def _add_foot(body: mujoco.MjSpec, side: str, outwards: int) -> None:
    """Replace the ball of a foot by two capsules, on an ankle with two hinges."""
    foot = body.body(f"{side}_foot")
    body.delete(body.geom(f"{side}_foot"))
    foot.pos = [0, 0, -0.39]
    hinges = {"ankle_y": ((0, 0, 0.08), (0, 1, 0), 4, 0.0008), "ankle_x": ((0, 0, 0.04), (1, 0, 0.5), 1, 0.0006)}
    for name, (position, axis, stiffness, armature) in hinges.items():
        joint = foot.add_joint(
            name=f"{side}_{name}", type=mujoco.mjtJoint.mjJNT_HINGE, pos=position, axis=axis, armature=armature,
            range=[-50, 50], limited=True,
        )  # fmt: skip
        joint.stiffness[0], joint.damping[0] = stiffness, 1
        motor = body.add_actuator(name=f"{side}_{name}", target=f"{side}_{name}", trntype=mujoco.mjtTrn.mjTRN_JOINT)
        motor.ctrlrange, motor.ctrllimited = [-_CONTROL, _CONTROL], True
    toes = ((-0.07, 0.02 * outwards, 0), (0.14, 0.04 * outwards, 0)), ((-0.07, 0, 0), (0.14, -0.02 * outwards, 0))
    for number, (heel, toe) in enumerate(toes, 1):
        foot.add_geom(
            name=f"{side}_foot{number}", type=mujoco.mjtGeom.mjGEOM_CAPSULE, fromto=[*heel, *toe],
            size=[0.027, 0, 0], condim=1, margin=0.001, material="geom", rgba=[0.8, 0.6, 0.4, 1],
        )  # fmt: skip
