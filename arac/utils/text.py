"""Text for messages: suggestions of similar names, and errors on one line."""

import difflib
from typing import Any


def in_a_line(error: Exception) -> str:
    """Return an error's type and message on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def suggestion(name: str, known: Any) -> str:
    """Return ` Did you mean …?` for a name that is close to a known one, else an empty string."""
    folded = {str(candidate).lower(): str(candidate) for candidate in known}
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(folded[match] for match in close)}?" if close else ""
