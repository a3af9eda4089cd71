"""A callback that films episodes at intervals."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from arac.errors import UserError
from arac.training.callbacks.base import Callback, Row
from arac.video import film

if TYPE_CHECKING:
    from arac.agents.agent import Agent


class PeriodicVideo(Callback):
    """Films an episode without exploration noise at the start of a run and every `every` environment steps.

    All episodes begin in the same start state, so that the videos show what has changed. Files are named after the
    steps: a resumed run overwrites the videos that it had made after its checkpoint. Ctrl-C takes effect when a video
    is complete; a second one stops at once.
    """

    def __init__(
        self,
        every: int,
        *,
        members: Literal["champion", "all"] = "champion",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        """Create the callback.

        Args:
            every: environment steps between videos; a video is made at the end of the generation that reaches them.
            members: film the champion, or the whole population side by side.
            folder: folder of the videos; by default `videos` in the run folder.

        Raises:
            UserError: if `every` or `members` is invalid.
        """
        if every < 1:
            raise UserError(f"The steps between videos must be at least 1, got {every}.")
        if members not in ("champion", "all"):
            raise UserError(f"members must be 'champion' or 'all', got {members!r}.")
        self.every = every
        self.members = members
        self.folder = None if folder is None else Path(folder)
        self._steps = 0  # environment steps at the last call

    def on_start(self, agent: "Agent", run_dir: Path | None) -> None:
        target = self.folder or (run_dir and run_dir / "videos")
        if target is None:
            raise UserError("There is no place for videos: give `learn` a run_dir, or PeriodicVideo a folder.")
        self._target = target
        self._steps = agent.state.env_steps
        if self._steps == 0:  # an environment that cannot be filmed fails now, not after hours
            self._film(agent)

    def on_generation(self, agent: "Agent", evaluation: Row | None) -> None:
        before, self._steps = self._steps, agent.state.env_steps
        if self._steps // self.every > before // self.every:
            self._film(agent)

    def _film(self, agent: "Agent") -> None:
        if self.members == "all":
            policies = [member.policy for member in agent.population]
            labels = [f"member {number}" for number in range(len(policies))]
        else:
            policies, labels = [agent.champion.policy], [f"champion at {self._steps:,} steps"]
        self._target.mkdir(parents=True, exist_ok=True)
        film(agent.env, policies, labels, self._target / f"{self._steps:012d}.mp4")
