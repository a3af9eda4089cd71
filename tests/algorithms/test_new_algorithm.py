"""An eighth algorithm takes one file and one line: the example of docs/extending.md, in a copy of the package."""

import json
import os
import shutil
import subprocess
import sys
import threading
from ctypes.util import find_library
from pathlib import Path
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "evolution_strategy.py"
LINE = 'Algorithm("es", "ES", "Evolution Strategy", es.ESConfig, es.init, es.generation),'
SMALL = "--hidden-size 8 --warmup-steps 0 --eval-interval 100 --eval-episodes 1 --workers 0 --replay-capacity 10000"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def arac(tmp_path_factory):
    """Return the command of a copy of the package that has the algorithm."""
    folder = tmp_path_factory.mktemp("eighth")
    shutil.copytree(ROOT / "arac", folder / "arac", ignore=shutil.ignore_patterns("__pycache__"))
    algorithms = folder / "arac" / "algorithms"
    shutil.copy(EXAMPLE, algorithms / "es.py")
    registry = (algorithms / "registry.py").read_text()
    registry = registry.replace(
        "import arac, cem_td3, cerl, erl, sac, td3", "import arac, cem_td3, cerl, erl, es, sac, td3"
    )
    begin = "    for algorithm in (\n"
    assert begin in registry
    (algorithms / "registry.py").write_text(registry.replace(begin, f"{begin}        {LINE}\n"))
    environment = {**os.environ, "PYTHONPATH": str(folder)}

    def run(*words, **options):
        command = [sys.executable, "-m", "arac", *" ".join(words).split()]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run.folder, run.environment = folder, environment
    run(f"train InvertedPendulum-v5 --algo es --steps 4000 {SMALL} --run-dir run")
    return run


def test_the_example_is_short():
    assert len(EXAMPLE.read_text().splitlines()) <= 120


def test_it_is_trained_and_goes_on(arac):
    rows = [json.loads(line) for line in (arac.folder / "run" / "evaluations.jsonl").read_text().splitlines()]
    assert rows[-1]["env_steps"] >= 4000
    assert "Resuming" in arac("resume run --steps 6000")


def test_it_is_evaluated_and_listed(arac):
    assert "champion over 2 fresh episodes" in arac("evaluate run --episodes 2")
    assert "Evolution Strategy" in arac("list algos")
    assert "--spread" in arac("train InvertedPendulum-v5 --algo es --help")


@pytest.mark.skipif(find_library("OSMesa") is None, reason="nothing here can draw")
def test_it_is_filmed(arac):
    arac("play run --video film.mp4 --max-steps 5")
    assert (arac.folder / "film.mp4").stat().st_size > 0


def test_a_sweep_carries_it_out_and_the_report_has_it(arac):
    table = 'algorithms = ["es"]\ntasks = ["InvertedPendulum-v5"]\nseeds = 2\nsteps = 2000\n[settings]\nworkers = 0\n'
    table += "hidden_size = 8\nwarmup_steps = 0\neval_episodes = 1\neval_interval = 1000\nreplay_capacity = 10000\n"
    (arac.folder / "sweep.toml").write_text(table)
    arac("sweep sweep.toml --runs runs")
    assert "| InvertedPendulum-v5 | ES |" in arac("report runs --out report")
    assert (arac.folder / "report" / "curves_mean.png").exists()


def test_the_page_that_watches_knows_it(arac):
    command = [sys.executable, "-m", "arac", "watch", "run", "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, cwd=arac.folder, env=arac.environment, stdout=subprocess.PIPE, text=True)
    killer = threading.Timer(60, process.kill)
    killer.start()
    try:
        address = next(word for line in process.stdout for word in line.split() if word.startswith("http"))
        with urlopen(f"{address.rstrip('/')}/run.json") as answer:
            assert json.load(answer)["title"] == "ES on InvertedPendulum-v5"
    finally:
        killer.cancel()
        process.terminate()
        process.wait()


def test_it_has_a_class_in_python(arac):
    code = "import arac; print(arac.ES('InvertedPendulum-v5', workers=0, hidden_size=8))"
    printed = subprocess.check_output([sys.executable, "-c", code], cwd=arac.folder, env=arac.environment, text=True)
    assert printed == "ES('InvertedPendulum-v5', seed=0, env_steps=0)\n"
