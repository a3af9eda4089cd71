"""Experience replay that keeps each observation once.

A T-step episode takes T + 1 consecutive rows of a ring: row t holds observation t and, except for the last row, the
action, reward and terminal flag of step t. The next observation of a transition is simply the next row, and the final
observation of a truncated episode is stored for bootstrapping. A second ring lists the rows that start a transition,
oldest first, so sampling is uniform over transitions and no transition spans two episodes.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from arac.replay.episode import Episode

# Episodes are written in blocks of this many rows, so that writing compiles once whatever their length.
_BLOCK = 256


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Storage:
    """The arrays of the buffer, on the device."""

    observations: Float[Array, "row obs"]
    actions: Float[Array, "row action"]
    rewards: Float[Array, " row"]
    terminals: Bool[Array, " row"]
    starts: Int[Array, " capacity"]  # the row of each transition, a ring in order of age


class Batch(NamedTuple):
    """A mini-batch of transitions."""

    observation: Float[Array, "batch obs"]
    action: Float[Array, "batch action"]
    reward: Float[Array, " batch"]
    terminal: Bool[Array, " batch"]
    next_observation: Float[Array, "batch obs"]


class ReplayView(NamedTuple):
    """The transitions that can be sampled, at positions `oldest`, …, `oldest + size - 1` of the ring of starts."""

    storage: Storage
    oldest: int
    size: int

    @property
    def action_size(self) -> int:
        """The size of an action."""
        return self.storage.actions.shape[1]


class ReplayCursor(NamedTuple):
    """A point in the history of a buffer, from which it can be rebuilt if the episodes are given."""

    first_episode: int  # number of the oldest episode that is still there
    episodes: int  # number of episodes ever added
    row: int  # first row of the oldest episode


class ReplayBuffer:
    """A buffer of at most `capacity` transitions, on the device. When it is full, the oldest episodes are dropped."""

    def __init__(self, capacity: int, observation_size: int, action_size: int) -> None:
        self.capacity = capacity
        # Every episode takes one row more than it has steps; a sixteenth more rows suffices for episodes of 16 steps.
        self.rows = row_count(capacity)
        self.storage = _empty(capacity, observation_size, action_size)
        self.on_add: Callable[[Episode], None] | None = None  # called with each episode that `extend` has added
        self._clear()

    def _clear(self) -> None:
        self._lengths: deque[int] = deque()
        self._first_episode = 0
        self._oldest_row = 0
        self._oldest_start = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes of an observation and of an action."""
        return self.storage.observations.shape[1], self.storage.actions.shape[1]

    @property
    def view(self) -> ReplayView:
        """The transitions that can be sampled now."""
        return ReplayView(self.storage, self._oldest_start, self._count)

    @property
    def cursor(self) -> ReplayCursor:
        """The current point in the buffer's history."""
        return ReplayCursor(self._first_episode, self._first_episode + len(self._lengths), self._oldest_row)

    def extend(self, episodes: Iterable[Episode]) -> None:
        """Add whole episodes in order.

        Raises:
            ValueError: if an episode has more steps than the buffer has capacity.
        """
        for episode in episodes:
            self._add(episode)
            if self.on_add is not None:
                self.on_add(episode)

    def restore(self, episodes: Iterable[Episode], cursor: ReplayCursor) -> None:
        """Fill an empty buffer with the episodes from `cursor.first_episode` on, each in the rows that it had.

        Raises:
            ValueError: if the episodes do not match `cursor`; the buffer is then empty.
        """
        try:
            self._first_episode, self._oldest_row = cursor.first_episode, cursor.row
            for episode in episodes:
                self._add(episode)
            if self.cursor != cursor:
                raise ValueError(f"replay holds {self.cursor} instead of {cursor}")
        except BaseException:
            self._clear()
            raise

    def roll_back(self, cursor: ReplayCursor) -> None:
        """Remove the episodes that were added after `cursor`. Those that were dropped to make room are not restored."""
        while self._lengths and self.cursor.episodes > cursor.episodes:
            self._count -= self._lengths.pop()

    def episodes(self) -> Iterator[Episode]:
        """Yield the episodes that are in the buffer, oldest first."""
        arrays = jax.tree.map(np.asarray, self.storage)
        first_row = self._oldest_row
        for steps in self._lengths:
            rows = (first_row + np.arange(steps + 1)) % self.rows
            rewards = arrays.rewards[rows[:-1]]
            yield Episode(
                observations=arrays.observations[rows],
                actions=arrays.actions[rows[:-1]],
                rewards=rewards,
                terminated=bool(arrays.terminals[rows[-2]]),
                total=math.fsum(rewards.tolist()),
                steps=steps,
            )
            first_row += steps + 1

    def _add(self, episode: Episode) -> None:
        steps = len(episode)
        if steps > self.capacity:
            raise ValueError(f"An episode of {steps} steps does not fit a replay of {self.capacity} transitions.")
        while self._count + steps > self.capacity or self._rows_used() + steps + 1 > self.rows:
            self._drop_oldest()
        first_row = self._oldest_row + self._rows_used()
        first_start = self._oldest_start + self._count
        for begin in range(0, steps + 1, _BLOCK):
            block = _block(episode, begin)
            self.storage = _write(self.storage, block, first_row + begin, first_start + begin)
        self._lengths.append(steps)
        self._count += steps

    def _rows_used(self) -> int:
        return self._count + len(self._lengths)

    def _drop_oldest(self) -> None:
        steps = self._lengths.popleft()
        self._first_episode += 1
        self._oldest_row = (self._oldest_row + steps + 1) % self.rows
        self._oldest_start = (self._oldest_start + steps) % self.capacity
        self._count -= steps


@partial(jax.jit, static_argnums=(0, 1, 2))
def _empty(capacity: int, observation_size: int, action_size: int) -> Storage:
    rows = row_count(capacity)
    return Storage(
        observations=jnp.zeros((rows, observation_size), jnp.float32),
        actions=jnp.zeros((rows, action_size), jnp.float32),
        rewards=jnp.zeros(rows, jnp.float32),
        terminals=jnp.zeros(rows, bool),
        starts=jnp.zeros(capacity, jnp.int32),
    )


def row_count(capacity: int) -> int:
    """Return the number of rows of a buffer."""
    return capacity + max(capacity // 16, 1)


def replay_bytes(capacity: int, observation_size: int, action_size: int) -> int:
    """Return the memory that a buffer takes on the device, in bytes."""
    row = 4 * observation_size + 4 * action_size + 4 + 1
    return row_count(capacity) * row + 4 * capacity


def sample(view: ReplayView, key: jax.Array, batch_size: int) -> Batch:
    """Draw a mini-batch uniformly with replacement. Pure, so that it can be jitted."""
    return gather(view, positions(view, key, batch_size))


def positions(view: ReplayView, key: jax.Array, batch_size: int) -> Int[Array, " batch"]:
    """Draw the positions of a mini-batch's transitions, counted from the oldest."""
    return jax.random.randint(key, (batch_size,), 0, view.size)


def gather(view: ReplayView, position: Int[Array, " batch"]) -> Batch:
    """Return the transitions at these positions."""
    storage = view.storage
    row = storage.starts[(view.oldest + position) % storage.starts.shape[0]]
    return Batch(
        observation=storage.observations[row],
        action=storage.actions[row],
        reward=storage.rewards[row],
        terminal=storage.terminals[row],
        next_observation=storage.observations[(row + 1) % storage.observations.shape[0]],
    )


class _Block(NamedTuple):
    """Up to `_BLOCK` rows of an episode, padded."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminals: np.ndarray
    rows: int  # rows that are not padding
    steps: int  # rows that start a transition


def _block(episode: Episode, begin: int) -> _Block:
    def padded(array: np.ndarray) -> np.ndarray:
        part = array[begin : begin + _BLOCK]
        return np.pad(part, [(0, _BLOCK - len(part))] + [(0, 0)] * (array.ndim - 1))

    terminals = np.zeros(len(episode), bool)
    terminals[-1] = episode.terminated
    return _Block(
        padded(episode.observations),
        padded(episode.actions),
        padded(episode.rewards),
        padded(terminals),
        rows=min(len(episode) + 1 - begin, _BLOCK),
        steps=min(len(episode) - begin, _BLOCK),
    )


@partial(jax.jit, donate_argnums=0)
def _write(storage: Storage, block: _Block, first_row: int, first_start: int) -> Storage:
    offset = jnp.arange(_BLOCK)
    rows, capacity = storage.observations.shape[0], storage.starts.shape[0]
    row = (first_row + offset) % rows
    # Padding is written out of bounds, where a scatter drops it.
    any_row = jnp.where(offset < block.rows, row, rows)
    step_row = jnp.where(offset < block.steps, row, rows)
    start = jnp.where(offset < block.steps, (first_start + offset) % capacity, capacity)
    return Storage(
        observations=storage.observations.at[any_row].set(block.observations, mode="drop"),
        actions=storage.actions.at[step_row].set(block.actions, mode="drop"),
        rewards=storage.rewards.at[step_row].set(block.rewards, mode="drop"),
        terminals=storage.terminals.at[step_row].set(block.terminals, mode="drop"),
        starts=storage.starts.at[start].set(row.astype(jnp.int32), mode="drop"),
    )
