"""A ready-made callback: stop at a return."""

import math
from typing import TYPE_CHECKING

from arac.errors import UserError
from arac.training.callbacks.base import Callback, Row

if TYPE_CHECKING:
    from arac.agents.agent import Agent


class StopAtReturn(Callback):
    """Stops the run when an evaluation gives the champion a mean return of `value` or more."""

    def __init__(self, value: float) -> None:
        """Create the callback.

        Raises:
            UserError: if `value` is not finite.
        """
        if not math.isfinite(value):
            raise UserError(f"The return to stop at must be a finite number, got {value}.")
        self.value = value

    def on_evaluation(self, agent: "Agent", evaluation: Row) -> bool:
        return evaluation["champion_return"] < self.value
