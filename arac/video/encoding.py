"""Encoding of frames into a video file, by the ffmpeg that imageio-ffmpeg installs."""

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
    """The settings of a video format."""

    fps: int  # frames per second, at most
    widest: int  # width of a tile in pixels, at most
    options: tuple[str, ...]  # output options of ffmpeg


FORMATS = {
    # Browsers play this pixel format; `faststart` lets them begin before they have loaded the whole file.
    ".mp4": Format(30, 480, ("-c:v", "libx264", "-crf", "23", "-pix_fmt", "yuv420p", "-movflags", "+faststart")),
    # A palette of 256 colours for each frame: one palette for all frames would need all of them in memory.
    ".gif": Format(
        15, 240, ("-filter_complex", "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1")
    ),
}


def format_of(path: Path) -> Format:
    """Return the format of a file by its suffix.

    Raises:
        UserError: if there is no format of that suffix.
    """
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"A video ends in {' or '.join(FORMATS)}, got {path.name!r}.")
    return FORMATS[path.suffix.lower()]


def pace(render_fps: float | None, most: int) -> tuple[int, Fraction]:
    """Return the number of steps per frame, and the frames per second, with which a video runs in real time.

    Args:
        render_fps: environment steps per second, if the environment states them.
        most: the largest number of frames per second.
    """
    steps = Fraction(render_fps or most).limit_denominator(1000)
    stride = -(-steps // most)
    return int(stride), steps / stride


@contextmanager
def encoder(path: Path, size: tuple[int, int], fps: Fraction) -> Iterator[Callable[[np.ndarray], None]]:
    """Yield a function that writes a frame; the file is complete after the block.

    Raises:
        StorageFailure: if the file cannot be written.
    """
    from imageio_ffmpeg import get_ffmpeg_exe  # type: ignore[import-untyped]

    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", "{}x{}".format(*size), "-r", str(fps), "-i", "-"]
    words = [get_ffmpeg_exe(), "-v", "error", "-y", *source, "-threads", "1", *format_of(path).options, str(path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    frames: Any = process.stdin
    try:
        with contextlib.suppress(BrokenPipeError):  # ffmpeg has exited, and its stderr says why
            yield lambda frame: frames.write(frame.tobytes())
        _, said = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise StorageFailure(f"The video cannot be encoded: {said.decode(errors='replace').strip()}")
