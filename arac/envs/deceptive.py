"""A task with a trap: what pays first is not what pays most."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

SPEED = 0.03  # the longest way along either axis in one step
NEAR, NEAR_REWARD = 0.5, 0.2  # the field on the right begins here and pays this per step
FAR, FAR_REWARD = -0.8, 1.0  # the one on the left
HORIZON = 200


class DeceptivePoint(gymnasium.Env):
    """A point in the middle of a room whose right and left ends pay, and nothing between them does.

    The trap is the right end: it begins closer, so most ways out of the middle find it first, and every way back leads
    through a stretch that pays nothing. Staying there pays at most 0.2 a step. The optimum is the left end, further
    away, with 1 a step: 173 in an episode against 37 for walking straight into the trap.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self) -> None:
        self.observation_space = Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._position = self.np_random.uniform(-0.05, 0.05, 2)
        return self._position.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._position = np.clip(self._position + SPEED * np.clip(action, -1, 1), -1, 1)
        return self._position.astype(np.float32), reward(float(self._position[0])), False, False, {}


def reward(x: float) -> float:
    return FAR_REWARD if x < FAR else NEAR_REWARD if x > NEAR else 0.0
