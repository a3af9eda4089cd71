"""An episode, as workers send it and replay stores it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

# random: uniform actions; explore: sampled from the policy; drift: the policy with Ornstein-Uhlenbeck noise; mode: the
# policy without noise.
Acting: TypeAlias = Literal["random", "explore", "drift", "mode"]


@dataclass(frozen=True, eq=False)
class Episode:
    """A whole episode. If it was not recorded, the three arrays are empty."""

    observations: np.ndarray  # (steps + 1, obs), float32
    actions: np.ndarray  # (steps, action), in [-1, 1]
    rewards: np.ndarray  # (steps,)
    terminated: bool  # False if the episode was truncated by its time limit
    total: float  # the undiscounted return
    steps: int

    def __len__(self) -> int:
        return self.steps
