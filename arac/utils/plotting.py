"""matplotlib, imported only when a figure is drawn because the import takes time."""

from typing import Any


def pyplot() -> Any:
    """Return matplotlib's pyplot with the backend for files, which needs no screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
