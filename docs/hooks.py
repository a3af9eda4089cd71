"""Hooks of `mkdocs build`: fill in tables from the code, include files, and rewrite links that leave docs/."""

import dataclasses
import re
import tomllib
from functools import cache
from pathlib import Path

import griffe
from mkdocs.structure.files import File

from arac.algorithms.config import Config
from arac.algorithms.registry import ALGORITHMS

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"(!?)\[([^\]]*)\]\(\.\./([^)#]+)\)")
INCLUDED = re.compile(r"<!-- include: (\S+) -->.*?<!-- /include -->", re.DOTALL)
MARKER = re.compile(r"<!-- (settings|presets): (\w+) -->")


def on_files(files, config):
    """Add the files of results/ that pages show or link to."""
    linked = {
        path
        for page in files.documentation_pages()
        for _, _, path in OUTSIDE.findall(page.content_string)
        if path.startswith("results/") and (ROOT / path).is_file()
    }
    for path in sorted(linked):
        files.append(File(path, str(ROOT), config.site_dir, use_directory_urls=False))
    return files


def on_page_markdown(markdown, page, config, files):
    """Fill in tables and included files, and replace links that leave docs/ by links to copies or plain names."""

    def inside(match):
        picture, text, path = match.groups()
        if files.get_file_from_path(path):
            return f"{picture}[{text}]({path})"
        return f"`{path}`" if path.endswith(text) else f"{text} (`{path}`)"

    tables = {"settings": settings, "presets": preset_table}
    included = INCLUDED.sub(lambda match: from_root(match[1]), markdown)
    filled = MARKER.sub(lambda match: tables[match[1]](match[2]), included)
    return OUTSIDE.sub(inside, filled)


def from_root(path):
    """Return a page outside docs/, with its links relative to docs/."""
    text = re.sub(r"\]\((?!https?:|#)", "](../", (ROOT / path).read_text())
    return text.replace("](../docs/", "](")


def settings(name):
    """Return the table of the common settings, or of those of an algorithm that differ from them."""
    kind = Config if name == "common" else ALGORITHMS[name].config
    shared = {} if kind is Config else {field.name: field.default for field in dataclasses.fields(Config)}
    rows = [
        (f"`{field.name}`", f"`{_shown(field.default)}`", _help(kind, field.name))
        for field in dataclasses.fields(kind)
        if field.name not in shared or field.default != shared[field.name]
    ]
    return _table(("setting", "default", "meaning"), rows)


def preset_table(name):
    """Return the table of a file in arac/algorithms/presets."""
    rows = tomllib.loads((ROOT / "arac" / "algorithms" / "presets" / f"{name}.toml").read_text())
    columns = list(next(iter(rows.values())))
    lines = [(f"`{task}`", *(_shown(row[column]).strip('"') for column in columns)) for task, row in rows.items()]
    return _table(("task", *(f"`{column}`" for column in columns)), lines)


def _shown(value):
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:,}".replace(",", "_") if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _help(kind, name):
    """Return the docstring of a field, from the first class that has one."""
    classes = [base for base in kind.__mro__ if base.__module__.startswith("arac.")]
    documented = (_module(base.__module__)[base.__name__].members.get(name) for base in classes)
    return next(" ".join(field.docstring.value.split()) for field in documented if field and field.docstring)


@cache
def _module(name):
    return griffe.load(name, search_paths=[str(ROOT)])


def _table(head, rows):
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
