"""Videos of episodes: filmed side by side into a file, or shown in a window."""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from arac.envs import EnvSpec, make
from arac.errors import EnvironmentFailure, UserError
from arac.models.policies import Policy
from arac.replay.episode import Episode
from arac.rollout.episode import EpisodeRequest
from arac.rollout.local_pool import START_UP, Worker, WorkerLost
from arac.rollout.sending import check_sent
from arac.utils.atomic_io import write_durably
from arac.utils.paths import check_place
from arac.utils.progress import Progress
from arac.video.encoding import format_of
from arac.video.scenes import CannotDraw, Film, Shot


def film(
    env: EnvSpec,
    policies: Sequence[Policy],
    labels: Sequence[str],
    path: Path,
    *,
    seed: int = 0,
    max_steps: int | None = None,
) -> list[float]:
    """Film one episode without noise of each policy, side by side, all from the same start state.

    Args:
        env: the environment.
        policies: the policies, with NumPy leaves.
        labels: the heading of each policy's picture.
        path: an .mp4 or a .gif, which is written completely or not at all.
        seed: the seed of the start state.
        max_steps: a limit on the length of the episodes.

    Returns:
        The return of each episode.

    Raises:
        UserError: if the environment cannot be rendered, the path is not that of a video, or a policy's class is in no
            module.
        EnvironmentFailure: if the environment or its rendering fails.
        StorageFailure, OSError: if the file cannot be written.
    """
    requests = [EpisodeRequest(policy, "mode", seed, "video", (0, 0, 0), record=False) for policy in policies]
    shots = [Shot(request, label) for request, label in zip(requests, labels, strict=True)]
    [episodes] = film_scenes(limited(env, max_steps), [shots], path, Progress())
    return [episode.total for episode in episodes]


def film_scenes(env: EnvSpec, scenes: list[list[Shot]], path: Path, progress: Progress) -> list[list[Episode]]:
    """Film scenes one after the other into one file and return each scene's episodes; each step advances `progress`.

    Raises:
        UserError, EnvironmentFailure, StorageFailure, OSError: as for `film`.
    """
    check_path(path)
    requests = [shot.request for scene in scenes for shot in scene]
    with tempfile.TemporaryDirectory(prefix="arac-") as folder, _camera(env, requests, "rgb_array") as camera:
        draft = Path(folder, path.name)
        camera.give(Film(scenes, draft))
        try:
            while isinstance(heard := _hear(camera), int):
                progress.advance()
        except WorkerLost as lost:
            raise _failure(env, "films", lost) from None
        write_durably(path, draft.read_bytes())
    return heard


def show(env: EnvSpec, requests: Sequence[EpisodeRequest]) -> Iterator[Episode]:
    """Play episodes in a window, one after the other, and yield each at its end, until the user closes the window.

    Raises:
        UserError: if the environment cannot be rendered, a package for it is missing, or a policy's class is in no
            module.
        EnvironmentFailure: if the environment fails, or no window can be opened.
    """
    seen = False
    with _camera(env, requests, "human") as camera:
        try:
            for request in requests:
                camera.give(request)
                while isinstance(heard := _hear(camera, patience=None), int):
                    seen = seen or heard > 0
                yield heard
        except WorkerLost as lost:  # closing the window ends the process, but there is none before a first step
            if not seen:
                raise _failure(env, "shows", lost) from None


def limited(env: EnvSpec, max_steps: int | None) -> EnvSpec:
    """Return the environment with episodes of at most `max_steps`.

    Raises:
        UserError: if `max_steps` is less than one.
    """
    if max_steps is None:
        return env
    if max_steps < 1:
        raise UserError(f"max_steps must be at least 1, got {max_steps}.")
    return replace(env, max_episode_steps=min(max_steps, env.max_episode_steps))


def check_path(path: Path) -> None:
    """Check that a video can be written to a path.

    Raises:
        UserError: if not.
    """
    format_of(path)
    check_place(path)


def _failure(env: EnvSpec, does: str, lost: WorkerLost) -> EnvironmentFailure:
    return EnvironmentFailure(f"{env.id} lost the process that {does} it: it {lost.cause}\n{lost.trace}".rstrip())


def _drawing(env: EnvSpec, mode: str) -> EnvSpec:
    """Return the environment with its render mode set.

    Raises:
        UserError: if it has no rgb_array among its render modes.
    """
    made = make(env)
    modes = made.metadata.get("render_modes", [])
    made.close()
    if not {mode, "rgb_array"} & set(modes):  # Gymnasium can show any pictures in a window
        raise UserError(f"{env.id} cannot be rendered: its render_modes are {modes}, without rgb_array.")
    return replace(env, kwargs={**env.kwargs, "render_mode": mode})


@contextmanager
def _camera(env: EnvSpec, requests: Sequence[EpisodeRequest], mode: Literal["rgb_array", "human"]) -> Iterator[Worker]:
    """Yield a rendering process that has drawn a first frame, with the first of MuJoCo's backends that works."""
    drawing, why = _drawing(env, mode), ""
    check_sent(env.id, (drawing, [request.policy for request in requests]))
    for way in ["glfw"] if mode == "human" else _ways_without_a_screen():
        camera = Worker(drawing, None, "arac.video.camera", {"MUJOCO_GL": way}, quiet=True)
        try:
            try:
                _hear(camera)
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
    """Return the values of MUJOCO_GL to try; `disable` is for environments that do not render with MuJoCo."""
    if chosen := os.environ.get("MUJOCO_GL"):
        return [chosen]
    return ["glfw"] if sys.platform == "darwin" else ["egl", "osmesa", "disable"]


def _hear(worker: Worker, patience: float | None = START_UP) -> Any:
    """Return the next message of a rendering process, or raise it if it is an exception.

    Args:
        worker: the process.
        patience: seconds to wait; None for no limit.

    Raises:
        CannotDraw: if it sends nothing in that time.
        WorkerLost: if it has died.
    """
    if not worker.pipe.poll(patience):
        raise CannotDraw(f"the process that draws has said nothing for {patience:.0f} s")
    answer = worker.answer()
    if isinstance(answer, Exception):
        raise answer
    return answer
