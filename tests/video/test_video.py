"""Videos are as long as the episodes, with a tile for each policy, and never incomplete files."""

import os
import signal
import threading
import time
from ctypes.util import find_library
from fractions import Fraction

import imageio.v3 as iio
import numpy as np
import pytest
from drawing import COLOUR, Painted, Unseen
from helpers import Constant

from arac import envs
from arac.errors import EnvironmentFailure, StorageFailure, UserError
from arac.rollout.episode import EpisodeRequest, run
from arac.video import film, film_scenes, limited, show
from arac.video.camera import prepared
from arac.video.encoding import encoder, pace
from arac.video.picture import arrange, tile
from arac.video.scenes import Shot

# They end after 40, 20 and 10 steps, with a reward of 0.5, -0.25 and 1 per step beside that of the start.
POLICIES = [Constant(0.5, 1.0), Constant(-0.25, 0.0), Constant(1.0, -0.5)]
LENGTHS = [40, 20, 10]
HOLD = 25  # frames at 25 per second: Painted's 50 steps per second are every second one


def frames(path):
    return iio.imread(path, plugin="FFMPEG")


def request(policy, seed=0):
    return EpisodeRequest(policy, "mode", seed, "video", (0, 0, 0), record=False)


@pytest.fixture(scope="module")
def spec():
    return envs.check(Painted, max_episode_steps=100)


@pytest.fixture(scope="module")
def population_video(spec, tmp_path_factory):
    path = tmp_path_factory.mktemp("video") / "all.mp4"
    return path, film(spec, POLICIES, ["first", "second", "third"], path)


def test_it_has_a_frame_for_every_second_step_and_a_second_of_the_last_one(population_video):
    path, _ = population_video
    assert len(frames(path)) == 1 + max(LENGTHS) // 2 + HOLD
    about = iio.immeta(path, plugin="FFMPEG")
    assert (about["codec"], about["fps"]) == ("h264", 25)
    assert about["pix_fmt"].startswith("yuv420p"), "what browsers play"
    assert list(path.parent.iterdir()) == [path], "no temporary file is left"


def test_the_returns_are_those_of_the_same_episodes_unseen(population_video, spec):
    env = envs.make(spec)
    unseen = [run(env, spec.low, spec.high, request(policy)) for policy in POLICIES]
    assert [len(episode) for episode in unseen] == LENGTHS
    assert population_video[1] == [episode.total for episode in unseen]


def test_all_start_alike_and_another_seed_gives_another_start(population_video, spec, tmp_path):
    starts = {round(total / length - policy.action[0], 5) for total, length, policy in zip(
        population_video[1], LENGTHS, POLICIES, strict=True
    )}  # fmt: skip
    assert len(starts) == 1
    [other] = film(spec, POLICIES[2:], ["third"], tmp_path / "other.mp4", seed=1)
    assert other != population_video[1][2]


def test_an_episode_that_has_ended_is_dimmed_and_the_others_go_on(population_video):
    shown = frames(population_video[0]).astype(int)
    layout = arrange(3, (60, 80), 480)
    assert shown.shape[1:3] == layout.size[::-1]
    top_left = [shown[:, layout.heading + 8, place * layout.width + 8].mean(-1) for place in range(3)]
    for brightness, length in zip(top_left, LENGTHS, strict=True):
        drawn = 1 + length // 2
        np.testing.assert_allclose(brightness[:drawn], COLOUR, atol=6)
        np.testing.assert_allclose(brightness[drawn:], 0.5 * COLOUR, atol=6)


def test_the_picture_in_each_tile_is_that_of_its_own_environment(population_video):
    """The bar is as high as the step's number: in the end 40, 20 and 10 of 60 pixels."""
    last = frames(population_video[0])[-1].astype(int)
    layout = arrange(3, (60, 80), 480)
    for place, length in enumerate(LENGTHS):
        column = last[layout.heading : layout.heading + layout.height, place * layout.width + layout.width // 2]
        assert (column[:, 0] > column[:, 2] + 40).sum() == pytest.approx(layout.height * length / 60, abs=8)


def test_the_headings_tell_the_tiles_apart_and_follow_the_return(population_video):
    shown = frames(population_video[0]).astype(int)
    layout = arrange(3, (60, 80), 480)
    headings = shown[:, : layout.heading, : layout.width * 3].reshape(len(shown), layout.heading, 3, layout.width, 3)
    labels, returns = headings[:, : layout.heading // 2], headings[:, layout.heading // 2 :]
    assert (labels.max((1, 3, 4)) > 200).all(), "there is writing in each"
    assert np.abs(labels[0, :, 0] - labels[0, :, 1]).max() > 100, "first, second"
    assert np.abs(labels[0] - labels[-1]).max() < 60, "but for the encoder, labels stay"
    assert (np.abs(returns[0] - returns[-1]).max((0, 2, 3)) > 100).all(), "returns do not"


def test_dimming_and_labels_of_a_tile():
    layout = arrange(1, (60, 80), 480)
    picture = np.full((60, 80, 3), 100, np.uint8)
    bright, dim, other = (
        np.asarray(tile(layout, picture, label, "return 1", ended=ended), int)
        for label, ended in (("one", False), ("one", True), ("★", False))
    )
    assert (bright[layout.heading :, :-4] == 100).all()
    assert (dim[layout.heading :, :-4] == 50).all()
    np.testing.assert_array_equal(bright[: layout.heading], dim[: layout.heading])
    assert (bright[: layout.heading // 2] != other[: layout.heading // 2]).any()


@pytest.mark.parametrize(
    ("count", "grid"), [(1, (1, 1)), (2, (2, 1)), (3, (3, 1)), (5, (3, 2)), (8, (4, 2)), (10, (5, 2)), (40, (10, 4))]
)
def test_the_grid(count, grid):
    layout = arrange(count, (333, 517), 480)
    assert (layout.columns, layout.rows) == grid
    assert count <= layout.columns * layout.rows
    assert not any(length % 2 for length in (*layout.size, layout.width, layout.height, layout.heading))
    assert 240 <= layout.width <= 480
    assert layout.height / layout.width == pytest.approx(333 / 517, abs=0.01)


@pytest.mark.parametrize(
    ("render_fps", "stride", "fps"),
    [(20, 1, 20), (125, 5, 25), (67, 3, Fraction(67, 3)), (30, 1, 30), (None, 1, 30), (12.5, 1, Fraction(25, 2))],
)
def test_videos_run_in_real_time_with_at_most_thirty_frames_a_second(render_fps, stride, fps):
    assert pace(render_fps, 30) == (stride, fps)


def test_scenes_follow_each_other_in_a_gif(spec, tmp_path):
    scenes = [[Shot(request(POLICIES[2], seed), f"start {seed}")] for seed in (0, 1)]
    heard = []
    episodes = film_scenes(spec, scenes, tmp_path / "two.gif", Counting(heard))
    assert [len(one) for [one] in episodes] == [10, 10]
    assert len(heard) == 2 * 11, "a step each, and the resets"
    shown = iio.imread(tmp_path / "two.gif", plugin="pillow", mode="RGB")
    layout = arrange(1, (60, 80), 240)
    assert shown.shape[1:3] == layout.size[::-1]
    # 50 steps per second are 12.5 frames of four; equal frames are one in a gif, which lasts longer.
    durations = [iio.immeta(tmp_path / "two.gif", index=index)["duration"] for index in range(len(shown))]
    assert sum(durations) / 1000 == pytest.approx(2 * (3 + 13) / 12.5, abs=0.1)


class Counting:
    """Progress that counts frames and displays nothing."""

    def __init__(self, heard):
        self.heard = heard

    def advance(self):
        self.heard.append(1)


def test_episodes_can_be_cut_short(spec, tmp_path):
    film(spec, POLICIES[:1], ["first"], tmp_path / "short.mp4", max_steps=6)
    assert len(frames(tmp_path / "short.mp4")) == 1 + 3 + HOLD
    assert limited(spec, 1000).max_episode_steps == 100, "never longer than they are"
    with pytest.raises(UserError, match="at least 1, got 0"):
        film(spec, POLICIES[:1], ["first"], tmp_path / "none.mp4", max_steps=0)


@pytest.mark.parametrize("name", ["video.avi", "video", "missing/video.mp4", "folder.mp4"])
def test_a_path_that_is_none_is_refused_before_anything_is_drawn(name, spec, tmp_path):
    (tmp_path / "folder.mp4").mkdir()
    with pytest.raises(
        UserError, match=r"ends in \.mp4 or \.gif, got|There is no folder .*/missing; create|is a folder; give"
    ):
        film(spec, POLICIES, ["a", "b", "c"], tmp_path / name)


def test_an_environment_without_pictures_is_refused(tmp_path):
    spec = envs.check(Unseen, max_episode_steps=10)
    with pytest.raises(UserError, match=r"Unseen cannot be rendered: its render_modes are \[\]"):
        film(spec, POLICIES[:1], ["a"], tmp_path / "a.mp4")


def test_a_lambda_and_a_local_policy_are_filmed(tmp_path):
    class Mine(Constant):
        pass

    spec = envs.check(lambda **kwargs: Painted(**kwargs), max_episode_steps=10)  # noqa: PLW0108
    film(spec, [Mine(0, 0)], ["a"], tmp_path / "a.mp4")
    assert (tmp_path / "a.mp4").stat().st_size > 0


def test_what_cannot_be_sent_is_refused(spec, tmp_path):
    mine = Constant(0, 0)
    object.__setattr__(mine, "lock", threading.Lock())
    with pytest.raises(UserError, match="cannot be sent to another process"):
        film(spec, [mine], ["a"], tmp_path / "a.mp4")
    with pytest.raises(UserError, match="cannot be sent to another process"):
        film(envs.check(Painted(), max_episode_steps=10), POLICIES[:1], ["a"], tmp_path / "a.mp4")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("trouble", "error", "said"),
    [
        ("nan", EnvironmentFailure, r"agent 7: .*Painted gave an observation that is not finite at step 3"),
        (
            "cannot draw",
            EnvironmentFailure,
            r"\(egl: RuntimeError: the paint has dried up\): .*apt-get install libosmesa6",
        ),
        ("needs a package", UserError, "cannot be drawn: paint is not installed, run `pip install paint`"),
        ("crashes", EnvironmentFailure, "lost the process that films it: it was killed by SIGSEGV"),
    ],
)
def test_trouble_is_told_and_the_old_video_stays(trouble, error, said, tmp_path):
    spec = envs.check(Painted, max_episode_steps=20, kwargs={"trouble": trouble, "length": 10})
    (tmp_path / "a.mp4").write_text("older")
    with pytest.raises(error, match=said):
        film(spec, POLICIES[:1], ["agent 7"], tmp_path / "a.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]
    assert (tmp_path / "a.mp4").read_text() == "older"


def test_a_window_that_cannot_be_opened():
    spec = envs.check(Painted, max_episode_steps=20, kwargs={"trouble": "cannot draw"})
    with pytest.raises(EnvironmentFailure, match=r"the paint has dried up\): `--video FILE.mp4` films it instead"):
        next(show(spec, [request(POLICIES[0])]))


def test_closing_the_window_ends_the_show_and_is_no_failure():
    """Gymnasium's window crashes when it is closed, as this environment does at its fourth step, after one episode."""
    spec = envs.check(Painted, max_episode_steps=20, kwargs={"trouble": "crashes", "length": 6})
    shown = show(spec, [request(Constant(0, 0)), request(Constant(0, 1)), request(Constant(0, 0))])
    assert [len(episode) for episode in shown] == [3]


def test_a_window_that_is_lost_before_a_step_was_seen_is_a_failure():
    spec = envs.check(Painted, max_episode_steps=20, kwargs={"trouble": "crashes at once"})
    with pytest.raises(EnvironmentFailure, match=r"Painted lost the process that shows it: it was killed by SIGSEGV"):
        next(show(spec, [request(POLICIES[0])]))


def test_mujoco_where_nothing_can_draw(tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disable")
    with pytest.raises(
        EnvironmentFailure, match=r"Hopper-v5 cannot be drawn .*; on Debian, `apt-get install libosmesa6`"
    ):
        film(envs.check("Hopper-v5"), [Constant(0, 0, 0)], ["a"], tmp_path / "a.mp4")


@pytest.mark.usefixtures("signals")
def test_ctrl_c_leaves_no_file_behind(tmp_path):
    spec = envs.check(Painted, max_episode_steps=100_000, kwargs={"length": 100_000})

    class Interrupting(Counting):
        def advance(self):
            if not self.heard:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)
            super().advance()

    with pytest.raises(KeyboardInterrupt):
        film_scenes(spec, [[Shot(request(POLICIES[0]), "a")]], tmp_path / "a.mp4", Interrupting([]))
    assert not list(tmp_path.iterdir())


def test_what_the_encoder_complains_of_is_told(tmp_path):
    def encode():
        with encoder(tmp_path / "missing" / "a.mp4", (16, 16), Fraction(10)) as write:
            for _ in range(1000):
                write(np.zeros((16, 16, 3), np.uint8))

    with pytest.raises(StorageFailure, match=r"The video cannot be encoded: .*No such file"):
        encode()


@pytest.mark.parametrize(("kwargs", "camera"), [({}, "track"), ({"camera_id": 3}, None)])
@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Hopper-v5", "arac/SparseHumanoid-v0", "arac/HumanoidRllab-v0"])
def test_the_camera_follows_unless_another_was_asked_for(env_id, kwargs, camera):
    env = prepared(envs.check(env_id, kwargs={"render_mode": "rgb_array", **kwargs}))
    renderer = env.unwrapped.mujoco_renderer
    assert renderer.camera_id == (renderer.model.camera(camera).id if camera else 3)


@pytest.mark.skipif(find_library("OSMesa") is None, reason="drawing without a screen needs Debian's libosmesa6")
def test_mujoco_is_filmed(tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    spec = envs.check("HalfCheetah-v5")
    policies = [Constant(0, 0, 0, 0, 0, 0), Constant(1, 1, 1, -1, -1, -1)]
    returns = film(spec, policies, ["one", "two"], tmp_path / "a.mp4", max_steps=8)
    short = limited(spec, 8)
    assert returns == [run(envs.make(short), spec.low, spec.high, request(policy)).total for policy in policies]
    shown = frames(tmp_path / "a.mp4").astype(int)
    assert len(shown) == 1 + 8 + 20
    layout = arrange(2, (480, 480), 480)
    left, right = shown[:, layout.heading :, : layout.width], shown[:, layout.heading :, layout.width :]

    def unlike(one, other):
        return (np.abs(one - other).max(-1) > 60).mean()

    assert unlike(left[0], right[0]) < 0.001, "they start alike"
    assert unlike(right[0], right[8]) > 0.01, "move"
    assert unlike(left[8], right[8]) > 0.01, "and not in the same way"
