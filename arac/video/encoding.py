"""Frames into a file, by the ffmpeg that imageio-ffmpeg brings along."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arac.errors import StorageFailure, UserError


class Format(NamedTuple):
    """A kind of file."""

    fps: int  # frames per second, at most
    widest: int  # pixels of a tile, at most
    options: tuple[str, ...]  # of ffmpeg


FORMATS = {
    # The pixel format is the one that browsers play; `faststart` lets them begin before they have all of it.
    ".mp4": Format(30, 480, ("-c:v", "libx264", "-crf", "23", "-pix_fmt", "yuv420p", "-movflags", "+faststart")),
    # Every frame with 256 colours of its own: the colours of the whole would need the whole in memory.
    ".gif": Format(
        15, 240, ("-filter_complex", "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1")
    ),
}


def format_of(path: Path) -> Format:
    """The kind of file that a name asks for.

    Raises:
        UserError: if there is none.
    """
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"A video ends in {' or '.join(FORMATS)}, got {path.name!r}.")
    return FORMATS[path.suffix.lower()]


def pace(render_fps: float | None, most: int) -> tuple[int, Fraction]:
    """Every how many steps a frame is drawn, and frames per second, so that the video runs in real time.

    Args:
        render_fps: environment steps per second, as the environment says it; it need not.
        most: frames per second, at most.
    """
    steps = Fraction(render_fps or most).limit_denominator(1000)
    stride = -(-steps // most)
    return int(stride), steps / stride


@contextmanager
def encoder(path: Path, size: tuple[int, int], fps: Fraction) -> Iterator[Callable[[np.ndarray], None]]:
    """Gives what writes a frame; the file is complete when the block is left.

    Raises:
        StorageFailure: if it cannot be written.
    """
    from imageio_ffmpeg import get_ffmpeg_exe  # type: ignore[import-untyped]

    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", "{}x{}".format(*size), "-r", str(fps), "-i", "-"]
    words = [get_ffmpeg_exe(), "-v", "error", "-y", *source, "-threads", "1", *format_of(path).options, str(path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    frames: Any = process.stdin
    try:
        with contextlib.suppress(BrokenPipeError):  # it has given up, and says why
            yield lambda frame: frames.write(frame.tobytes())
        _, said = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise StorageFailure(f"The video cannot be encoded: {said.decode(errors='replace').strip()}")
