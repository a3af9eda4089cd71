"""The loop around the generations: record, show, save, stop."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from arac.algorithms import Algorithm
from arac.algorithms.shared import Context, Evaluation
from arac.display import Display
from arac.errors import EnvironmentFailure, Interrupted, UserError
from arac.replay import Mark
from arac.runs import Run

Outcome: TypeAlias = Literal["done", "stopped", "interrupted"]  # stopped: by the callback
# Called after each generation with the state and its evaluation, if it had one; False stops the run.
Callback: TypeAlias = Callable[[Any, Evaluation | None], bool | None]


def train(
    algorithm: Algorithm, context: Context, state: Any, run: Run | None, display: Display, callback: Callback | None
) -> tuple[Any, Outcome]:
    """Generations until `context.total_steps`. The last state, and how it ended.

    A generation that Ctrl-C or SIGTERM interrupts is dropped: the checkpoint holds the state before it, and the run
    that resumes plays it again with the same numbers.

    Raises:
        EnvironmentFailure: if an environment fails or the numbers are no longer finite.
    """
    saver = Saver(context, run)
    try:
        while state.env_steps < context.total_steps:
            saver.begin(state)
            state, evaluation = algorithm.generation(context, state)
            _check_finite(state)
            if run is not None:
                run.record_timing(state.env_steps, state.generation, context.progress.seconds)
            if evaluation is not None:
                if run is not None:
                    run.record(evaluation)
                display.evaluation(evaluation)
            display.generation(state)
            saver.end(state)
            if callback is not None and callback(state, evaluation) is False:
                saver.save_last()
                return state, "stopped"
            context.progress.check()
        saver.save_last()
    except Interrupted:
        saver.save_last()
        return saver.state, "interrupted"
    return state, "done"


class Saver:
    """Remembers the last complete generation, and checkpoints it at intervals and when the run stops."""

    def __init__(self, context: Context, run: Run | None) -> None:
        self._context = context
        self._run = run
        self.state: Any = None
        self._mark: Mark | None = None
        self._sizes: dict[str, int] = {}

    def begin(self, state: Any) -> None:
        """Before a generation: this is where we go back to if it is interrupted."""
        self.state, self._mark = state, self._context.replay.mark
        self._sizes = self._run.metric_sizes() if self._run else {}

    def end(self, state: Any) -> None:
        """After a generation."""
        interval = self._context.config.checkpoint_interval
        due = state.env_steps // interval > self.state.env_steps // interval
        self.begin(state)
        if self._run is None:
            self._context.replay.unsaved.clear()
        elif due:
            self.save_last()

    def save_last(self) -> None:
        if self._run is not None and self._mark is not None and self.state.generation > 0:
            self._run.save(self.state, self._context.replay, self._mark, self._sizes)


def check_run(config: Any, total_steps: int, max_episode_steps: int) -> None:
    """What only shows when config, environment and length come together.

    Raises:
        UserError: if they do not fit.
    """
    if total_steps < 1:
        raise UserError(f"steps must be at least 1, got {total_steps}.")
    if config.warmup_steps > total_steps:
        raise UserError(
            f"warmup_steps ({config.warmup_steps:,}) is longer than the run ({total_steps:,} steps): nothing would be "
            "learned; lower --warmup-steps or raise --steps."
        )
    if config.replay_capacity < max_episode_steps:
        raise UserError(
            f"replay_capacity ({config.replay_capacity:,}) must hold at least one episode "
            f"({max_episode_steps:,} steps here)."
        )


@jax.jit
def _all_finite(arrays: list[jax.Array]) -> jax.Array:
    return jnp.all(jnp.stack([jnp.isfinite(array).all() for array in arrays]))


def _check_finite(state: Any) -> None:
    arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
    if not bool(_all_finite(arrays)):
        raise EnvironmentFailure(
            f"A parameter is no longer finite after {state.env_steps:,} steps; the last checkpoint is from before. "
            "A lower learning rate or a bounded reward usually helps."
        )
