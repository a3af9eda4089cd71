"""What a run tells while it trains, and how it is asked to stop."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from arac.algorithms.base import Evaluation
from arac.errors import UserError
from arac.storage.metrics import evaluation_row

if TYPE_CHECKING:
    from arac.agents.agent import Agent

Row: TypeAlias = dict[str, Any]  # as in evaluations.jsonl
Outcome: TypeAlias = Literal["done", "stopped", "interrupted", "failed"]  # stopped: by a callback


class Callback:
    """Told what happens in a run. Does nothing: override what you need.

    Each method is handed the agent in its current state, which can act, be measured and be saved. False from
    `on_generation`, `on_evaluation` or `on_checkpoint` stops the run; an exception stops it too, and reaches whoever
    called `learn`. Either way a checkpoint is written and the run can be resumed.
    """

    def on_start(self, agent: "Agent", run_dir: Path | None) -> None:
        """Training is about to begin or to go on, in this run folder if there is one."""

    def on_generation(self, agent: "Agent", evaluation: Row | None) -> bool | None:
        """A generation is complete; `evaluation` is its row of evaluations.jsonl, if it was measured."""

    def on_evaluation(self, agent: "Agent", evaluation: Row) -> bool | None:
        """The population was measured: this is the row of evaluations.jsonl."""

    def on_checkpoint(self, agent: "Agent", folder: Path) -> bool | None:
        """A checkpoint of this state was written into this folder. The run removes it when two newer ones are there.

        Not told of: the one that is written because something failed.
        """

    def on_end(self, agent: "Agent", outcome: Outcome) -> None:
        """Training has ended, whichever way; what was learned is saved."""


Function: TypeAlias = Callable[["Agent", Row | None], bool | None]
# What `learn` takes: a function stands for the `on_generation` of a callback.
Callbacks: TypeAlias = Callback | Function | Sequence[Callback | Function] | None


class _FromFunction(Callback):
    def __init__(self, function: Function) -> None:
        self._function = function

    def on_generation(self, agent: "Agent", evaluation: Row | None) -> bool | None:
        return self._function(agent, evaluation)


class CallbackList:
    """The callbacks of a run together with the agent that they are handed."""

    def __init__(self, callbacks: Sequence[Callback], agent: "Agent") -> None:
        self._callbacks = callbacks
        self._agent = agent
        self.outcome: Outcome = "failed"  # until it is known to have ended otherwise

    def generation(self, evaluation: Evaluation | None, saved: Path | None) -> bool:
        """Tells all of them of a generation, its evaluation and its checkpoint; whether all want to go on."""
        row = None if evaluation is None else evaluation_row(evaluation)
        answers = [each.on_generation(self._agent, row) for each in self._callbacks]
        if row is not None:
            answers += [each.on_evaluation(self._agent, row) for each in self._callbacks]
        if saved is not None:
            answers += self.checkpoint(saved)
        return all(answer is None or bool(answer) for answer in answers)  # NumPy's False is not Python's

    def checkpoint(self, saved: Path) -> list[bool | None]:
        return [each.on_checkpoint(self._agent, saved) for each in self._callbacks]

    def end(self, callback: Callback) -> None:
        callback.on_end(self._agent, self.outcome)


@contextmanager
def informed(callbacks: Sequence[Callback], agent: "Agent", run_dir: Path | None) -> Iterator[CallbackList]:
    """Tells the callbacks of the beginning and, however it comes, of the end."""
    audience = CallbackList(callbacks, agent)
    with ExitStack() as begun:
        for each in callbacks:
            each.on_start(agent, run_dir)
            begun.callback(audience.end, each)
        yield audience


def as_list(callbacks: Callbacks) -> list[Callback]:
    """What a user gave, as callbacks.

    Raises:
        UserError: if something among them cannot be called.
    """
    if callbacks is None:
        return []
    several = callbacks if isinstance(callbacks, Sequence) else [callbacks]
    for each in several:
        if isinstance(each, type) or not (isinstance(each, Callback) or callable(each)):
            raise UserError(f"callback takes a Callback, a function or a list of them, got {each!r}.")
    return [each if isinstance(each, Callback) else _FromFunction(each) for each in several]
