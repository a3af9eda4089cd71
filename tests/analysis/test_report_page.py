"""The report's page in a real browser: it needs no network, draws its charts, and reacts to pointer and keyboard."""

import json
import re

import browser
import pytest
from run_folders import data_of, run_folder

from arac.analysis import report

pytestmark = pytest.mark.skipif(
    browser.program() is None, reason="needs Chromium: `apt-get install chromium`, or `make test` as root"
)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Write a report on two tasks, with two or three seeds, a run of one evaluation and an interrupted run."""
    runs = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        run_folder(runs / f"b{seed}", [50.0 * n for n in range(1, 9 - 2 * seed)], algo="sac", seed=seed, planned=80_000)
    for seed in (0, 1, 2):
        run_folder(runs / f"a{seed}", [100.0 * n + 10 * seed for n in range(1, 9)], seed=seed)
        run_folder(runs / f"c{seed}", [7.0 * n + seed for n in range(1, 4)], env="Ant-v5", algo="sac", seed=seed)
        run_folder(runs / f"d{seed}", [5.0 * n + seed for n in range(1, 4)], env="Ant-v5", algo="td3", seed=seed)
    run_folder(runs / "dot", [333.0], algo="td3", planned=80_000)
    report.write([runs], runs / "out")
    return runs / "out" / "index.html"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.opened(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(chromium, drawn):
    chromium.events.clear()
    chromium.open(drawn)
    choose(chromium, "task", "Hopper-v5")
    return chromium


def choose(page, select, name):
    page.run(
        f"(() => {{ const it = document.getElementById('{select}'); "
        f"it.value = [...it.options].find(one => one.text == {json.dumps(name)}).value; "
        "it.dispatchEvent(new Event('change')); })()"
    )


def lines(page, chart="curve"):
    return page.run(
        f"[...new Set([...document.querySelectorAll('#{chart} g[data-series]')].map(g => g.dataset.series))]"
    )


def hover(page, share):
    """Move the pointer over the curves, to a share of the way from the first evaluation to the last."""
    page.run("document.getElementById('curve').scrollIntoView({block: 'center', behavior: 'instant'})")
    left, top, width, height = page.run(
        "(() => { const box = document.querySelector('#curve svg').getBoundingClientRect(); "
        "return [box.x, box.y, box.width, box.height]; })()"
    )
    page.hover(left + 60 + share * (width - 80), top + height / 2)


def tip(page):
    """Return the tooltip's text: the steps, and a line for each algorithm."""
    return page.run(
        "(() => { const it = document.querySelector('#curve .tip'); if (it.hidden) return null; "
        "return [it.querySelector('.when').textContent, Object.fromEntries([...it.querySelectorAll('tr')].map("
        "row => [row.cells[0].textContent, [row.cells[1].textContent, row.cells[2].textContent]]))]; })()"
    )


def test_it_loads_alone_and_without_complaints(page, drawn):
    assert page.told("Runtime.exceptionThrown") == []
    assert page.told("Runtime.consoleAPICalled") == []
    assert page.told("Log.entryAdded") == []
    asked = [event["request"]["url"] for event in page.told("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith("data:")] == [drawn.as_uri()]


def test_another_task_is_drawn(page):
    assert lines(page) == ["ARAC", "SAC", "TD3"]
    before = page.run("document.getElementById('curve').innerHTML")
    choose(page, "task", "Ant-v5")
    assert lines(page) == ["SAC", "TD3"]
    assert page.run("document.getElementById('curve').innerHTML") != before
    assert "as measured" in page.run("document.getElementById('curve-note').textContent")
    page.click("input[value=paper]")
    assert "Not smoothed, for having fewer than 7 evaluations: SAC; TD3." in page.run(
        "document.getElementById('curve-note').textContent"
    )


def test_hovering_shows_the_right_values(page, drawn):
    hover(page, 1.0)
    steps, shown = tip(page)
    curves = {curve["variant"]: curve for curve in data_of(drawn.read_text())["tasks"][1]["curves"]}
    assert steps == "80,000 steps"
    assert shown["ARAC"][0] == f"{curves[0]['mean']['value'][-1]:.1f}" == "810.0"
    assert shown["ARAC"][1] == "± 10.0"  # as many decimals as the mean has
    assert shown["SAC"] == ["400.0", "· 1 run"]
    assert shown["TD3"] == ["-", ""]  # its only evaluation was long before
    hover(page, 0.0)
    assert tip(page)[0] == "10,000 steps"
    assert tip(page)[1]["SAC"] == ["50.00", "± 0.00"]
    assert tip(page)[1]["TD3"] == ["333.0", "· 1 run"]
    page.hover(5, 5)
    assert tip(page) is None


def test_the_robust_style_shows_the_mean_of_the_middle_as_measured(page):
    page.click("input[value=robust]")
    hover(page, 1.0)
    value, between = tip(page)[1]["ARAC"]
    low, high = map(float, between.strip("[]").split(", "))
    assert value == "810.0"
    assert (low + high) / 2 == pytest.approx(810)
    assert (high - low) / 2 == pytest.approx(4.303 * 10 / 3**0.5, rel=0.05)  # the t interval of three runs
    assert tip(page)[1]["SAC"] == ["400.0", "· 1 run"]
    hover(page, 0.0)
    assert tip(page)[1]["SAC"] == ["50.00", ""], "two runs have no interval"


def test_an_algorithm_can_be_hidden_and_shown_again(page):
    page.click("button[data-variant='0']")
    assert lines(page) == ["SAC", "TD3"]
    assert page.run("document.querySelector('button[data-variant=\"0\"]').getAttribute('aria-pressed')") == "false"
    hover(page, 0.5)
    assert "ARAC" not in tip(page)[1]
    page.click("button[data-variant='0']")
    assert lines(page) == ["ARAC", "SAC", "TD3"]


def test_single_seeds_are_thin_lines(page):
    count = "document.querySelectorAll('#curve g[data-series=ARAC] path[stroke-width=\"1\"]').length"
    assert page.run(count) == 0
    page.click("#seeds")
    assert page.run(count) == 3


def test_the_keyboard_moves_through_the_values(page):
    page.run("document.querySelector('#curve svg').focus()")
    for key, steps in (("ArrowRight", "10,000"), ("ArrowRight", "20,000"), ("End", "80,000"), ("ArrowLeft", "70,000")):
        page.press(key)
        assert tip(page)[0] == f"{steps} steps"
    page.press("Escape")
    assert tip(page) is None


def test_the_population_of_a_run_and_its_divergences(page):
    choose(page, "run", "Hopper-v5 · ARAC · seed 1")
    assert lines(page, "fitness") == ["member 0", "member 1", "member 2", "champion"]
    cells = page.run("[...document.querySelectorAll('#kl tbody td')].map(cell => cell.textContent)")
    assert cells == ["", "0.10", "0.20", "1.00", "", "1.20", "2.00", "2.10", ""]
    assert lines(page, "mean-kl") == ["mean KL"]


def test_the_comparison_of_one_task(page):
    cells = "[...document.querySelectorAll('#improvement tbody tr:first-child td')].map(c => c.textContent)"
    choose(page, "scope", "Ant-v5")
    assert re.fullmatch(r"1\.000\.\d\d to 1\.00", page.run(cells)[1])
    choose(page, "scope", "Hopper-v5")
    assert page.run(cells) == ["", "1.00too few runs"]
    assert lines(page, "profile") == ["ARAC", "SAC"]


def test_what_has_not_got_to_the_comparison_is_named_and_has_a_dash(page):
    choose(page, "scope", "Hopper-v5")
    note = page.run("document.getElementById('scope-note').textContent")
    assert "Hopper-v5 at 80,000" in note
    assert "left out: SAC seed 1 (at 60,000); TD3 seed 0 (at 10,000)." in note
    label = page.run("document.querySelector('#iqm svg').getAttribute('aria-label')")
    assert re.fullmatch(r"Interquartile mean: ARAC 810\.0 \[78\d\.\d, 83\d\.\d\]; SAC 400\.0; TD3 -", label)
    assert page.run("document.querySelectorAll('#iqm path').length") == 2
    choose(page, "scope", "all tasks")
    names = page.run("[...document.querySelectorAll('#iqm text.strong')].map(it => it.textContent)")
    assert names == ["ARAC", "SAC", "TD3"]
    details = page.run("[...document.querySelectorAll('#iqm text.details')].map(t => t.firstChild.textContent)")
    assert details == ["1 of 2 tasks", "1 of 2 tasks"]


def test_a_profile_says_above(page):
    """A run at a threshold is not above it, so that the profile is 0 at 1."""
    choose(page, "scope", "Hopper-v5")
    page.run("document.querySelector('#profile svg').focus()")
    page.press("End")
    told = "[...document.querySelectorAll('#profile .when, #profile .tip td[data-value]')].map(it => it.textContent)"
    assert page.run(told) == ["above 1.00", "0.00", "0.00"]


def test_variants_fit_on_a_desktop_and_scroll_inside_their_tables_on_a_phone(chromium, tmp_path):
    """The page has every algorithm, many settings, a long name without a space, unfinished runs and large numbers."""
    large = {"env": "HumanoidStandup-v5", "steps": [500_000, 1_000_000]}
    for seed, algo in enumerate(("arac", "cem_td3", "sac_nf", "sac", "td3") * 2):
        run_folder(
            tmp_path / f"HumanoidStandup-v5-{algo}-seed{seed}", [9e4, 1.7e5 + seed], algo=algo, seed=seed, **large
        )
    settings = {"ar_base": "gaussian", "ar_coefficient": 0.25, "ar_divergence": "kl", "hidden_size": 128}
    run_folder(tmp_path / "several", [9e4, 2e5], planned=2_000_000, versions={"jax": "0.10.1"}, **settings, **large)
    run_folder(tmp_path / "policy", [9e4, 2e5], policy=f"somebody.{'long_' * 8}package.policies.Own", **large)
    report.write([tmp_path], tmp_path / "out")
    wide = "[...document.querySelectorAll('.scroll')].filter(it => it.scrollWidth > it.clientWidth)"
    cut = f"{wide}.map(it => it.ariaLabel)"
    chromium.open(tmp_path / "out" / "index.html")
    assert chromium.run(cut) == []
    chromium.open(tmp_path / "out" / "index.html", width=390, height=844)
    assert "Returns on HumanoidStandup-v5" in chromium.run(cut)
    assert chromium.run("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_on_a_phone(chromium, drawn, scheme):
    chromium.open(drawn, width=390, height=844, scheme=scheme)
    assert chromium.run("document.documentElement.scrollWidth") <= 390
    assert chromium.run("document.body.scrollWidth") <= 390
    smallest = (
        "Math.min(...[...document.querySelectorAll('body *')].filter(it => it.getClientRects().length && "
        "[...it.childNodes].some(node => node.nodeType == 3 && node.textContent.trim()))"
        ".map(it => parseFloat(getComputedStyle(it).fontSize)))"
    )
    assert chromium.run(smallest) >= 12
    assert chromium.run("document.querySelector('#curve svg').getBoundingClientRect().right") <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(chromium, drawn, scheme):
    chromium.open(drawn, scheme=scheme)
    colours = chromium.run(
        "(() => { const style = getComputedStyle(document.documentElement); return ['--text', '--soft', '--accent', "
        "'--surface', '--ground'].map(name => style.getPropertyValue(name).trim()); })()"
    )
    text, soft, accent, *grounds = map(luminance, colours)
    for colour in (text, soft, accent):
        for ground in grounds:
            assert (max(colour, ground) + 0.05) / (min(colour, ground) + 0.05) >= 4.5


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_published_returns_are_shown_and_hidden(chromium, tmp_path):
    for algo in ("sac", "td3"):
        run_folder(tmp_path / algo, [10.0, 20.0], env="HalfCheetah-v5", algo=algo, steps=[100_000, 1_000_000])
    report.write([tmp_path], tmp_path / "out")
    chromium.open(tmp_path / "out" / "index.html")
    maxima = ["SAC, paper's maximum", "TD3, paper's maximum"]
    assert lines(chromium) == ["SAC", "TD3", "Public SAC", *maxima]
    assert "Crosses: public returns of SAC, on the v4 tasks. Stars" in note(chromium)
    hover(chromium, 1.0)
    assert tip(chromium)[1]["Public SAC"] == ["11,321", "± 1,051"]
    assert tip(chromium)[1][maxima[0]] == ["11,896", "± 574"]
    chromium.click("[data-variant='1']")  # TD3
    assert lines(chromium) == ["SAC", "Public SAC", maxima[0]]
    chromium.click("#published")
    assert lines(chromium) == ["SAC"]
    assert "Crosses" not in note(chromium)


def note(page):
    return page.run("document.getElementById('curve-note').textContent")
