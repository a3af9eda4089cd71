"""A whole episode, as workers send it and replay keeps it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

# random: uniform actions; explore: with a policy's own noise; drift: the same, with noise that remembers; mode: none.
Acting: TypeAlias = Literal["random", "explore", "drift", "mode"]


@dataclass(frozen=True, eq=False)
class Episode:
    """A whole episode. Without a record the three arrays are empty."""

    observations: np.ndarray  # (steps + 1, obs), float32
    actions: np.ndarray  # (steps, action), in [-1, 1]
    rewards: np.ndarray  # (steps,)
    terminated: bool  # else it was cut off by its time limit
    total: float  # the undiscounted return
    steps: int

    def __len__(self) -> int:
        return self.steps
