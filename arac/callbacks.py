"""Callbacks that are called during training: `agent.learn(..., callback=StopAtReturn(3000))`."""

from arac.training.callbacks.base import Callback
from arac.training.callbacks.builtin import StopAtReturn
from arac.training.callbacks.wandb import WandB
from arac.video.periodic import PeriodicVideo

__all__ = ["Callback", "PeriodicVideo", "StopAtReturn", "WandB"]
