"""TensorBoard events of a run."""

import io
import time
from pathlib import Path
from typing import Any

import numpy as np

from arac.utils.plotting import heat_map

_BINS = 30


class Events:
    """A file of TensorBoard events, written at once and by this thread: a full disk is an error here, not a hang."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._writer: Any = None
        self.purge_step: int | None = None  # what other files in the folder have from this step on does not count

    def write(
        self, env_steps: int, scalars: dict[str, float], histograms: dict[str, np.ndarray], kl: np.ndarray
    ) -> None:
        """Write what was measured at this step under its tags, and the divergences between members as a picture."""
        from tensorboardX import summary  # takes a while
        from tensorboardX.proto.summary_pb2 import Summary

        if self._writer is None:
            self._begin()
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        for tag, numbers in histograms.items():
            if len(finite := numbers[np.isfinite(numbers)]):
                values.extend(summary.histogram(tag, finite, _BINS).value)
        if len(kl) > 1 and kl.any():  # policies without a density have none
            values.append(Summary.Value(tag="population/kl", image=_image(kl)))
        self._write(env_steps, summary=Summary(value=values))

    def _begin(self) -> None:
        from tensorboardX import summary
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        folder = self._run_dir / "tensorboard"
        folder.mkdir(exist_ok=True)
        others = len(list(folder.iterdir()))
        # Its name has the second, too; files of the same second are read in the order of their numbers.
        self._writer = EventsWriter(str(folder / "events"), f".{others:04d}")
        if self.purge_step is not None:
            self._write(self.purge_step, session_log=SessionLog(status=SessionLog.START))
        if not others:
            config = (self._run_dir / "config.toml").read_text()
            self._write(0, summary=summary.text("config", f"```\n{config}```"))

    def _write(self, env_steps: int, **content: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(wall_time=time.time(), step=env_steps, **content))
        self._writer.flush()

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._writer is not None:
            self._writer.close()


def _image(kl: np.ndarray) -> Any:
    from PIL.Image import Quantize
    from tensorboardX.proto.summary_pb2 import Summary

    picture, png = heat_map(kl, "KL(row ‖ column) between members"), io.BytesIO()
    picture.quantize(256, Quantize.FASTOCTREE).save(png, "PNG")  # a third of the bytes
    return Summary.Image(height=picture.height, width=picture.width, colorspace=3, encoded_image_string=png.getvalue())
