"""What the process that films is told, and one thing that it may answer."""

from pathlib import Path
from typing import NamedTuple

from arac.errors import EnvironmentFailure
from arac.rollout.episode import Task


class Shot(NamedTuple):
    """One tile: what is played in it, and what stands above."""

    task: Task
    label: str


class Film(NamedTuple):
    """What to film: scenes that follow each other, each of the same number of shots side by side."""

    scenes: list[list[Shot]]
    path: Path


class CannotDraw(EnvironmentFailure):
    """Not even the first frame can be drawn."""
