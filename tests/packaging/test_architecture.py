"""The architecture: which package may import which, how much lies in one place, and the language of the docstrings."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "arac"
# From the ground up: each imports only from its own layer and from those above it in this list.
LAYERS = (
    ("errors", "utils"),
    ("models", "envs"),
    ("learning", "population", "replay"),
    ("algorithms",),
    ("rollout",),
    ("storage",),
    ("training",),
    ("agents",),
    ("web", "analysis"),
    ("sweeps",),
    ("experiments",),
    ("video", "callbacks"),
    ("cli", "watch"),
)
ALIASES = {"networks"}  # of earlier versions
# For the checker of types alone: callbacks take the agent itself, so that a user's may declare it as `arac.Agent`.
TYPES_FROM_LATER = {("training", "agents")}
FILES = sorted(ROOT.rglob("*.py"))


def name_of(path):
    parts = ("arac", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def imported(path, *, types=False):
    """The modules of ours that a file imports, anywhere in it; with `types`, also for the checker of types alone."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped and not types:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "arac":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)


def package(module):
    return module.split(".")[1] if "." in module else ""


def test_every_package_has_a_layer():
    known = {name for layer in LAYERS for name in layer} | ALIASES | {"__main__", ""}
    assert {package(module) for module in MODULES} == known


def test_no_package_imports_from_a_later_layer():
    rank = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    back = [
        f"{module} imports {other}"
        for module, path in MODULES.items()
        for other in set(imported(path, types=True))
        if package(module) in rank and rank.get(package(other), -1) > rank[package(module)]
        if (package(module), package(other)) not in TYPES_FROM_LATER or other in imported(path)
    ]
    assert not back


def test_no_import_goes_round_in_circles():
    graph = {module: set(imported(path)) - {module} for module, path in MODULES.items() if module != "arac"}
    TopologicalSorter(graph).prepare()  # raises with the circle


def test_few_modules_lie_in_one_place():
    places = defaultdict(list)
    for path in FILES:
        if path.name != "__init__.py":
            places[path.parent].append(path.name)
    assert len(places[ROOT]) <= 4
    assert max(map(len, places.values())) <= 12


def test_looking_up_an_algorithm_imports_no_simulator():
    code = (
        "import sys; import arac; from arac.algorithms import registry; registry.find('sac');"
        "print({'mujoco', 'gymnasium.envs.mujoco'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


@pytest.mark.parametrize("old", sorted(ALIASES))
def test_earlier_names_warn(old):
    assert "DeprecationWarning" in (ROOT / f"{old}.py").read_text()


PROSE = ("arac", "benchmarks")  # the folders whose prose is checked
PROSE_FILES = [
    path.relative_to(ROOT.parent) for folder in PROSE for path in sorted((ROOT.parent / folder).rglob("*.py"))
]
RIDDLES = {"What", "Whether", "Of", "How", "Who", "Whose", "Where", "Which", "Whichever", "Why"}
QUAINT = re.compile(r"\b(goes|go) on\b|\bof (its|their|one's|a) own\b", re.IGNORECASE)


def docstrings(path):
    """Yield the docstrings of a file, also those of attributes, which are the help of flags and settings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse((ROOT.parent / path).read_text())):
        for inner in node.body if isinstance(node, documented) else ():
            if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
                yield str(inner.value.value)


@pytest.mark.parametrize("path", PROSE_FILES, ids=str)
def test_sentences_of_docstrings_say_what_is_done_or_returned(path):
    sentences = [part for text in docstrings(path) for part in re.split(r"(?<=[.!?])\s+|\n\s*\n", text.strip())]
    assert not [sentence for sentence in sentences if re.split(r"\W", sentence)[0] in RIDDLES]


@pytest.mark.parametrize("path", PROSE_FILES, ids=str)
def test_text_is_plain(path):
    text = " ".join((ROOT.parent / path).read_text().split())
    assert not [text[max(match.start() - 40, 0) : match.end() + 40] for match in QUAINT.finditer(text)]


# The arrays of these packages are JAX's or NumPy's, and custom policies are objects of any class.
OPEN = ("models", "learning", "population", "experiments/repulsion.py")
TYPED = [path for path in FILES if not str(path.relative_to(ROOT)).startswith(OPEN)]
# Names of agents, of states, of what they hold, of settings, and of the functions that hand them over.
ABOUT_STATES = re.compile(
    "state|config|polic|population|champion|outline|evaluation|tree|^(agent|init|generation|read|load|restore)$"
)


def annotated(path):
    """Yield names with their annotations; the name of a function stands for what it returns."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.AnnAssign):
            yield ast.unparse(node.target), node.annotation
        elif isinstance(node, ast.FunctionDef):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield from ((one.arg, one.annotation) for one in arguments if one.annotation)
            if node.returns:
                yield node.name, node.returns


@pytest.mark.parametrize("path", TYPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_states_and_settings_are_typed(path):
    tables = "dict[str, Any]"  # read from a file, or written to one
    untyped = [
        f"{name}: {ast.unparse(annotation)}"
        for name, annotation in annotated(path)
        if ABOUT_STATES.search(name) and re.search(r"\bAny\b", ast.unparse(annotation).replace(tables, ""))
    ]
    assert not untyped
