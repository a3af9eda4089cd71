"""Support for Gymnasium's MuJoCo environments whose model is not a file."""

import mujoco
from gymnasium.envs.mujoco import MujocoEnv


def simulation(env: MujocoEnv, spec: mujoco.MjSpec) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """Return the compiled model and its data, with an off-screen buffer for pictures of the environment's size."""
    model = spec.compile()
    model.vis.global_.offwidth = max(model.vis.global_.offwidth, env.width)
    model.vis.global_.offheight = max(model.vis.global_.offheight, env.height)
    return model, mujoco.MjData(model)
