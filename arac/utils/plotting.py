"""matplotlib, loaded when a picture is drawn: it takes a while."""

from typing import Any


def pyplot() -> Any:
    """For files: no screen is needed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
