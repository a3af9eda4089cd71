"""A square matrix as a picture, drawn in milliseconds where matplotlib would take long for every evaluation."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

_GREY = (190, 190, 190)  # of what is not finite
# Pixels: a population of five fits into a card of TensorBoard as it is.
_CELL, _EDGE, _FONT = 34, 32, 12
_READABLE = 30  # a cell of that many can have a number in it
_WIDEST = 900  # of all cells together


def draw(matrix: np.ndarray, title: str) -> "Image":
    """Draw cells with their values, the numbers of rows and columns, and a scale of colours up to the highest value."""
    from PIL import Image, ImageDraw, ImageFont

    cell = max(min(_CELL, _WIDEST // len(matrix)), 1)
    side = cell * len(matrix)
    highest = float(np.max(matrix, where=np.isfinite(matrix), initial=0)) or 1.0
    image = Image.new("RGB", (max(side, 4 * _CELL) + 4 * _EDGE, side + _EDGE + 8), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(_FONT)
    scale = _EDGE + side + _EDGE // 2
    for left, width, shares in ((_EDGE, side, matrix / highest), (scale, 16, np.linspace(1, 0, side)[:, None])):
        colours = Image.fromarray(_colours(shares))
        image.paste(colours.resize((width, side), Image.Resampling.NEAREST), (left, _EDGE))
    pen.text((_EDGE, 8), title, "black", font, "lm")
    for share, number in ((0, highest), (1, 0)):
        pen.text((scale + 22, _EDGE + share * side), _short(number), "black", font, "lm")
    for index in range(0, len(matrix), -(-_FONT * 2 // cell)):
        middle = _EDGE + index * cell + cell // 2
        pen.text((middle, _EDGE - 7), str(index), "black", font, "mm")
        pen.text((_EDGE - 8, middle), str(index), "black", font, "rm")
    if cell >= _READABLE:
        for (row, column), value in np.ndenumerate(matrix):
            ink = "black" if value > 0.6 * highest or not np.isfinite(value) else "white"
            x, y = (_EDGE + index * cell + cell // 2 for index in (column, row))
            pen.text((x, y), _short(value), ink, font, "mm")
    return image


def _colours(shares: np.ndarray) -> np.ndarray:
    """Return red, green and blue for numbers between 0 and 1, and grey for what is not finite."""
    from matplotlib import colormaps  # takes a while

    mixed = colormaps["viridis"](np.nan_to_num(shares), bytes=True)[..., :3]
    return np.where(np.isfinite(shares)[..., None], mixed, _GREY).astype(np.uint8)


def _short(value: float) -> str:
    """Return a number in about five characters: 0.42, 37.5, 1204, 3e+06."""
    if abs(value) >= 10_000:
        return f"{value:.0e}"
    value = round(value, 2) + 0.0  # no -0.00
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
