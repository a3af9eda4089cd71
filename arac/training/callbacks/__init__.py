"""Callbacks that are called during training."""

from arac.training.callbacks.base import Callback
from arac.training.callbacks.builtin import PeriodicVideo, StopAtReturn
from arac.training.callbacks.wandb import WandB

__all__ = ["Callback", "PeriodicVideo", "StopAtReturn", "WandB"]
