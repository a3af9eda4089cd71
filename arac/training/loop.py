"""The training loop: generation after generation, recorded, shown and saved."""

import math
from collections.abc import Generator

import jax
import jax.numpy as jnp

from arac.algorithms.base import Context, Evaluation, State
from arac.algorithms.config import Config
from arac.algorithms.registry import Algorithm
from arac.errors import Interrupted, NotFinite, UserError
from arac.replay.buffer import replay_bytes
from arac.storage import pytree_io
from arac.storage.run_spec import RunSpec
from arac.training.callbacks.base import CallbackList, Outcome
from arac.training.checkpointer import Checkpointer
from arac.training.display import Display
from arac.utils import memory


def train(
    algorithm: Algorithm,
    context: Context[Config],
    state: State,
    checkpointer: Checkpointer,
    display: Display,
    callbacks: CallbackList,
) -> Generator[tuple[State, Evaluation | None]]:
    """Train from `state` until `context.total_steps`; yield each new state, with its evaluation if there was one.

    A state is yielded before it is saved, shown and given to the callbacks, whose `outcome` is set at the end.

    Raises:
        EnvironmentFailure: if an environment fails; NotFinite, if the numbers do.
        StorageFailure: if the run folder cannot be written.
        Exception: if a callback raises it.
    """
    outcome: Outcome = "done"
    try:
        while state.env_steps < context.total_steps:
            learned, evaluation = algorithm.generation(context, state)
            _check_finite(learned, evaluation)
            due = checkpointer.complete(learned, evaluation)
            state = learned
            yield state, evaluation
            saved = checkpointer.save(state) if due else None
            if evaluation is not None:
                display.evaluation(evaluation)
            display.generation(state)
            if not callbacks.generation(evaluation, saved):
                outcome = "stopped"
                break
            context.progress.check()
    except Interrupted:
        outcome = "interrupted"
    finally:
        checkpointer.stop()
        saved = checkpointer.save(state)
    if saved is not None:
        callbacks.checkpoint(saved)
    callbacks.outcome = outcome


def check_run(description: RunSpec, total_steps: int) -> None:
    """Validate config, environment and run length together.

    Raises:
        UserError: if they do not fit.
    """
    config, env = description.config, description.env
    if total_steps < 1:
        raise UserError(f"steps must be at least 1, got {total_steps}.", fields=("steps",))
    if config.warmup_steps > total_steps:
        raise UserError(
            f"warmup_steps ({config.warmup_steps:,}) is longer than the run ({total_steps:,} steps): nothing would be "
            "learned; lower --warmup-steps or raise --steps.",
            fields=("warmup_steps", "steps"),
        )
    if config.replay_capacity < env.max_episode_steps:
        raise UserError(
            f"replay_capacity ({config.replay_capacity:,}) must hold at least one episode "
            f"({env.max_episode_steps:,} steps here).",
            fields=("replay_capacity", "max_episode_steps"),
        )


def check_memory(description: RunSpec) -> None:
    """Check that there is memory for the replay buffer.

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


def _check_finite(state: State, evaluation: Evaluation | None) -> None:
    arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
    losses = evaluation.losses if evaluation is not None else {}
    broken = [name for name, loss in losses.items() if not math.isfinite(loss)]
    if not bool(_all_finite(arrays)):
        broken = pytree_io.not_finite(state)
    if broken:
        raise NotFinite(
            f"{broken[0]} is no longer finite after {state.env_steps:,} steps; the previous generation is kept. "
            "Start another run with a lower learning rate or a bounded reward."
        )
