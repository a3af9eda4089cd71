"""The tasks with a short name: the paper's eight, two of which Gymnasium does not have, older variants, and ours."""

from typing import Any

import gymnasium

from arac.envs import deceptive

# What each short name stands for.
TASKS = {
    "Ant": "Ant-v5",
    "HalfCheetah": "HalfCheetah-v5",
    "Hopper": "Hopper-v5",
    "Walker2d": "Walker2d-v5",
    "Humanoid": "Humanoid-v5",
    "HumanoidStandup": "HumanoidStandup-v5",
    "HumanoidRllab": "arac/HumanoidRllab-v0",
    "SparseHumanoid": "arac/SparseHumanoid-v0",
    "AntV2Like": "arac/AntV2Like-v0",
    "Walker2dV2Like": "arac/Walker2dV2Like-v0",
    "DeceptivePoint": "arac/DeceptivePoint-v0",
}
# Which row of the paper's table a variant takes.
VARIANTS = {"AntV2Like": "Ant", "Walker2dV2Like": "Walker2d"}


def full_name(name: str) -> str:
    """What Gymnasium calls a task."""
    return TASKS.get(name, name)


def register() -> None:
    """Makes our environments known to Gymnasium; again does nothing."""
    ours: dict[str, tuple[str, dict[str, Any]]] = {
        "arac/HumanoidRllab-v0": ("arac.envs.humanoids:HumanoidRllab", {}),
        "arac/SparseHumanoid-v0": ("arac.envs.humanoids:SparseHumanoid", {}),
        # As Gym's v2 was: with contact forces among the observations; with less friction on the right foot.
        "arac/AntV2Like-v0": ("gymnasium.envs.mujoco.ant_v4:AntEnv", {"use_contact_forces": True}),
        "arac/Walker2dV2Like-v0": ("gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv", {"xml_file": "walker2d.xml"}),
    }
    for env_id, (entry_point, kwargs) in ours.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point, max_episode_steps=1000, kwargs=kwargs)
    if TASKS["DeceptivePoint"] not in gymnasium.registry:
        gymnasium.register(
            TASKS["DeceptivePoint"], "arac.envs.deceptive:DeceptivePoint", max_episode_steps=deceptive.HORIZON
        )
