"""The page of `arac watch` in a real browser, with a real run that trains in another process."""

import csv
import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import browser
import imageio.v3
import numpy as np
import pytest
from helpers import HERE
from run_folders import row, run_folder

from arac.watch.server import Server

pytestmark = pytest.mark.skipif(
    browser.program() is None, reason="needs Chromium: `apt-get install chromium`, or `make test` as root"
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.opened(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(autouse=True)
def clean(chromium):
    """No page has errors or sends requests to another server."""
    yield
    places = [event["request"]["url"] for event in chromium.told("Network.requestWillBeSent")]
    assert [place for place in places if not place.startswith(("http://127.0.0.1:", "data:", "about:"))] == []
    for complaint in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
        assert chromium.told(complaint) == []
    chromium.events.clear()


@contextmanager
def served(folder, port=0):
    with Server(folder, port) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@contextmanager
def watched(page, folder):
    """Open the page of a run in the browser for the block."""
    with served(folder) as server:
        page.open(server.address)
        yield server
        page.call("Page.navigate", url="about:blank")


def until(page, expression):
    """Wait for an expression to be true, without reloading the page."""
    deadline = time.monotonic() + 240
    while not (value := page.run(expression)):
        assert time.monotonic() < deadline, f"{expression} is not true; the page says: {text(page, 'body')[:500]}"
        time.sleep(0.1)
    return value


def text(page, selector):
    return page.run(f"document.querySelector({json.dumps(selector)}).innerText")


def shown(page, name):
    return page.run(f"document.getElementById('{name}').checkVisibility()")


POINTS = "(latest.run && latest.run.series ? latest.run.series.steps.length : 0)"
STATE = "document.getElementById('state').dataset.state"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, chromium):
    """Train a run of six evaluations that the browser watches, and return what it showed."""
    run, saw = tmp_path_factory.mktemp("watched") / "run", {}
    words = ["train", "InvertedPendulum-v5", "--steps", "600", "--run-dir", str(run), "--checkpoint-interval", "100"]
    process = subprocess.Popen([sys.executable, "-m", "arac", *words, *HERE], stdout=subprocess.DEVNULL)
    try:
        wait_for_rows(process, run, 1)
        process.send_signal(signal.SIGSTOP)  # so that the page is loaded before the run continues, however slow it is
        with watched(chromium, run):
            until(chromium, f"{POINTS} > 0 && {STATE}")
            chromium.run("window.loadedOnce = true")
            saw["early"] = chromium.run(STATE), chromium.run(POINTS), text(chromium, "#left")
            hover(chromium, 0)
            saw["tip"] = tip(chromium)
            process.send_signal(signal.SIGCONT)
            until(chromium, f"{POINTS} > {saw['early'][1]}")
            saw["tip later"] = tip(chromium)
            until(chromium, f"{STATE} == 'finished'")
            saw["end"] = chromium.run(POINTS), chromium.run("window.loadedOnce"), text(chromium, "#steps")
            time.sleep(2)  # in which it sends more requests
            saw["after"] = chromium.run(STATE)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
    return run, saw


def wait_for_rows(process, run, count):
    deadline = time.monotonic() + 240
    while not (path := run / "evaluations.jsonl").exists() or path.read_bytes().count(b"\n") < count:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


def hover(page, share):
    left, top, width, height = page.run(
        "(() => { const svg = document.querySelector('#return svg'); "
        "svg.scrollIntoView({block: 'center', behavior: 'instant'}); "
        "const box = svg.getBoundingClientRect(); return [box.x, box.y, box.width, box.height]; })()"
    )
    page.hover(left + 60 + share * (width - 80), top + height / 2)


def tip(page):
    return page.run(
        "(() => { const it = document.querySelector('#return .tip'); return it.hidden ? null : it.innerText; })()"
    )


def test_it_opens_while_the_run_trains_and_shows_new_points_without_being_loaded_again(trained):
    run, saw = trained
    state, points, left = saw["early"]
    assert state == "training"
    assert 1 <= points < 6
    assert left != "-"
    rows = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    assert saw["end"] == (len(rows), True, f"{rows[-1]['env_steps']:,} of 600")


def test_new_points_leave_the_crosshair_where_it_is(trained):
    run, saw = trained
    first = json.loads((run / "evaluations.jsonl").read_text().splitlines()[0])
    assert saw["tip"].startswith(f"{first['env_steps']} steps")
    assert saw["tip later"] == saw["tip"]


def test_it_survives_the_end_of_the_run(trained):
    assert trained[1]["after"] == "finished"


@pytest.fixture
def finished(trained, chromium):
    run, _ = trained
    with watched(chromium, run) as server:
        until(chromium, f"{POINTS} > 0 && {STATE}")
        yield chromium, server, [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]


def test_everything_of_a_run_is_there(finished, trained):
    run, _ = trained
    page, _, rows = finished
    last = rows[-1]
    assert text(page, "h1") == "ARAC on InvertedPendulum-v5, seed 0"
    cells = page.run(
        "[...document.querySelectorAll('#members tbody tr')].map(line => [...line.cells].map(c => c.innerText))"
    )
    assert [line[0] for line in cells] == ["1", "2", "3", "4", "5"]
    assert int(cells[0][1]) == last["champion"]
    with (run / "episodes.csv").open() as file:  # the episodes that selected it; the curve has new ones
        played = [row for row in csv.DictReader(file) if row["env_steps"] == str(last["env_steps"])]
    spread = np.std([float(row["return"]) for row in played if row["member"] == str(last["champion"])])
    assert cells[0][3] == f"{spread:.{1 if max(last['fitness']) >= 100 else 2}f}"
    assert [line[4] for line in cells].count("champion") == 1
    assert [line[4] for line in cells].count("elite") == len(last["elites"]) - 1
    matrix = page.run("[...document.querySelectorAll('#kl tbody td')].map(cell => cell.innerText)")
    assert matrix == ["" if a == b else f"{last['diversity']['kl'][a][b]:.2f}" for a in range(5) for b in range(5)]
    assert len(page.run("[...document.querySelectorAll('#fitness g[data-series]')].map(g => g.dataset.series)")) == 15
    assert page.run("document.querySelectorAll('#strip line[opacity]').length") == last["archive_size"]
    losses = page.run("[...document.querySelectorAll('#losses figcaption')].map(it => it.innerText)")
    first = ["critic loss", "actor loss", "entropy", "archive kl", "temperature"]
    assert losses == [*first, "ar coefficient", "repulsion acting"]
    sources = page.run("[...document.querySelectorAll('#repulsion g[data-series]')].map(g => g.dataset.series)")
    assert "other members" in sources
    assert any(source.startswith("archived") for source in sources)
    legend = page.run("[...document.querySelectorAll('#repulsion-legend > span')].map(it => it.innerText)")
    assert set(legend) == set(sources)
    assert len(page.run("[...document.querySelectorAll('#log p')].map(it => it.innerText)")) == len(rows)
    assert text(page, "#log p").startswith(f"{last['env_steps']} steps · generation {last['generation']} · fitness ")
    assert "hidden size" in text(page, "#settings")
    assert not shown(page, "film")
    assert not shown(page, "trouble")


def test_the_newest_video_is_shown_and_can_be_sought(finished, trained, tmp_path):
    page, _, _ = finished
    films = trained[0] / "videos"
    films.mkdir()
    frames = np.zeros((30, 64, 64, 3), np.uint8)
    for name, length in (("first.mp4", 30), ("new & better.mp4", 15)):
        imageio.v3.imwrite(tmp_path / name, frames[:length], fps=30)
        (tmp_path / name).rename(films / name)
        until(page, f"document.getElementById('film-note').innerText == {json.dumps(name)}")
        until(page, "document.querySelector('video').readyState > 1")
    sought = page.run(
        "new Promise(done => { const film = document.querySelector('video'); "
        "film.onseeked = () => done(film.currentTime); film.currentTime = 0.3; })"
    )
    assert sought == pytest.approx(0.3)
    assert page.run("document.querySelector('video').duration") == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(finished, scheme):
    page, server, _ = finished
    page.open(server.address, width=390, height=844, scheme=scheme)
    until(page, f"{POINTS} > 0 && {STATE}")
    assert page.run("document.documentElement.scrollWidth") <= 390
    assert page.run("document.body.scrollWidth") <= 390


def test_a_run_that_breaks_is_said_in_words_and_comes_back_when_it_is_mended(chromium, tmp_path):
    run = run_folder(tmp_path / "run")
    with watched(chromium, run):
        until(chromium, f"{STATE} == 'finished'")
        (run / "config.toml").rename(run / "kept")
        until(chromium, f"{STATE} == 'broken'")
        assert "This run cannot be read: there is no config.toml in it." in text(chromium, "#trouble")
        assert shown(chromium, "return")  # the data from before it broke
        (run / "kept").rename(run / "config.toml")
        until(chromium, f"{STATE} == 'finished'")
        assert not shown(chromium, "trouble")
    (run / "evaluations.jsonl").write_text("nonsense\n")
    with watched(chromium, run):
        until(chromium, f"{STATE} == 'broken'")
        assert "line 1 of its evaluations.jsonl is not an evaluation" in text(chromium, "#trouble")
        assert not shown(chromium, "return")


def test_a_run_without_an_evaluation_says_when_the_first_one_comes(chromium, tmp_path):
    run = run_folder(tmp_path / "run", [], planned=60_000, eval_interval=5000)
    with watched(chromium, run):
        until(chromium, f"{STATE} == 'gone'")
        assert "the first one comes when the run is at 5,000 steps" in text(chromium, "#notice")
        assert not shown(chromium, "measured")
        assert text(chromium, "#steps") == "0 of 60,000"
        (run / "evaluations.jsonl").write_text(json.dumps(row(5000, 7.0)) + "\n")
        until(chromium, f"{POINTS} == 1")
        assert shown(chromium, "return")


def test_a_single_agent_has_no_population(chromium, tmp_path):
    run = run_folder(tmp_path / "run", [], algo="sac", planned=20_000)
    one = {**row(10_000, 5.0), "fitness": [5.0], "archive_size": 0, "diversity": {"mean_kl": None, "kl": [[0.0]]}}
    (run / "evaluations.jsonl").write_text(json.dumps(one) + "\n")
    with watched(chromium, run):
        until(chromium, f"{POINTS} == 1 && {STATE}")
        assert shown(chromium, "return")
        assert not shown(chromium, "population")


def test_a_server_that_has_ended_is_said_in_words(chromium, tmp_path):
    with served(run_folder(tmp_path / "run")) as server:
        chromium.open(server.address)
        until(chromium, f"{STATE} == 'finished'")
    until(chromium, f"{STATE} == 'lost'")
    assert "`arac watch` has ended" in text(chromium, "#trouble")
    with served(tmp_path / "run", server.server_address[1]):
        until(chromium, f"{STATE} == 'finished'")
        chromium.call("Page.navigate", url="about:blank")
    assert {entry["entry"]["text"] for entry in chromium.told("Log.entryAdded")} == {
        "Failed to load resource: net::ERR_CONNECTION_REFUSED"
    }
    chromium.events[:] = [event for event in chromium.events if event["method"] != "Log.entryAdded"]
