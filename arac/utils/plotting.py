"""matplotlib, imported only when a figure is drawn because the import takes time."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

_CELL, _WIDEST = 0.34, 9.0  # inches of a matrix: a population of five fits into a card of TensorBoard as it is
_READABLE = 16  # the largest matrix with numbers in its cells


def pyplot() -> Any:
    """Return matplotlib's pyplot with the backend for files, which needs no screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def heat_map(matrix: np.ndarray, title: str) -> "Image":
    """Return a picture of a square matrix with its numbers, and a scale of colours from 0 to the highest of them."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure  # without pyplot, whose backend belongs to the user's own figures
    from PIL import Image

    highest = float(np.max(matrix, where=np.isfinite(matrix), initial=0)) or 1.0
    side = min(max(_CELL * len(matrix), 4 * _CELL), _WIDEST)
    figure = Figure(figsize=(side + 1.6, side + 0.8), layout="constrained")
    figure.suptitle(title, fontsize="small")
    axes = figure.add_subplot()
    colours = colormaps["viridis"].with_extremes(bad="silver")  # of what is not finite
    figure.colorbar(axes.imshow(np.ma.masked_invalid(matrix), colours, vmin=0, vmax=highest))
    if len(matrix) <= _READABLE:
        axes.set(xticks=range(len(matrix)), yticks=range(len(matrix)))
        for (row, column), value in np.ndenumerate(matrix):
            ink = "black" if value > 0.5 * highest or not np.isfinite(value) else "white"
            axes.text(column, row, _short(value), ha="center", va="center", color=ink, fontsize="small")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _short(value: float) -> str:
    """Return a number in about five characters: 0.42, 37.5, 1204, 3e+06."""
    if abs(value) >= 10_000:
        return f"{value:.0e}"
    value = round(value, 2) + 0.0  # no -0.00
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
