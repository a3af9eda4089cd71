"""Replay in a run folder: which episodes are in which file, and episodes as the arrays of one file."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from arac.replay.buffer import ReplayBuffer, ReplayCursor
from arac.replay.episode import Episode
from arac.storage.manifest import Segment

_KINDS = {
    "observations": np.float32,
    "actions": np.float32,
    "rewards": np.float32,
    "totals": np.float64,
    "lengths": np.int64,
    "terminated": np.bool_,
}


@dataclass(eq=False)
class ReplayLog:
    """The episodes of a run: those in the files of its folder, and the newer ones that no checkpoint has yet."""

    first_unsaved: int = 0  # number of the first episode that is in no file
    unsaved: deque[Episode] = field(default_factory=deque)
    saved: list[Segment] = field(default_factory=list)  # the files that the newest checkpoint needs

    @classmethod
    def of(cls, replay: ReplayBuffer) -> "ReplayLog":
        """Return the log of a new run folder, in which no episode of a replay buffer is saved yet."""
        return cls(replay.cursor.first_episode, deque(replay.episodes()))

    def unsaved_until(self, cursor: ReplayCursor) -> list[Episode]:
        """Return the unsaved episodes that were added before `cursor`."""
        return list(islice(self.unsaved, cursor.episodes - self.first_unsaved))

    def forget_before(self, episode: int) -> None:
        """Release the unsaved episodes before number `episode`: once dropped from replay, no checkpoint needs them."""
        while self.unsaved and self.first_unsaved < episode:
            self.unsaved.popleft()
            self.first_unsaved += 1


def pack(episodes: Sequence[Episode]) -> bytes:
    """Return the content of a replay file with these episodes."""
    arrays = {
        "observations": np.concatenate([episode.observations for episode in episodes]),
        "actions": np.concatenate([episode.actions for episode in episodes]),
        "rewards": np.concatenate([episode.rewards for episode in episodes]),
        "totals": np.array([episode.total for episode in episodes]),
        "lengths": np.array([len(episode) for episode in episodes]),
        "terminated": np.array([episode.terminated for episode in episodes]),
    }
    return safetensors.numpy.save({name: np.asarray(arrays[name], kind) for name, kind in _KINDS.items()})


def unpack(data: bytes, observation_size: int, action_size: int) -> list[Episode]:
    """Return the episodes in the content of a replay file.

    Raises:
        ValueError: if they are not complete episodes of these sizes with finite numbers.
    """
    try:
        arrays = safetensors.numpy.load(data)
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"it is not a safetensors file ({error})") from None
    _check(arrays, observation_size, action_size)
    episodes, row, step = [], 0, 0
    for length, total, terminated in zip(*(arrays[n] for n in ("lengths", "totals", "terminated")), strict=True):
        steps = int(length)
        episodes.append(
            Episode(
                observations=arrays["observations"][row : row + steps + 1],
                actions=arrays["actions"][step : step + steps],
                rewards=arrays["rewards"][step : step + steps],
                terminated=bool(terminated),
                total=float(total),
                steps=steps,
            )
        )
        row, step = row + steps + 1, step + steps
    return episodes


def _check(arrays: dict[str, np.ndarray], observation_size: int, action_size: int) -> None:
    if {name: array.dtype for name, array in arrays.items()} != _KINDS:
        raise ValueError("it holds other arrays than replay has")
    lengths = arrays["lengths"]
    if lengths.ndim != 1 or len(lengths) == 0 or lengths.min() < 1 or lengths.max() > len(arrays["rewards"]):
        raise ValueError("the lengths of its episodes are not lengths")
    count, steps = len(lengths), int(lengths.sum())
    shapes = {
        "observations": (steps + count, observation_size),
        "actions": (steps, action_size),
        "rewards": (steps,),
        "totals": (count,),
        "lengths": (count,),
        "terminated": (count,),
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"its {name} have shape {arrays[name].shape}, not {shape}")
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"its {name} are not all finite")
