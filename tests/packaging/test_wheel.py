"""The wheel is complete, has nothing but the package, and works without the sources."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, metadata, packages_distributions
from pathlib import Path

import pytest
from helpers import SMALL_FLAGS
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
SOURCES = ["pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in", "constraints.txt"]
ELSEWHERE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the wheel as `make wheel` does, from a copy and without a network."""
    folder = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        shutil.copy(ROOT / name, folder)
    for name in ("arac", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Install the wheel in a new environment that shares only the dependencies, and return its programs."""
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    [wheel], python = built.glob("*.whl"), folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True, env=ELSEWHERE)
    [site] = (folder / "venv").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "venv" / "bin"


def run(*words, cwd):
    return subprocess.run(words, cwd=cwd, env=ELSEWHERE, capture_output=True, text=True, check=True).stdout


def package_files():
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "arac").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_the_wheel_has_every_file_of_the_package_and_no_others(built):
    [wheel] = built.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == package_files()
    assert {"arac/py.typed", "arac/algorithms/presets/paper.toml", "arac/analysis/report/index.html"} <= names


def test_the_sdist_has_the_package_and_no_tests(built):
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert package_files() | set(SOURCES) <= names
    assert {name.partition("/")[0] for name in names if "/" in name} == {"arac", "arac_rl.egg-info"}


@pytest.mark.slow
def test_the_wheel_works_where_the_sources_are_not(installed, tmp_path):
    where = run(installed / "python", "-c", "import arac; print(arac.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    assert run(installed / "arac", "--version", cwd=tmp_path).startswith("arac 0.1.0")
    assert "cem_td3" in run(installed / "arac", "list", "algos", cwd=tmp_path)
    shown = run(installed / "arac", "train", "InvertedPendulum-v5", "--steps", "100", *SMALL_FLAGS, cwd=tmp_path)
    assert "champion: member" in shown
    assert (tmp_path / "runs" / "InvertedPendulum-v5-arac-seed0" / "config.toml").exists()


def test_everything_that_is_imported_is_declared():
    """Everything that the package imports is a dependency or belongs to an extra."""
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = described["optional-dependencies"]
    wanted = [*described["dependencies"], *extras["ray"], *extras["wandb"], *extras["peers"], *extras["experiments"]]
    declared = {re.split(r"[^\w.-]", one)[0].lower().replace("_", "-") for one in wanted}
    given_by = packages_distributions()
    for path in (ROOT / "arac").rglob("*.py"):
        for module in imported(path) - sys.stdlib_module_names - {"arac"}:
            names = {name.lower().replace("_", "-") for name in given_by.get(module, [module])}
            assert names & declared, f"{path.relative_to(ROOT)} imports {module}"


def imported(path):
    """Return the top-level names that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_every_pinned_version_takes_the_first_python_that_we_promise():
    """No pinned package requires a newer Python than Debian 12's 3.11.2."""
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    looked_at = 0
    for name in pinned:
        try:
            found = metadata(name)
        except PackageNotFoundError:  # belongs to an extra that is not installed
            continue
        assert SpecifierSet(found["Requires-Python"] or "").contains("3.11.0"), name
        looked_at += 1
    assert looked_at > 50
