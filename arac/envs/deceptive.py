"""Tasks of a point in a room with a trap: the nearest reward is not the largest."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box

PIXELS = 256  # along a side of a picture
_FLOOR, _WALL, _GOAL, _TRAP, _POINT = (245, 245, 240), (70, 70, 80), (130, 200, 130), (250, 200, 130), (200, 40, 40)

Box2 = tuple[float, float, float, float]  # left, bottom, right, top
_HALF = 0.005  # half of a wall's thickness


class PointEnv(gymnasium.Env, ABC):
    """A point in the square from -1 to 1. A subclass defines how it moves and the reward of its position."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    walls: tuple[Box2, ...] = ()
    goals: tuple[Box2, ...] = ()
    traps: tuple[Box2, ...] = ()

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self.render_mode = render_mode
        self._position = np.zeros(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._position = self._start()
        return self._position.astype(np.float32), {}

    @abstractmethod
    def _start(self) -> np.ndarray:
        """Draw the start position of an episode."""

    def render(self) -> np.ndarray | None:
        if self.render_mode != "rgb_array":
            return None
        picture = np.full((PIXELS, PIXELS, 3), _FLOOR, np.uint8)
        for boxes, colour in ((self.traps, _TRAP), (self.goals, _GOAL), (self.walls, _WALL)):
            for left, bottom, right, top in boxes:
                picture[_pixels(-top, -bottom), _pixels(left, right)] = colour
        x, y = (self._position + 1) / 2 * (PIXELS - 1)
        rows, columns = np.ogrid[:PIXELS, :PIXELS]
        picture[(columns - x) ** 2 + (rows - (PIXELS - 1 - y)) ** 2 <= (PIXELS / 40) ** 2] = _POINT
        return picture


def _pixels(low: float, high: float) -> slice:
    """Return the pixels between two coordinates, at least two."""
    first = int((low + 1) / 2 * PIXELS)
    return slice(first, max(int((high + 1) / 2 * PIXELS), first + 2))


class DeceptivePoint(PointEnv):
    """A point that starts in the middle of a room and is rewarded only at its right and left ends.

    The trap is the right end: it is closer, so most ways out of the middle reach it first, and every way back leads
    through a stretch without reward. Staying there gives at most 0.2 a step. The optimum is the left end, further
    away, with 1 a step: a return of 173, against 37 for going straight into the trap.
    """

    SPEED: ClassVar[float] = 0.03  # the largest move along either axis in one step
    NEAR: ClassVar[float] = 0.5  # the left edge of the trap
    NEAR_REWARD: ClassVar[float] = 0.2
    FAR: ClassVar[float] = -0.8
    FAR_REWARD: ClassVar[float] = 1.0
    goals = ((-1.0, -1.0, FAR, 1.0),)
    traps = ((NEAR, -1.0, 1.0, 1.0),)

    def _start(self) -> np.ndarray:
        return self.np_random.uniform(-0.05, 0.05, 2)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._position = np.clip(self._position + self.SPEED * np.clip(action, -1, 1), -1, 1)
        x = self._position[0]
        reward = self.FAR_REWARD if x < self.FAR else self.NEAR_REWARD if x > self.NEAR else 0.0
        return self._position.astype(np.float32), reward, False, False, {"is_success": bool(x < self.FAR)}


class PointMaze(PointEnv):
    """A maze of two walls, with gaps at opposite ends, between the start at the bottom and the goal at the top left.

    The reward is minus the straight-line distance to the goal's centre, so that it falls on the way through either gap:
    staying in front of the first wall returns about -260, in front of the second about -127. A way through both returns
    about -30, and ends the episode at the goal. The geometry is that of QDax's maze; a wider `gap` makes it easier.
    PointMazeWide has gaps of 0.9: its first wall stops no agent, and the second is the trap.
    """

    SPEED: ClassVar[float] = 0.1
    GOAL: ClassVar[tuple[float, float]] = (-0.5, 0.8)
    PASSED: ClassVar[float] = 0.25  # a height beyond both walls
    goals = ((GOAL[0] - 0.05, GOAL[1] - 0.05, GOAL[0] + 0.05, GOAL[1] + 0.05),)

    def __init__(self, gap: float = 0.5, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        # The height of each wall, and the x of its left and right end.
        self._walls = ((-0.5, -1.0 + gap, 1.0), (0.2, -1.0, 1.0 - gap))
        self.walls = tuple((left, height - _HALF, right, height + _HALF) for height, left, right in self._walls)

    def _start(self) -> np.ndarray:
        return np.array([self.np_random.uniform(-0.1, 0.1), self.np_random.uniform(-1.0, -0.7)])

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        wanted = np.clip(self._position + self.SPEED * np.clip(action, -1, 1), -1, 1)
        self._position = self._stopped(self._position, wanted)
        distance = np.abs(self._position - self.GOAL)
        reached = bool((distance <= 0.05).all())
        reward = -float(np.hypot(*distance))
        return self._position.astype(np.float32), reward, reached, False, {"is_success": reached}

    def _stopped(self, before: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Return the position after a step, which slides along the first wall in its way."""
        upwards = wanted[1] > before[1]
        for height, left, right in sorted(self._walls, reverse=not upwards):
            face = height - _HALF if upwards else height + _HALF
            if (before[1] <= face < wanted[1]) if upwards else (wanted[1] < face <= before[1]):
                x = before[0] + (wanted[0] - before[0]) * (face - before[1]) / (wanted[1] - before[1])
                if left <= x <= right:
                    return np.array([wanted[0], face])
        return wanted
