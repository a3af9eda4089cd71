"""Replay in a run folder: which episodes are in which file, and episodes as the arrays of one file."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

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
    ends = np.cumsum(arrays["lengths"])[:-1]
    parts = (
        np.split(arrays["observations"], ends + np.arange(1, len(ends) + 1)),  # each has one more
        np.split(arrays["actions"], ends),
        np.split(arrays["rewards"], ends),
        *(arrays[name].tolist() for name in ("terminated", "totals", "lengths")),
    )
    return [Episode(*one) for one in zip(*parts, strict=True)]


def _check(arrays: dict[str, np.ndarray], observation_size: int, action_size: int) -> None:
    if {name: array.dtype for name, array in arrays.items()} != _KINDS:
        raise ValueError("it holds other arrays than replay has")
    lengths = arrays["lengths"]
    if lengths.ndim != 1 or len(lengths) == 0 or lengths.min() < 1 or lengths.max() > len(arrays["rewards"]):
        raise ValueError("the lengths of its episodes are not lengths")
    count, steps = len(lengths), int(lengths.sum())
    of_steps = {"observations": (steps + count, observation_size), "actions": (steps, action_size), "rewards": (steps,)}
    shapes = {**of_steps, **dict.fromkeys(("totals", "lengths", "terminated"), (count,))}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"its {name} have shape {arrays[name].shape}, not {shape}")
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"its {name} are not all finite")
