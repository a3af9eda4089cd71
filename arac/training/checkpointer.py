"""Checkpointing of a run: when it is saved, and what is dropped if a generation does not end."""

from pathlib import Path
from typing import Protocol

from arac.algorithms.base import Context, Evaluation, State
from arac.algorithms.config import Config
from arac.replay.buffer import ReplayCursor
from arac.storage.run_folder import Run


class StateOwner(Protocol):
    """The agent: the one place where the state of the last complete generation is kept."""

    state: State

    def _update_state(self, state: State, evaluation: Evaluation | None) -> None:
        """Set the state, and its fitness if it was evaluated."""


class Checkpointer:
    """Checkpoints of a run at intervals and when it stops.

    A generation that is interrupted or fails is dropped: the owner keeps the state before it, and a run that resumes
    plays it again with the same numbers.
    """

    def __init__(self, context: Context[Config], run: Run | None, owner: StateOwner) -> None:
        """Prepare checkpoints of `owner`, in the folder of `run` if there is one."""
        self._context = context
        self._run = run
        self._owner = owner
        self._mark_end()

    @property
    def state(self) -> State:
        """The state of the last complete generation."""
        return self._owner.state

    def _mark_end(self) -> None:
        """Note how far replay and metrics are at the end of a generation."""
        self._context.replay.forget_dropped()
        self._cursor: ReplayCursor = self._context.replay.mark
        self._checksums = self._run.metric_checksums() if self._run else {}

    def complete(self, state: State, evaluation: Evaluation | None) -> Path | None:
        """Record the end of a generation, save its state if that is due, and return the checkpoint's folder."""
        if self._run is not None:
            self._run.record(state, evaluation, self._context.progress.seconds)
        interval = self._context.config.checkpoint_interval
        due = state.env_steps // interval > self.state.env_steps // interval
        self._owner._update_state(state, evaluation)
        self._mark_end()
        if self._run is None:
            self._context.replay.unsaved.clear()
        return self.save() if due else None

    def drop(self) -> None:
        """Remove the episodes of an unfinished generation from replay."""
        self._context.replay.roll_back(self._cursor)

    def save(self) -> Path | None:
        """Write a checkpoint of the state, unless there is one or no run folder, and return its folder."""
        if self._run is None:
            return None
        with self._context.progress.phase("save", 0):
            return self._run.save(self.state, self._context.replay, self._cursor, self._checksums)
