"""The messages to the rendering process, and the exception that it sends if it cannot draw."""

from pathlib import Path
from typing import NamedTuple

from arac.errors import EnvironmentFailure
from arac.rollout.episode import EpisodeRequest


class Shot(NamedTuple):
    """One tile: the episode that is played in it, and its heading."""

    request: EpisodeRequest
    label: str


class Film(NamedTuple):
    """A film: consecutive scenes, each of the same number of shots side by side."""

    scenes: list[list[Shot]]
    path: Path


class CannotDraw(EnvironmentFailure):
    """The environment cannot draw a first frame."""
