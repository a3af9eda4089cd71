"""Callbacks that are called during training: `agent.learn(..., callback=StopAtReturn(3000))`."""

from arac.training.callbacks import Callback, PeriodicVideo, StopAtReturn, WandB

__all__ = ["Callback", "PeriodicVideo", "StopAtReturn", "WandB"]
