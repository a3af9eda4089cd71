"""The base class of callbacks, and how a run calls them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from arac.algorithms.base import Evaluation
from arac.errors import UserError
from arac.storage.metrics import evaluation_row

if TYPE_CHECKING:
    from arac.agents.agent import Agent

Row: TypeAlias = dict[str, Any]  # a row of evaluations.jsonl
Outcome: TypeAlias = Literal["done", "stopped", "interrupted", "failed"]  # stopped: by a callback


class Callback:
    """Base class of callbacks. Its methods do nothing: override those that you need.

    Each method receives the agent in its current state, which can act, be evaluated and be saved. Returning False from
    `on_generation`, `on_evaluation` or `on_checkpoint` stops the run; an exception stops it too, and reaches the caller
    of `learn`. In both cases a checkpoint is written if there is a run folder, and the run can be resumed.
    """

    def on_start(self, agent: "Agent", run_dir: Path | None) -> None:
        """Handle the start of training, also of a resumed run; `run_dir` is None if there is no run folder."""

    def on_generation(self, agent: "Agent", evaluation: Row | None) -> bool | None:
        """Handle the end of a generation; `evaluation` is its row of evaluations.jsonl, or None if there is none."""

    def on_evaluation(self, agent: "Agent", evaluation: Row) -> bool | None:
        """Handle an evaluation of the population, given as its row of evaluations.jsonl."""

    def on_checkpoint(self, agent: "Agent", folder: Path) -> bool | None:
        """Handle a checkpoint of the current state, written to `folder`.

        The run removes the folder once there are two newer checkpoints. Not called for the checkpoint that is written
        when something has failed.
        """

    def on_end(self, agent: "Agent", outcome: Outcome) -> None:
        """Handle the end of training, whatever its outcome; called after the last checkpoint is written."""


Function: TypeAlias = Callable[["Agent", Row | None], bool | None]
# The types that `learn` accepts; a function is called as the `on_generation` of a callback would be.
Callbacks: TypeAlias = Callback | Function | Sequence[Callback | Function] | None


class _FromFunction(Callback):
    def __init__(self, function: Function) -> None:
        self._function = function

    def on_generation(self, agent: "Agent", evaluation: Row | None) -> bool | None:
        return self._function(agent, evaluation)


class CallbackList:
    """The callbacks of a run, with the agent that they are called with."""

    def __init__(self, callbacks: Sequence[Callback], agent: "Agent") -> None:
        self._callbacks = callbacks
        self._agent = agent
        self.outcome: Outcome = "failed"  # until training is known to have ended otherwise

    def generation(self, evaluation: Evaluation | None, saved: Path | None) -> bool:
        """Call all callbacks for a generation, its evaluation and its checkpoint; return False if one stops the run."""
        row = None if evaluation is None else evaluation_row(evaluation)
        answers = [each.on_generation(self._agent, row) for each in self._callbacks]
        if row is not None:
            answers += [each.on_evaluation(self._agent, row) for each in self._callbacks]
        if saved is not None:
            answers += self.checkpoint(saved)
        return all(answer is None or bool(answer) for answer in answers)  # NumPy's False is not Python's

    def checkpoint(self, saved: Path) -> list[bool | None]:
        """Call all callbacks for a checkpoint; return their answers."""
        return [each.on_checkpoint(self._agent, saved) for each in self._callbacks]

    def end(self, callback: Callback) -> None:
        """Call a callback at the end of the run, with its outcome."""
        callback.on_end(self._agent, self.outcome)


@contextmanager
def informed(callbacks: Sequence[Callback], agent: "Agent", run_dir: Path | None) -> Iterator[CallbackList]:
    """Call `on_start` of the callbacks, and at the end of the run, whatever its outcome, `on_end` of those started."""
    callback_list = CallbackList(callbacks, agent)
    with ExitStack() as begun:
        for each in callbacks:
            each.on_start(agent, run_dir)
            begun.callback(callback_list.end, each)
        yield callback_list


def as_list(callbacks: Callbacks) -> list[Callback]:
    """Return the `callback` argument of `learn` as a list of callbacks.

    Raises:
        UserError: if an element is neither a callback nor a function.
    """
    if callbacks is None:
        return []
    several = callbacks if isinstance(callbacks, Sequence) else [callbacks]
    for each in several:
        if isinstance(each, type) or not (isinstance(each, Callback) or callable(each)):
            raise UserError(f"callback takes a Callback, a function or a list of them, got {each!r}.")
    return [each if isinstance(each, Callback) else _FromFunction(each) for each in several]
