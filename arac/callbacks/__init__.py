"""What a run tells while it trains: `agent.learn(..., callback=StopAtReturn(3000))`."""

from arac.callbacks.base import Callback
from arac.callbacks.ready import PeriodicVideo, StopAtReturn
from arac.callbacks.wandb import WandB

__all__ = ["Callback", "PeriodicVideo", "StopAtReturn", "WandB"]
