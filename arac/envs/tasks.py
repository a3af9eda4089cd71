"""The tasks with a short name: the paper's eight, two of which Gymnasium does not have, older variants, and ours."""

from typing import Any

import gymnasium

# The Gymnasium id of each short name.
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
    "PointMaze": "arac/PointMaze-v0",
    "PointMazeWide": "arac/PointMazeWide-v0",
    "DeceptiveWall": "arac/DeceptiveWall-v0",
    "AntTrap": "arac/AntTrap-v0",
}
# The row of the paper's table that applies to a variant.
VARIANTS = {"AntV2Like": "Ant", "Walker2dV2Like": "Walker2d"}


def full_name(name: str) -> str:
    """Return the Gymnasium id of a short name; any other name is returned as it is."""
    return TASKS.get(name, name)


def register() -> None:
    """Register our environments with Gymnasium, unless they are registered already."""
    # Entry point, horizon and arguments of each.
    ours: dict[str, tuple[str, int, dict[str, Any]]] = {
        "HumanoidRllab": ("arac.envs.humanoids:HumanoidRllab", 1000, {}),
        "SparseHumanoid": ("arac.envs.humanoids:SparseHumanoid", 1000, {}),
        # As in Gym's v2: Ant's observations include contact forces, and Walker2d's right foot has less friction.
        "AntV2Like": ("gymnasium.envs.mujoco.ant_v4:AntEnv", 1000, {"use_contact_forces": True}),
        "Walker2dV2Like": ("gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv", 1000, {"xml_file": "walker2d.xml"}),
        "DeceptivePoint": ("arac.envs.deceptive:DeceptivePoint", 200, {}),
        "PointMaze": ("arac.envs.deceptive:PointMaze", 200, {}),
        "PointMazeWide": ("arac.envs.deceptive:PointMaze", 200, {"gap": 0.9}),
        "DeceptiveWall": ("arac.envs.traps:DeceptiveWall", 50, {}),
        "AntTrap": ("arac.envs.traps:AntTrap", 1000, {}),
    }
    for name, (entry_point, horizon, kwargs) in ours.items():
        if TASKS[name] not in gymnasium.registry:
            gymnasium.register(TASKS[name], entry_point, max_episode_steps=horizon, kwargs=kwargs)
