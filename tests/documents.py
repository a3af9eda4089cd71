"""Code blocks and commands of README and docs."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(?:\.venv/bin/)?((?:arac|make) [^`]+)`")
BETWEEN = {"&&", "||", "|", ";", "&"}


def blocks(page, *languages):
    """Return the code in fences of these languages, in order."""
    return [text for language, text in FENCE.findall(page.read_text()) if language in languages]


def scripts(page):
    """Return the shell scripts among the blocks."""
    return [text for text in blocks(page, "bash") if text.startswith("#!")]


def commands(page):
    """Return every command to type, as words: lines of bash, and those after a prompt in shown output."""
    shown = "\n".join(line[2:] for text in blocks(page, "") for line in text.splitlines() if line.startswith("$ "))
    typed = [text for text in blocks(page, "bash") if not text.startswith("#!")]
    return [words for text in [*typed, shown] for words in split(text)]


def split(text):
    """Split shell text into commands, as words without assignments, redirections and the program's folder."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        command = []
        for word in [*shlex.split(line, comments=True), ";"]:
            if word not in BETWEEN:
                command.append(word)
            elif command:
                found.append(_bare(command))
                command = []
    return [words for words in found if words]


def _bare(words):
    kept, redirected = [], False
    for word in words:
        assigns = not kept and re.match(r"\w+=", word)
        if not redirected and not assigns and word not in (">", ">>", "exec"):
            kept.append(word)
        redirected = word in (">", ">>")
    return [kept[0].removeprefix(".venv/bin/"), *kept[1:]] if kept else []


def mentioned(page):
    """Return the `arac` and `make` commands in the running text, as words."""
    prose = FENCE.sub("", page.read_text())
    return [text.split() for text in INLINE.findall(prose)]
