"""The architecture: which package may import which, and how much lies in one place."""

import ast
import re
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
    ("rollout",),
    ("algorithms",),
    ("storage",),
    ("video",),
    ("training", "callbacks"),
    ("agents",),
    ("web", "analysis"),
    ("sweeps",),
    ("experiments",),
    ("cli", "watch"),
)
ALIASES = {"networks"}  # of earlier versions
FILES = sorted(ROOT.rglob("*.py"))


def name_of(path):
    parts = ("arac", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def imported(path):
    """The modules of ours that a file imports, anywhere in it but for the checker of types alone."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
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
        for other in set(imported(path))
        if package(module) in rank and rank.get(package(other), -1) > rank[package(module)]
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


@pytest.mark.parametrize("old", sorted(ALIASES))
def test_earlier_names_warn(old):
    assert "DeprecationWarning" in (ROOT / f"{old}.py").read_text()


RIDDLES = {"What", "Whether", "Of", "How", "Who", "Whose", "Where", "Whichever"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_say_what_is_done_or_returned(path):
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, documented)]
    first = [words[0].rstrip(",.:;") for node in nodes if (words := (ast.get_docstring(node) or "").split())]
    assert not RIDDLES & set(first)


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
