"""Checkpointing of a run: when it is saved, and what is dropped if a generation does not end."""

from pathlib import Path
from typing import NamedTuple

from arac.algorithms.base import Context, Evaluation, State
from arac.algorithms.config import Config
from arac.replay.buffer import ReplayCursor
from arac.storage.run_folder import Run
from arac.utils.atomic_io import Checksum


class _End(NamedTuple):
    """The end of the last complete generation, to which a run can return."""

    env_steps: int
    cursor: ReplayCursor
    checksums: dict[str, Checksum]  # of the metrics files


class Checkpointer:
    """Checkpoints of a run at intervals and when it stops.

    A generation that is interrupted or fails is dropped: a run that resumes plays it again with the same numbers.
    """

    def __init__(self, context: Context[Config], run: Run | None, state: State) -> None:
        """Prepare checkpoints in the folder of `run`, if there is one, for training from `state`."""
        self._context = context
        self._run = run
        self._end = self._end_at(state)
        context.replay.on_add = None if run is None else run.replay_log.unsaved.append

    def _end_at(self, state: State) -> _End:
        return _End(state.env_steps, self._context.replay.cursor, self._run.metric_checksums() if self._run else {})

    def complete(self, state: State, evaluation: Evaluation | None) -> bool:
        """Record the end of a generation; return True if its state is due to be saved."""
        if self._run is not None:
            self._run.record(state, evaluation, self._context.progress.seconds)
            self._run.replay_log.forget_before(self._context.replay.cursor.first_episode)
        interval = self._context.config.checkpoint_interval
        due = state.env_steps // interval > self._end.env_steps // interval
        self._end = self._end_at(state)
        return due

    def stop(self) -> None:
        """Stop recording episodes, and remove those of an unfinished generation from replay."""
        self._context.replay.on_add = None
        self._context.replay.roll_back(self._end.cursor)

    def save(self, state: State) -> Path | None:
        """Write a checkpoint of the state of the last complete generation, and return its folder.

        Returns None without a run folder, if it is already saved, or if a signal to stop came while it was recorded.
        """
        if self._run is None or state.env_steps != self._end.env_steps:
            return None
        with self._context.progress.phase("save", 0):
            return self._run.save(state, self._end.cursor, self._end.checksums)
