"""MuJoCo tasks with a trap: a cup of walls between the start and the largest reward."""

from typing import Any

import mujoco
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.spaces import Box

from arac.envs.mujoco_models import simulation

# Centre and half sizes of each wall.
WALL_BOXES = (((13, -2, 0), (1, 0.3, 2)), ((13, 2, 0), (1, 0.3, 2)), ((14, 0, 0), (0.3, 2, 2)))
ANT_BOXES = (((11.5, 0, 1), (0.5, 3.5, 1)), ((8.5, 3, 1), (2.5, 0.5, 1)), ((8.5, -3, 1), (2.5, 0.5, 1)))
WALL_GOAL = np.array([25.0, 0.0])
WALL_PASSED, ANT_PASSED = 15.0, 12.5  # an x beyond the cup
_WALL_COLOUR = (0.5, 0.5, 0.55, 1.0)


def add_walls(spec: mujoco.MjSpec, boxes: tuple[Any, ...]) -> None:
    """Add boxes that collide with everything, whatever the model's defaults are."""
    solid = {"type": mujoco.mjtGeom.mjGEOM_BOX, "rgba": _WALL_COLOUR, "contype": 1, "conaffinity": 1, "condim": 3}
    for number, (position, size) in enumerate(boxes):
        spec.worldbody.add_geom(name=f"wall{number}", pos=position, size=size, **solid)


class DeceptiveWall(MujocoEnv):
    """A heavy ball, rewarded by minus its distance to a goal straight ahead, behind a cup that is open to the ball.

    Rolling straight ahead ends in the cup, with a return of about -790; the way around it, which loses reward at first,
    returns about -600. After the task of DvD (Parker-Holder et al., 2020).
    """

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"], "render_fps": 25}  # noqa: RUF012

    def __init__(self, **kwargs: Any) -> None:
        space = Box(-np.inf, np.inf, (6,), np.float64)
        camera: Any = {"distance": 45.0, "lookat": np.array([12.0, 0.0, 0.0]), "elevation": -60.0, "azimuth": 90.0}
        super().__init__("point.xml", 2, space, default_camera_config=camera, **kwargs)

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        return simulation(self, ball_and_cup())

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        self.do_simulation(np.clip(action, -1.0, 1.0), self.frame_skip)
        reward = -float(np.linalg.norm(self.data.qpos[:2] - WALL_GOAL))
        if self.render_mode == "human":
            self.render()
        return self._observe(), reward, False, False, {"is_success": bool(self.data.qpos[0] > WALL_PASSED)}

    def reset_model(self) -> np.ndarray:
        position = self.init_qpos + self.np_random.uniform(-0.1, 0.1, self.model.nq)
        velocity = self.init_qvel + 0.1 * self.np_random.standard_normal(self.model.nv)
        self.set_state(position, velocity)
        return self._observe()

    def _observe(self) -> np.ndarray:
        return np.concatenate([self.data.qpos, self.data.qvel])


def ball_and_cup() -> mujoco.MjSpec:
    """Return a ball of radius 0.5 on two slides and a hinge, the cup, and a mark at the goal."""
    spec = mujoco.MjSpec()
    spec.option.timestep = 0.02
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    spec.worldbody.add_light(pos=(12, 0, 30), dir=(0, 0, -1), type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)
    plane = {"type": mujoco.mjtGeom.mjGEOM_PLANE, "size": (40, 40, 1), "rgba": (0.9, 0.92, 0.9, 1)}
    spec.worldbody.add_geom(**plane, contype=0, conaffinity=0)  # the slides keep the ball at its height
    mark = {"type": mujoco.mjtGeom.mjGEOM_CYLINDER, "size": (1, 0.05, 0), "rgba": (0.3, 0.8, 0.3, 1)}
    spec.worldbody.add_geom(**mark, pos=(*WALL_GOAL, 0.05), contype=0, conaffinity=0)
    ball = spec.worldbody.add_body(name="ball", pos=(0, 0, 0.5))
    ball.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=(0.5, 0, 0), density=100, rgba=(0.8, 0.2, 0.2, 1))
    for name, axis in (("x", (1, 0, 0)), ("y", (0, 1, 0))):
        ball.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis)
        motor = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        motor.gear[0], motor.ctrlrange, motor.ctrllimited = 2000, (-1, 1), True
    ball.add_joint(name="spin", type=mujoco.mjtJoint.mjJNT_HINGE, axis=(0, 0, 1))
    add_walls(spec, WALL_BOXES)
    return spec


class AntTrap(AntEnv):
    """Ant-v5 with its position in the observation, and a cup of walls ahead of it.

    Ant is rewarded for moving along x: straight ahead, the cup stops it at x = 11. Beyond x = 12.5 it has found the way
    around the cup.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"exclude_current_positions_from_observation": False, **kwargs})

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        spec = mujoco.MjSpec.from_file(self.fullpath)
        add_walls(spec, ANT_BOXES)
        return simulation(self, spec)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "is_success": info["x_position"] > ANT_PASSED}
