"""A run's events are read by TensorBoard's code and shown by its server."""

import io
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request

import helpers
import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import arac
from arac.storage import checkpoint, metrics
from arac.utils.plotting import heat_map

SMALL = {**helpers.SMALL, "checkpoint_interval": 100}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train ARAC, kill it after an evaluation and before its checkpoint, and resume it."""
    folder = tmp_path_factory.mktemp("tensorboard") / "run"
    arac.ARAC("InvertedPendulum-v5", seed=1, **SMALL).learn(400, run_dir=folder)
    shutil.rmtree(checkpoint.list_checkpoints(folder)[-1])
    arac.resume(folder, total_steps=500, log=lambda _: None)
    assert len(list((folder / "tensorboard").iterdir())) == 2
    return folder


@pytest.fixture(scope="module")
def events(run):
    return EventAccumulator(str(run / "tensorboard"), size_guidance={"images": 0, "histograms": 0}).Reload()


def test_scalars_are_the_rows_and_none_is_there_twice(run, events):
    rows = metrics.read_evaluations(run)
    for tag in events.Tags()["scalars"]:
        assert [event.step for event in events.Scalars(tag)] == [row["env_steps"] for row in rows]
    shown = [event.value for event in events.Scalars("eval/champion_return")]
    assert shown == pytest.approx([row["champion_return"] for row in rows])


def test_histograms_hold_the_fitness_of_the_population_and_of_the_archive(run, events):
    rows = metrics.read_evaluations(run)
    shown = events.Histograms("population/fitness")
    assert [event.step for event in shown] == [row["env_steps"] for row in rows]
    for event, row in zip(shown, rows, strict=True):
        histogram, fitness = event.histogram_value, row["fitness"]
        assert (histogram.num, sum(histogram.bucket)) == (5, 5)
        assert (histogram.min, histogram.max) == pytest.approx((min(fitness), max(fitness)))
        assert histogram.sum == pytest.approx(sum(fitness))
    archived = [event.histogram_value for event in events.Histograms("archive/fitness")]
    assert [histogram.num for histogram in archived] == [row["archive_size"] for row in rows]


def test_the_kl_matrix_is_a_picture_with_its_colours(run, events):
    rows, shown = metrics.read_evaluations(run), events.Images("population/kl")
    assert [event.step for event in shown] == [row["env_steps"] for row in rows]
    matrix = np.array(rows[-1]["diversity"]["kl"])
    picture = Image.open(io.BytesIO(shown[-1].encoded_image_string)).convert("RGB")
    assert picture.size == (shown[-1].width, shown[-1].height)
    drawn = np.asarray(picture, int).reshape(-1, 3)
    cells = colormaps["viridis"](matrix / matrix.max(), bytes=True)[..., :3].reshape(-1, 3).astype(int)
    assert all((abs(drawn - cell) <= 12).all(1).sum() > 100 for cell in cells), "the event has 256 colours"
    assert np.ptp(cells, axis=0).max() > 100, "cells differ"


def test_the_config_is_there_as_text_once(run, events):
    [event] = events.Tensors("config/text_summary")
    [text] = event.tensor_proto.string_val
    then, now = text.decode().removeprefix("```\n").removesuffix("```"), (run / "config.toml").read_text()
    assert then == now.replace("steps = 500\n", "steps = 400\n", 1)


def test_an_algorithm_without_densities_or_with_one_member_has_no_picture(tmp_path):
    evaluation = metrics.Evaluation(10, 1, *np.ones((2, 1, 2)), np.array([np.nan]), np.array([0]), np.eye(1), 0, {})
    (tmp_path / "config.toml").write_text("steps = 1\n")
    written = metrics.Metrics(tmp_path)
    written.evaluation(evaluation, {})
    pair = evaluation._replace(fitness=np.array([1.0, 2.0]), kl=np.zeros((2, 2)), env_steps=20)
    written.evaluation(pair, {})
    written.close()
    tags = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Tags()
    assert (tags["images"], tags["histograms"]) == ([], ["population/fitness"])


@pytest.mark.parametrize("size", [2, 10, 60, 1000])
def test_a_matrix_of_any_size_and_any_numbers_is_drawn(size):
    matrix = np.random.default_rng(0).gamma(1, 1e5, (size, size))
    matrix[0] = [np.nan, np.inf, *np.zeros(size - 2)]
    picture = heat_map(matrix, "title")
    assert max(picture.size) < 1200
    assert (192, 192, 192) in set(picture.getdata()), "what is not finite is grey"


def test_drawing_leaves_the_backend_of_the_users_figures_alone():
    code = (
        "import sys; import numpy as np; from arac.utils.plotting import heat_map; heat_map(np.eye(2), 'title');"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


@pytest.fixture(scope="module")
def server(run):
    """Start a TensorBoard server on the run, and return a function that sends it requests."""
    words = [sys.executable, "-m", "tensorboard.main", "--logdir", str(run / "tensorboard"), "--port", "0"]
    process = subprocess.Popen([*words, "--host", "127.0.0.1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        for line in process.stderr:
            if found := re.search(rb"at (http://127\.0\.0\.1:\d+/)", line):
                break
        address = found[1].decode()

        def ask(path):
            with urllib.request.urlopen(f"{address}data/{path}", timeout=60) as answer:
                return answer.read()

        yield ask
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_the_real_server_lists_and_shows_all_of_it_once(run, server):
    rows, deadline = metrics.read_evaluations(run), time.monotonic() + 120
    steps = [row["env_steps"] for row in rows]
    asked = "plugin/scalars/scalars?run=.&tag=eval/champion_return"
    while "." not in json.loads(server("plugin/scalars/tags")) or len(json.loads(server(asked))) < len(rows):
        assert time.monotonic() < deadline, "the server never had all rows"
        time.sleep(0.2)
    assert [step for _, step, _ in json.loads(server(asked))] == steps
    tags = {name: set(json.loads(server(f"plugin/{name}/tags"))["."]) for name in ("histograms", "images", "text")}
    assert tags == {
        "histograms": {"population/fitness", "archive/fitness"},
        "images": {"population/kl"},
        "text": {"config/text_summary"},
    }
    histograms = json.loads(server("plugin/histograms/histograms?run=.&tag=population/fitness"))
    assert [step for _, step, _ in histograms] == steps
    [text] = json.loads(server("plugin/text/text?run=.&tag=config/text_summary"))
    assert "<code>" in text["text"]
    assert "InvertedPendulum-v5" in text["text"]
    images = json.loads(server("plugin/images/images?run=.&tag=population/kl&sample=0"))
    assert [image["step"] for image in images] == steps
    assert server(f"plugin/images/individualImage?{images[-1]['query']}").startswith(b"\x89PNG")
