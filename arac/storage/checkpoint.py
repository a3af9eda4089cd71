"""Checkpoints: state and replay as safetensors, with a manifest that lists the files that belong together.

    checkpoints/<env steps>/manifest.json       format, counters, configuration, replay's cursor, hashes of everything
    checkpoints/<env steps>/state.safetensors   every array of the state
    replay/<first episode>.safetensors          the episodes added since the previous checkpoint

A save writes replay first, then the checkpoint into a temporary folder, which is flushed and renamed: the checkpoint
exists only once it is complete. The last two checkpoints are kept.
"""

import contextlib
import re
import shutil
from collections.abc import Collection, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.numpy
from safetensors import SafetensorError

from arac.algorithms.base import State, StateT
from arac.errors import UserError
from arac.replay.buffer import ReplayBuffer, ReplayCursor, replay_bytes, row_count
from arac.replay.episode import Episode
from arac.storage import manifest, pytree_io, replay_segments
from arac.storage.manifest import Manifest, Segment
from arac.storage.replay_segments import ReplayLog
from arac.storage.run_spec import RunSpec
from arac.utils.atomic_io import HEADER, Checksum, checksum, read_verified, sync_folder, write_durably

KEPT = 2
# The name of a checkpoint's folder, and of a replay file without its suffix.
_NAME = re.compile("[0-9]{12}")


class Loaded(NamedTuple):
    """The newest intact checkpoint of a run."""

    state: State
    manifest: Manifest
    skipped: list[str]  # newer checkpoints that are damaged, and why, newest first


def save(
    folder: Path, state: State, log: ReplayLog, cursor: ReplayCursor, metrics: dict[str, Checksum], run: dict[str, Any]
) -> Path:
    """Write a checkpoint and return its folder. If it fails, nothing is left.

    Args:
        folder: the run folder.
        state: a pytree with `env_steps` and `generation`.
        log: the episodes of the run; the unsaved ones before `cursor` are written, and then listed as saved.
        cursor: the cursor of replay when `state` was reached.
        metrics: the checksum of each metrics file at that moment.
        run: everything that the results depend on; `load` compares it.
    """
    target = folder / "checkpoints" / f"{state.env_steps:012d}"
    temporary = target.with_name(f".{target.name}.tmp")
    new = list(islice(log.unsaved, cursor.episodes - log.first_unsaved))
    episodes = replay_segments.pack(new) if new else b""
    added = [Segment(log.first_unsaved, len(new), checksum(episodes))] if new else []
    files = [segment for segment in [*log.saved, *added] if segment.first + segment.episodes > cursor.first_episode]
    data = safetensors.numpy.save(pytree_io.to_arrays(state))
    described = Manifest(state.env_steps, state.generation, run, checksum(data), cursor, files, metrics)
    try:
        for segment in added:
            (folder / "replay").mkdir(exist_ok=True)
            write_durably(folder / "replay" / segment.name, episodes)
        _remove(temporary)
        temporary.mkdir(parents=True)
        write_durably(temporary / "state.safetensors", data)
        write_durably(temporary / "manifest.json", described.to_bytes())
        _remove(target)  # exists only if an earlier save of this state failed after its rename
        temporary.rename(target)
    except BaseException:
        if not target.exists():  # else a signal to stop came after the rename: the checkpoint is complete
            _remove(temporary)
            for segment in added:
                (folder / "replay" / segment.name).unlink(missing_ok=True)
        raise
    sync_folder(target.parent)
    sync_folder(folder)
    # Only now are the episodes safe on the disk.
    log.forget_before(cursor.episodes)
    log.saved = files
    _prune(folder)
    return target


def load(folder: Path, spec: RunSpec, replay: ReplayBuffer | None = None) -> Loaded:
    """Load the newest undamaged checkpoint and, if `replay` is given, its replay.

    Args:
        folder: the run folder.
        spec: the specification of the run.
        replay: an empty buffer to fill.

    Raises:
        UserError: if there is none, it has another configuration or a newer format, or memory is too small for it.
    """
    outline, optional = spec.outline(), spec.config.leaves_since_format_2
    skipped: list[str] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            found = manifest.read(path / "manifest.json")
            if different := spec.differences(found.run):
                raise UserError(
                    f"{folder} was trained with another configuration than its config.toml says now "
                    f"({'; '.join(different)}): restore these settings, or start another run with `arac train`."
                )
            state = read_state(path, found, outline, optional)
            if replay is not None:
                fill(folder, found, replay)
            return Loaded(state, found, skipped)
        except UserError:
            raise
        except (OSError, ValueError) as error:
            skipped.append(f"checkpoint {int(path.name)}: {error}")
    reasons = f" ({'; '.join(skipped)})" if skipped else ""
    raise UserError(f"{folder} has no usable checkpoint{reasons}; start a new run with `arac train`.")


def read_state(path: Path, found: Manifest, outline: StateT, optional: Collection[str] = ()) -> StateT:
    """Return the state of a checkpoint.

    Args:
        path: the checkpoint's folder.
        found: its manifest.
        outline: the outline of the expected state (see `pytree_io.outline`).
        optional: leaves that may be missing (see `pytree_io.from_arrays`).

    Raises:
        OSError, ValueError: if it is damaged, does not match the outline, or is not finite.
    """
    limit = pytree_io.size_in_bytes(outline) + HEADER
    data = read_verified(path / "state.safetensors", found.state, limit)
    try:
        arrays = safetensors.numpy.load(data)
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"state.safetensors is not a safetensors file ({error})") from None
    state = pytree_io.from_arrays(outline, arrays, optional)
    counters = found.env_steps, found.generation
    if (state.env_steps, state.generation) != counters or int(path.name) != state.env_steps:
        raise ValueError(f"it counts {state.env_steps} steps and {state.generation} generations, not {counters}")
    if broken := pytree_io.not_finite(state):
        raise ValueError(f"{', '.join(broken)} not finite")
    return state


def check_replay(found: Manifest, capacity: int) -> None:
    """Check that a checkpoint's replay files are consecutive, and hold the episodes that its replay cursor needs.

    Raises:
        ValueError: if not.
    """
    for one, other in pairwise(found.segments):
        if one.first + one.episodes != other.first:
            raise ValueError(f"replay has a gap between {one.name} and {other.name}")
    begin = found.segments[0].first if found.segments else found.cursor.episodes
    end = found.segments[-1].first + found.segments[-1].episodes if found.segments else found.cursor.episodes
    if not begin <= found.cursor.first_episode <= found.cursor.episodes == end:
        raise ValueError(f"its replay files have episodes {begin} to {end}, and it needs {found.cursor}")
    if found.cursor.row >= row_count(capacity):
        raise ValueError(f"its oldest episode lies in row {found.cursor.row:,}, outside of replay")


def fill(folder: Path, found: Manifest, replay: ReplayBuffer) -> None:
    """Fill an empty replay buffer with the episodes of a checkpoint; leave it empty on failure.

    Raises:
        OSError, ValueError: if a file is damaged, or the files do not fit together.
    """

    def episodes() -> Iterator[Episode]:
        for segment in found.segments:
            skip = max(found.cursor.first_episode - segment.first, 0)
            yield from islice(read_segment(folder, segment, replay.capacity, *replay.sizes), skip, None)

    check_replay(found, replay.capacity)
    replay.restore(episodes(), found.cursor)


def read_segment(
    folder: Path, segment: Segment, capacity: int, observation_size: int, action_size: int
) -> list[Episode]:
    """Return the episodes of one replay file. The capacity of replay limits the file's size.

    Raises:
        OSError, ValueError: if the file is damaged, or does not match its entry in the manifest.
    """
    limit = 2 * replay_bytes(capacity, observation_size, action_size) + HEADER
    data = read_verified(folder / "replay" / segment.name, segment.checksum, limit)
    try:
        episodes = replay_segments.unpack(data, observation_size, action_size)
    except ValueError as error:
        raise ValueError(f"{segment.name}: {error}") from None
    if len(episodes) != segment.episodes:
        raise ValueError(f"{segment.name} has {len(episodes)} episodes instead of {segment.episodes}")
    return episodes


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint folders, oldest first, without temporary ones and those set aside."""
    found = (folder / "checkpoints").glob("*")
    return sorted(path for path in found if _NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink())


def set_aside_after(folder: Path, env_steps: int) -> None:
    """Rename the checkpoints after `env_steps`, which are broken: a run that resumes there will write them again."""
    for path in list_checkpoints(folder):
        if int(path.name) > env_steps:
            _remove(path.with_name(f"{path.name}.broken"))
            path.rename(path.with_name(f"{path.name}.broken"))


def leftovers(folder: Path) -> list[Path]:
    """Return the temporary files and folders that a killed process left."""
    return [path for part in (".", "checkpoints", "replay") for path in sorted((folder / part).glob(".*.tmp"))]


def clear_leftovers(folder: Path) -> None:
    """Remove the temporary files and folders that a killed process left."""
    for path in leftovers(folder):
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a folder with its content, a file or a link, if it exists.

    A folder is renamed first, so that a kill does not leave a part of it under its name.
    """
    if path.is_dir() and not path.is_symlink():
        going = path if path.name.startswith(".") else path.rename(path.with_name(f".{path.name}.old.tmp"))
        shutil.rmtree(going)
    else:
        path.unlink(missing_ok=True)


def _prune(folder: Path) -> None:
    """Remove all but the last checkpoints, then the replay files that none of those needs.

    The first error ends the removal and is ignored: the new checkpoint does not depend on the removal.
    """
    with contextlib.suppress(OSError, ValueError):
        checkpoints = list_checkpoints(folder)
        for path in checkpoints[:-KEPT]:
            _remove(path)
        kept = [manifest.read(path / "manifest.json") for path in checkpoints[-KEPT:]]
        needed = {segment.name for found in kept for segment in found.segments}
        for path in (folder / "replay").glob("*.safetensors"):
            if _NAME.fullmatch(path.stem) and path.name not in needed:
                path.unlink()
