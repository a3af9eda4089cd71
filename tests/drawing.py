"""An environment that draws without a graphics library, and one that cannot draw."""

import ctypes

import gymnasium
import numpy as np
from gymnasium.spaces import Box

COLOUR = 200


class Painted(gymnasium.Env):
    """Reward the first action at each step, and end after `length` steps times the second one, rescaled to 0..1.

    A frame has a bar as high as the number of the step.
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 50}  # noqa: RUF012
    observation_space = Box(-np.inf, np.inf, (1,))
    action_space = Box(-1, 1, (2,))

    def __init__(self, render_mode: str | None = None, length: int = 40, trouble: str = "") -> None:
        self.render_mode, self.length, self.trouble = render_mode, length, trouble

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.start = 0, self.np_random.random()
        return np.array([self.start], np.float32), {}

    def step(self, action):
        self.count += 1
        if self.trouble == "nan" and self.count == 3:
            return np.array([np.nan], np.float32), 0.0, False, False, {}
        if self.render_mode == "human":
            self.render()
        ended = self.count >= self.length * (action[1] + 1) / 2
        return np.array([self.start], np.float32), float(action[0]) + self.start, bool(ended), False, {}

    def render(self):
        if self.trouble == "cannot draw":
            raise RuntimeError("the paint has dried up")
        if self.trouble == "needs a package":
            raise gymnasium.error.DependencyNotInstalled("paint is not installed, run `pip install paint`")
        if (self.trouble, self.count) in {("crashes", 4), ("crashes at once", 1)}:
            ctypes.string_at(0)
        if self.render_mode == "human":  # on a virtual screen
            return None
        picture = np.full((60, 80, 3), COLOUR, np.uint8)
        picture[60 - self.count :, 30:50] = (250, 60, 20)
        return picture


class Unseen(Painted):
    """An environment without a picture."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()


for name, environment in {"Painted": Painted, "Unseen": Unseen}.items():
    gymnasium.register(f"{name}-v0", entry_point=environment, max_episode_steps=100)
