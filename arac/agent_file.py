"""One agent in one safetensors file: what it is and all that it has learned, with a hash over both."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from arac import trees
from arac.description import Description, not_plain
from arac.envs import Maker
from arac.errors import UserError
from arac.files import HEADER, read_bounded, sha256, write_durably
from arac.manifest import FORMAT, NewerFormat
from arac.policies.custom import CustomPolicy


def write(path: Path, description: Description, state: Any) -> None:
    try:
        table, arrays = json.dumps(description.to_table()), trees.to_arrays(state)
    except TypeError as error:
        raise not_plain(error) from None
    metadata = {"arac": table, "format": str(FORMAT), "version": version("arac-rl")}
    sealed = {**metadata, "sha256": _hash(metadata, arrays)}
    write_durably(path, safetensors.numpy.save(arrays, metadata=sealed))


def read_table(path: Path) -> dict[str, Any]:
    """What the agent in a file is, as config.toml would have it. Only the head of the file is read.

    Raises:
        UserError: if it is no file that `write` made, or one of a newer format.
    """
    with _explained(path):
        table = json.loads(_metadata(path)["arac"])
        if not isinstance(table, dict):
            raise TypeError("its description is not a table")
        return table


def read(path: Path, env: Maker | None = None, policy: type[CustomPolicy] | None = None) -> tuple[Description, Any]:
    """What the agent in a file is, and its state; the rest as for `Description.from_table`.

    Raises:
        UserError: if it is no file that `write` made, or is damaged, or of a newer format.
    """
    with _explained(path):
        metadata = _metadata(path)
        description = Description.from_table(json.loads(metadata["arac"]), env, policy)
        outline = description.outline()
        arrays = safetensors.numpy.load(read_bounded(path, trees.size_in_bytes(outline) + HEADER))
        if metadata.pop("sha256") != _hash(metadata, arrays):
            raise ValueError("it does not match its hash")
        state: Any = trees.from_arrays(outline, arrays)
        if broken := trees.not_finite(state):
            raise ValueError(f"{', '.join(broken)} not finite")
        return description, state


def _metadata(path: Path) -> dict[str, str]:
    if path.exists() and not path.is_file():
        raise ValueError("it is not an ordinary file")
    with safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
    if int(metadata["format"]) > FORMAT:
        raise NewerFormat(path, metadata["format"], metadata.get("version"))
    return metadata


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file becomes one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"There is no file or folder {path}.") from None
    except UserError:
        raise
    except (SafetensorError, OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a file that arac saved: {error!r}.") from None


def _hash(metadata: dict[str, str], arrays: dict[str, np.ndarray]) -> str:
    """Over the description and every array, name and shape included."""
    parts = [f"{name} {array.dtype}{array.shape} {sha256(array.tobytes())}" for name, array in sorted(arrays.items())]
    return sha256("\n".join([json.dumps(metadata, sort_keys=True), *parts]).encode())
