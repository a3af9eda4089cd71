"""Episodes to look at: filmed side by side into a file, or shown in a window."""

import contextlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from arac.envs import EnvSpec, can_be_imported, make
from arac.errors import EnvironmentFailure, UserError
from arac.files import write_durably
from arac.progress import Progress
from arac.rollout.episode import Episode, Task
from arac.rollout.local import START_UP, Worker, WorkerLost
from arac.video.encoding import format_of
from arac.video.scenes import CannotDraw, Film, Shot


def film(
    env: EnvSpec,
    policies: Sequence[Any],
    labels: Sequence[str],
    path: Path,
    *,
    seed: int = 0,
    max_steps: int | None = None,
) -> list[float]:
    """Films one episode without noise of each policy, side by side, all from the same start.

    Args:
        env: where they play.
        policies: with NumPy leaves.
        labels: what stands above each.
        path: an .mp4 or a .gif, which is written whole or not at all.
        seed: another number gives another start.
        max_steps: ends episodes that take longer.

    Returns:
        The return of each.

    Raises:
        UserError: if the environment draws no pictures, or the path is not that of a video.
        EnvironmentFailure: if the environment or what draws it fails.
        StorageFailure, OSError: if the file cannot be written.
    """
    tasks = [Task(policy, "mode", seed, "video", (0, 0, 0), record=False) for policy in policies]
    shots = [Shot(task, label) for task, label in zip(tasks, labels, strict=True)]
    [episodes] = film_scenes(limited(env, max_steps), [shots], path, Progress())
    return [episode.total for episode in episodes]


def film_scenes(env: EnvSpec, scenes: list[list[Shot]], path: Path, progress: Progress) -> list[list[Episode]]:
    """Films scenes one after the other into one file, and advances `progress` with each step.

    Raises:
        UserError, EnvironmentFailure, StorageFailure, OSError: as for `film`.
        Interrupted: if the run was asked to stop.
    """
    check_path(path)
    with tempfile.TemporaryDirectory(prefix="arac-") as folder, _camera(env, "rgb_array", progress) as camera:
        draft = Path(folder, path.name)
        camera.give(Film(scenes, draft))
        try:
            while isinstance(heard := _hear(camera, progress), int):
                progress.advance()
        except WorkerLost as lost:
            what = f"{env.id} lost the process that films it: it {lost.cause}"
            raise EnvironmentFailure(f"{what}\n{lost.trace}".rstrip()) from None
        write_durably(path, draft.read_bytes())
    return heard


def show(env: EnvSpec, tasks: Iterable[Task], progress: Progress) -> Iterator[Episode]:
    """Plays episodes in a window, one after the other, until the user closes it.

    Raises:
        UserError: if the environment draws no pictures, or a package for it is missing.
        EnvironmentFailure: if it fails, or no window can be opened.
    """
    with _camera(env, "human", progress) as camera, contextlib.suppress(WorkerLost):  # which closing comes down to
        for task in tasks:
            camera.give(task)
            yield _hear(camera, progress, patience=math.inf)


def limited(env: EnvSpec, max_steps: int | None) -> EnvSpec:
    """The environment with episodes of at most `max_steps`.

    Raises:
        UserError: if that is less than one.
    """
    if max_steps is None:
        return env
    if max_steps < 1:
        raise UserError(f"max_steps must be at least 1, got {max_steps}.")
    return replace(env, max_episode_steps=min(max_steps, env.max_episode_steps))


def check_path(path: Path) -> None:
    """Whether a video can go there.

    Raises:
        UserError: if not.
    """
    format_of(path)
    if path.is_dir() or not path.parent.is_dir():
        raise UserError(f"{path} is {'a folder' if path.is_dir() else 'in no folder that there is'}: give a file.")


def _drawing(env: EnvSpec, mode: str) -> EnvSpec:
    """The environment, made so that it draws."""
    made = make(env)
    modes = made.metadata.get("render_modes", [])
    made.close()
    if not {mode, "rgb_array"} & set(modes):  # Gymnasium shows in a window whatever gives pictures
        raise UserError(f"{env.id} cannot be looked at: it draws no pictures (its render_modes are {modes}).")
    if not can_be_imported(env):
        raise UserError(f"{env.id} cannot be imported by the process that draws it: put it into a module by name.")
    return replace(env, kwargs={**env.kwargs, "render_mode": mode})


@contextmanager
def _camera(env: EnvSpec, mode: Literal["rgb_array", "human"], progress: Progress) -> Iterator[Worker]:
    """A process that has drawn a first frame, with the first of MuJoCo's ways to draw that works."""
    drawing, why = _drawing(env, mode), ""
    for way in ["glfw"] if mode == "human" else _ways_without_a_screen():
        camera = Worker(drawing, None, "arac.video.camera", {"MUJOCO_GL": way}, quiet=True)
        try:
            try:
                _hear(camera, progress)
            except (CannotDraw, WorkerLost) as error:
                reason = str(error) if isinstance(error, CannotDraw) else f"its process {error.cause}"
                why = why or f"{way}: {reason}"
                continue
            yield camera
            return
        finally:
            camera.end()
    if mode == "human":
        raise EnvironmentFailure(f"{env.id} cannot be shown in a window ({why}): `--video FILE.mp4` films it instead.")
    raise EnvironmentFailure(
        f"{env.id} cannot be drawn on this machine ({why}): without a screen MuJoCo needs EGL or OSMesa; "
        "on Debian, `apt-get install libosmesa6`."
    )


def _ways_without_a_screen() -> list[str]:
    """Values of MUJOCO_GL to try. The last one is for environments that need none of them."""
    if chosen := os.environ.get("MUJOCO_GL"):
        return [chosen]
    return ["glfw"] if sys.platform == "darwin" else ["egl", "osmesa", "disable"]


def _hear(worker: Worker, progress: Progress, patience: float = START_UP) -> Any:
    """What a process says next, within that many seconds.

    Raises:
        CannotDraw: if it says nothing for too long; or else what it says has gone wrong.
        WorkerLost: if it is dead.
    """
    deadline = time.monotonic() + patience
    while not worker.pipe.poll(0.2):
        progress.check()
        if time.monotonic() > deadline:
            raise CannotDraw(f"the process that draws has said nothing for {patience:.0f} s")
    answer = worker.answer()
    if isinstance(answer, Exception):
        raise answer
    return answer
