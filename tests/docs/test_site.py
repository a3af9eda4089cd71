"""The documentation's site builds without a warning and works from the disk without a network."""

import dataclasses
import importlib.util
import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import browser
import pytest

import arac
from arac.agents.classes import AGENTS
from arac.algorithms.registry import ALGORITHMS

ROOT = Path(__file__).parents[2]
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Loads(HTMLParser):
    """The resources that a page loads, as opposed to its links."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag in LOADS and dict(attrs).get("rel") != "canonical":
            self.found.append(dict(attrs).get(LOADS[tag]) or "")


def test_every_page_is_there_and_in_the_menu(site):
    menu = (site / "index.html").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").exists()
        assert f'href="{page.stem}.html"' in menu, f"{page.name} is not in the nav of mkdocs.yml"


def test_pages_and_styles_load_nothing_from_another_host_and_all_that_they_load_is_there(site):
    for page in site.glob("*.html"):
        for path in Loads(page.read_text()).found:
            assert not re.match("https?:|//", path), (page.name, path)
            assert page.name == "404.html" or not path or (site / path.partition("?")[0]).exists(), (page.name, path)
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text())


def test_every_setting_of_every_algorithm_is_explained(site):
    text = (site / "algorithms.html").read_text()
    for algorithm in ALGORITHMS.values():
        for field in dataclasses.fields(algorithm.config):
            assert f"<code>{field.name}</code>" in text
    assert "<!-- settings" not in text
    assert "Weight of attraction and repulsion (lambda); auto adapts it" in text


def test_the_reference_has_all_that_users_are_told_to_import(site):
    text = (site / "reference.html").read_text()
    methods = ("learn", "predict", "evaluate", "export", "save", "load", "resume", "population", "archive", "champion")
    shown = {f"arac.ARAC.{name}" for name in methods} | {
        "arac.agents.members.Member.predict",
        "arac.agents.members.Member.export",
    }
    alike = {agent.__name__ for agent in AGENTS.values()} | {"Agent"}
    shown |= {f"arac.{name}" for name in arac.__all__ if name not in alike}
    imports = re.compile(r"^from (arac[\w.]*) import (.+)$", re.MULTILINE)
    for page in (ROOT / "docs").glob("*.md"):
        for module, names in imports.findall(page.read_text()):
            shown |= {f"{module}.{name.strip()}" for name in names.split(",") if name.strip() not in alike}
    shown |= {
        f"arac.models.policies.custom.CustomPolicy.{name}" for name in ("init", "act", "sample", "log_prob", "mode")
    }
    found = set(re.findall(r'id="(arac\.[\w.]+)"', text))
    found |= {name.rpartition(".")[0] for name in found}  # a module counts if something of it is there
    assert not shown - found
    assert all(f"<code>{name}</code>" in text for name in alike)


def test_links_to_sources_are_names_and_those_to_results_work(site):
    assert "<code>arac/learning/td3_updates.py</code>" in (site / "baselines.html").read_text()
    assert 'src="results/didactic/didactic.png"' in (site / "experiments.html").read_text()
    assert (site / "results" / "didactic" / "didactic.png").exists()
    assert not any('="../' in page.read_text() for page in site.glob("*.html"))


@pytest.mark.skipif(browser.program() is None, reason="Chromium is not installed")
def test_it_opens_from_the_disk_and_can_be_searched(site, tmp_path):
    with browser.opened(tmp_path) as page:
        page.open(site / "explained.html")
        assert page.run("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
        page.click(".md-search__input")
        page.call("Input.insertText", text="niche")
        page.press("Shift")  # the search looks when a key is released; inserted text alone has none
        deadline, results = time.monotonic() + 20, "document.querySelectorAll('.md-search-result__item').length"
        while not page.run(results) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert page.run(results) > 0
        asked = {event["request"]["url"] for event in page.told("Network.requestWillBeSent")}
        assert all(url.startswith(("file:", "data:", "about:")) for url in asked)
        assert not page.told("Runtime.exceptionThrown")


def test_the_figures_are_drawn_by_the_library(tmp_path):
    script = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures.py")
    figures = importlib.util.module_from_spec(script)
    script.loader.exec_module(figures)
    figures.main(tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert len(drawn) == len(figures.FIGURES)
    assert drawn <= {path.name for path in (ROOT / "docs" / "images").iterdir()}
    assert all(f"images/{name}" in (ROOT / "docs" / "explained.md").read_text() for name in drawn)
