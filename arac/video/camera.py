"""The rendering process: it films the episodes of several policies side by side, or shows one in a window.

It is started like a worker (see `arac.rollout.worker`), for two reasons: MuJoCo chooses its rendering backend when it
is imported, by an environment variable that the user's process may lack; and a crash of a graphics library does not
end a training run.
"""

import contextlib
import faulthandler
import itertools
import math
import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import mujoco
import numpy as np

from arac.envs import EnvSpec, make
from arac.errors import EnvironmentFailure, StorageFailure, UserError
from arac.replay.episode import Episode
from arac.rollout.episode import EpisodeRequest, by_steps
from arac.rollout.sending import unpacked
from arac.utils.processes import end_with
from arac.utils.text import in_a_line
from arac.video import encoding, picture
from arac.video.scenes import CannotDraw, Film, Shot

# Seconds for which the last frame stays: long enough to read the returns.
_HOLD = 1.0
# Pixels along a side of MuJoCo's shadow map. The default of 4,096 looks the same in a tile and takes twice as long.
_SHADOWS = 1024


def serve(pipe: Connection) -> None:
    """Send None when a first frame is drawn, then answer each `Film` or request with its episodes or an exception.

    At each step of a film 1 is sent; at each step in a window, the number of steps of the episode so far.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    mujoco.set_mju_user_warning(lambda _: None)  # MuJoCo would write its warnings to a file in the user's folder
    with contextlib.suppress(EOFError, BrokenPipeError):  # the parent is gone
        spec: EnvSpec = unpacked(pipe.recv_bytes())
        try:
            env = ready(spec)
            pipe.send(None)
            while True:
                wanted: Film | EpisodeRequest = unpacked(pipe.recv_bytes())
                if isinstance(wanted, EpisodeRequest):
                    pipe.send(show(spec, env, wanted, pipe.send))
                else:
                    pipe.send(film(spec, env, wanted, lambda: pipe.send(1)))
        except (UserError, EnvironmentFailure, StorageFailure) as error:
            pipe.send(error)
        except Exception:
            pipe.send(EnvironmentFailure(f"{spec.id} failed while it was drawn:\n{traceback.format_exc().rstrip()}"))


def ready(spec: EnvSpec) -> gymnasium.Env:
    """Make an environment and let it draw a first frame, to find out whether it can.

    Raises:
        UserError: if a package is missing.
        CannotDraw: if it cannot draw for another reason.
    """
    env = prepared(spec)
    try:
        env.reset(seed=0)
        drawn = _drawn(env)
    except gymnasium.error.DependencyNotInstalled as missing:
        raise UserError(f"{spec.id} cannot be drawn: {missing}") from None
    except Exception as error:  # each graphics library raises exceptions of another kind
        raise CannotDraw(in_a_line(error)) from None
    if env.render_mode == "rgb_array" and np.ndim(drawn) != 3:
        raise CannotDraw(f"it draws {type(drawn).__name__} instead of a picture")
    return env


def prepared(spec: EnvSpec) -> gymnasium.Env:
    """Return the environment, seen by its tracking camera if it is MuJoCo's and has one."""
    env = make(spec)
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is not None:
        renderer.model.vis.quality.shadowsize = _SHADOWS
        follows = mujoco.mj_name2id(renderer.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
        if renderer.camera_id == -1 and follows != -1:  # Gymnasium's default does not follow the body
            renderer.camera_id = follows  # for pictures; and for windows:
            view = {"type": mujoco.mjtCamera.mjCAMERA_FIXED, "fixedcamid": follows}
            renderer.default_cam_config = {**(renderer.default_cam_config or {}), **view}
    return env


def _drawn(env: gymnasium.Env) -> Any:
    """Return a picture of the environment.

    Its graphics context is made current first, because Gymnasium draws in the one that was used last.
    """
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is not None and renderer.viewer is not None:
        renderer.viewer.make_context_current()
    return env.render()


def show(spec: EnvSpec, env: gymnasium.Env, request: EpisodeRequest, at: Callable[[int], None]) -> Episode:
    """Play an episode in a window, in real time; `at` is called with its steps so far after the reset and each step."""
    steps = by_steps(env, spec.low, spec.high, request)
    seconds, due = 1 / (env.metadata.get("render_fps") or 30), time.monotonic()
    while True:
        try:
            at(len(next(steps)))
        except StopIteration as end:
            return end.value
        time.sleep(max(due - time.monotonic(), 0))
        due = max(due, time.monotonic()) + seconds


def film(spec: EnvSpec, env: gymnasium.Env, wanted: Film, step: Callable[[], None]) -> list[list[Episode]]:
    """Film scenes into a file and return the episodes of each; `step` is called at each step of a scene.

    Raises:
        EnvironmentFailure: if an environment gives something that is not finite.
        StorageFailure: if the file cannot be written.
    """
    count = len(wanted.scenes[0])
    envs = [env, *(prepared(spec) for _ in range(count - 1))]
    kind = encoding.format_of(wanted.path)
    layout = picture.arrange(count, np.shape(_drawn(env))[:2], kind.widest)
    stride, fps = encoding.pace(env.metadata.get("render_fps"), kind.fps)
    with encoding.encoder(wanted.path, layout.size, fps) as write:
        episodes = []
        for scene in wanted.scenes:
            players = [_Player(spec, one, shot, layout) for one, shot in zip(envs, scene, strict=True)]
            _play(players, layout, stride, math.ceil(_HOLD * fps), write, step)
            episodes.append([player.episode for player in players])
    return episodes


def _play(
    players: list["_Player"],
    layout: picture.Layout,
    stride: int,
    hold: int,
    write: Callable[[np.ndarray], None],
    step: Callable[[], None],
) -> None:
    """Film a scene: a frame every `stride` steps until all episodes have ended, then the last frame `hold` times."""
    for steps in itertools.count():
        for player in players:
            player.go_on()
        if not any(player.plays for player in players):
            break
        if steps % stride == 0:
            write(picture.compose(layout, [player.tile() for player in players]))
        step()
    last = picture.compose(layout, [player.tile() for player in players])
    for _ in range(hold):
        write(last)


class _Player:
    """An agent in an environment, advanced by one step at a time."""

    episode: Any = None  # None until it has ended

    def __init__(self, spec: EnvSpec, env: gymnasium.Env, shot: Shot, layout: picture.Layout) -> None:
        self._env = env
        self._label = shot.label
        self._layout = layout
        self._steps = by_steps(env, spec.low, spec.high, shot.request)
        self._rewards: list[float] = []
        self._last: Any = None  # the tile of an episode that has ended

    @property
    def plays(self) -> bool:
        return self.episode is None

    def go_on(self) -> None:
        """Advance the episode: to its reset at the first call, then by one step; do nothing if it has ended."""
        try:
            if self.plays:
                self._rewards = next(self._steps)
        except StopIteration as end:
            self.episode = end.value
        except EnvironmentFailure as failure:
            raise EnvironmentFailure(f"{self._label}: {failure}") from None

    def tile(self) -> Any:
        """Return the tile of the episode as it is now."""
        if self._last is not None:
            return self._last
        total, steps = math.fsum(self._rewards), len(self._rewards)
        told = f"return {total:,.1f} · " + (f"step {steps}" if self.plays else f"{steps} steps")
        tile = picture.tile(self._layout, _drawn(self._env), self._label, told, ended=not self.plays)
        if not self.plays:
            self._last = tile
        return tile


if __name__ == "__main__":
    end_with(int(sys.argv[2]))
    faulthandler.enable(int(sys.argv[3]))
    serve(Connection(int(sys.argv[1])))
