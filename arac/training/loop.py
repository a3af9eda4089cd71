"""The loop around the generations: record, show, save, stop."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from arac.algorithms.base import Context, Evaluation
from arac.algorithms.registry import Algorithm
from arac.errors import Interrupted, NotFinite, UserError
from arac.replay.buffer import ReplayCursor, replay_bytes
from arac.storage import pytree_io
from arac.storage.run_folder import Run
from arac.storage.run_spec import RunSpec
from arac.training.callbacks.base import CallbackList, Outcome
from arac.training.display import Display
from arac.utils import memory

Show: TypeAlias = Callable[[Any, Evaluation | None], None]


class Checkpointer:
    """Holds the last complete generation, and checkpoints it at intervals and when the run stops.

    A generation that is interrupted or fails is dropped: what is kept is the state before it, and a run that resumes
    plays it again with the same numbers.
    """

    def __init__(self, context: Context, run: Run | None, state: Any, show: Show) -> None:
        """Begins with a state; `show` is called with every state that it comes to hold, and how that was measured."""
        self._context = context
        self._run = run
        self._show = show
        self._hold(state, None)

    def _hold(self, state: Any, evaluation: Evaluation | None) -> None:
        self.state = state
        self._show(state, evaluation)
        self._context.replay.forget_dropped()
        self._mark: ReplayCursor = self._context.replay.mark
        self._seals = self._run.metric_checksums() if self._run else {}

    def complete(self, state: Any, evaluation: Evaluation | None) -> Path | None:
        """A generation has ended in this state: records it, and saves it if it is time; the checkpoint's folder."""
        if self._run is not None:
            self._run.record(state, evaluation, self._context.progress.seconds)
        interval = self._context.config.checkpoint_interval
        due = state.env_steps // interval > self.state.env_steps // interval
        self._hold(state, evaluation)
        if self._run is None:
            self._context.replay.unsaved.clear()
        return self.save() if due else None

    def drop(self) -> None:
        """Leaves the generation that did not end out of replay, too."""
        self._context.replay.roll_back(self._mark)

    def save(self) -> Path | None:
        """Writes a checkpoint, if there is a run and it has none of this state; its folder."""
        if self._run is None:
            return None
        with self._context.progress.phase("save", 0):
            return self._run.save(self.state, self._context.replay, self._mark, self._seals)


def train(
    algorithm: Algorithm, context: Context, keeper: Checkpointer, display: Display, audience: CallbackList
) -> Outcome:
    """Generations until `context.total_steps`, from the state that `keeper` holds; how it ended.

    Raises:
        EnvironmentFailure: if an environment fails; NotFinite, if the numbers do.
        StorageFailure: if the run folder cannot be written.
        Exception: if a callback raises it.
    """
    try:
        outcome = _generations(algorithm, context, keeper, display, audience)
    finally:
        keeper.drop()
        saved = keeper.save()
    if saved is not None:
        audience.checkpoint(saved)
    return outcome


def _generations(
    algorithm: Algorithm, context: Context, keeper: Checkpointer, display: Display, audience: CallbackList
) -> Outcome:
    try:
        while keeper.state.env_steps < context.total_steps:
            state, evaluation = algorithm.generation(context, keeper.state)
            _check_finite(state, evaluation)
            saved = keeper.complete(state, evaluation)
            if evaluation is not None:
                display.evaluation(evaluation)
            display.generation(state)
            if not audience.generation(evaluation, saved):
                return "stopped"
            context.progress.check()
        return "done"
    except Interrupted:
        return "interrupted"


def check_run(description: RunSpec, total_steps: int) -> None:
    """What only shows when config, environment and length come together.

    Raises:
        UserError: if they do not fit.
    """
    config, env = description.config, description.env
    if total_steps < 1:
        raise UserError(f"steps must be at least 1, got {total_steps}.")
    if config.warmup_steps > total_steps:
        raise UserError(
            f"warmup_steps ({config.warmup_steps:,}) is longer than the run ({total_steps:,} steps): nothing would be "
            "learned; lower --warmup-steps or raise --steps."
        )
    if config.replay_capacity < env.max_episode_steps:
        raise UserError(
            f"replay_capacity ({config.replay_capacity:,}) must hold at least one episode "
            f"({env.max_episode_steps:,} steps here)."
        )


def check_memory(description: RunSpec) -> None:
    """Whether there is room for the replay buffer.

    Raises:
        UserError: if there is not.
    """
    config, env = description.config, description.env
    needed = replay_bytes(config.replay_capacity, env.observation_size, env.action_size)
    what = f"A replay_capacity of {config.replay_capacity:,} transitions of {env.id}"
    memory.check(needed, what, "lower --replay-capacity, or free some")


@jax.jit
def _all_finite(arrays: list[jax.Array]) -> jax.Array:
    return jnp.all(jnp.stack([jnp.isfinite(array).all() for array in arrays]))


def _check_finite(state: Any, evaluation: Evaluation | None) -> None:
    arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
    losses = evaluation.losses if evaluation is not None else {}
    broken = [name for name, loss in losses.items() if not math.isfinite(loss)]
    if not bool(_all_finite(arrays)):
        broken = pytree_io.not_finite(state)
    if broken:
        raise NotFinite(
            f"{broken[0]} is no longer finite after {state.env_steps:,} steps; what is kept is the generation before. "
            "Begin another run with a lower learning rate or a bounded reward."
        )
