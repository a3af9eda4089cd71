"""The frames of a video: the pictures of the agents' environments side by side, each under a heading."""

import math
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFont

# Pixels: the largest width of a row of tiles, and the narrowest tile whose heading can still be read.
_ROW, _NARROWEST = 1600, 240
_BACKGROUND, _INK, _FAINT = (24, 26, 30), (255, 255, 255), (190, 195, 205)
# Pixels between the pictures of a row.
_GAP = 4
# The brightness factor of an episode's picture once it has ended.
_DIMMED = 0.5


class Layout(NamedTuple):
    """The layout of the tiles of a frame. All lengths are even, as H.264 requires."""

    columns: int
    rows: int
    width: int  # of a tile
    height: int  # of the picture in it
    heading: int  # above the picture

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the whole frame."""
        return self.columns * self.width, self.rows * (self.heading + self.height)


def arrange(count: int, drawn: tuple[int, ...], widest: int) -> Layout:
    """Return a layout of about twice as many columns as rows: five tiles are three and two, ten are five and five.

    Args:
        count: the number of tiles.
        drawn: height and width of the environment's pictures; tiles have the same proportions.
        widest: the largest width of a tile.
    """
    rows = max(1, round(math.sqrt(count / 2)))
    columns = math.ceil(count / rows)
    width = _even(min(widest, max(_ROW // columns, _NARROWEST)))
    return Layout(columns, rows, width, _even(width * drawn[0] / drawn[1]), _even(width / 7.5))


def tile(layout: Layout, drawn: np.ndarray, label: str, below: str, *, ended: bool) -> Image.Image:
    """Return the tile of an agent: its label, a line below it, and its picture, dimmed if its episode has ended."""
    whole = Image.new("RGB", (layout.width, layout.heading + layout.height), _BACKGROUND)
    picture = (
        Image.fromarray(drawn).convert("RGB").resize((layout.width - _GAP, layout.height), Image.Resampling.LANCZOS)
    )
    whole.paste(ImageEnhance.Brightness(picture).enhance(_DIMMED) if ended else picture, (0, layout.heading))
    pen, margin, line = ImageDraw.Draw(whole), layout.width // 50, layout.heading // 2
    for row, (text, ink) in enumerate(((label, _INK), (below, _FAINT))):
        pen.text((margin, (row + 0.5) * line), text, ink, _font(round(line * 0.72)), anchor="lm")
    return whole


def compose(layout: Layout, tiles: list[Image.Image]) -> np.ndarray:
    """Return the frame of these tiles."""
    frame = Image.new("RGB", layout.size, _BACKGROUND)
    for place, one in enumerate(tiles):
        row, column = divmod(place, layout.columns)
        frame.paste(one, (column * layout.width, row * one.height))
    return np.asarray(frame)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Return matplotlib's default font, which is always installed and has a star."""
    from matplotlib import get_data_path

    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)


def _even(length: float) -> int:
    return 2 * max(1, round(length / 2))
