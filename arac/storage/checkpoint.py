"""Checkpoints: state and replay as safetensors, with a manifest that says what belongs together.

    checkpoints/<env steps>/manifest.json       format, counters, configuration, replay's place, hashes of everything
    checkpoints/<env steps>/state.safetensors   every array of the state
    replay/<first episode>.safetensors          the episodes that are new since the checkpoint before

A save writes replay first, then the checkpoint into a temporary folder that is flushed and renamed: the rename is
the moment when it exists. The last two are kept.
"""

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import safetensors.numpy
from safetensors import SafetensorError

from arac.errors import UserError
from arac.replay.buffer import ReplayBuffer, ReplayCursor, replay_bytes, row_count
from arac.replay.episode import Episode
from arac.storage import manifest, pytree_io, replay_segments
from arac.storage.manifest import Manifest, Segment
from arac.utils.atomic_io import HEADER, Checksum, checksum, read_verified, sync_folder, write_durably

KEPT = 2
# Of a checkpoint's folder and, before its ending, of a replay file.
_NAME = re.compile("[0-9]{12}")

State = TypeVar("State")


class Loaded(NamedTuple):
    state: Any
    manifest: Manifest
    skipped: list[str]  # what was found broken on the way to it, newest first


def save(
    folder: Path,
    state: Any,
    replay: ReplayBuffer,
    mark: ReplayCursor,
    metrics: dict[str, Checksum],
    run: dict[str, Any],
) -> Path:
    """Writes a checkpoint of `state` with the replay as it was at `mark`; its folder. If it fails, nothing is left.

    Args:
        folder: the run folder.
        state: a pytree with `env_steps` and `generation`.
        replay: its episodes up to `mark` that are not saved yet are written, and no longer held for it.
        mark: where replay was when `state` was reached.
        metrics: what each metrics file was then.
        run: what the numbers depend on; `load` compares it.
    """
    target = folder / "checkpoints" / f"{state.env_steps:012d}"
    temporary = target.with_name(f".{target.name}.tmp")
    first = replay.first_unsaved
    new = list(islice(replay.unsaved, mark.episodes - first))
    episodes = replay_segments.pack(new) if new else b""
    added = [Segment(first, len(new), checksum(episodes))] if new else []
    files = [segment for segment in [*replay.saved, *added] if segment.first + segment.episodes > mark.first_episode]
    data = safetensors.numpy.save(pytree_io.to_arrays(state))
    described = Manifest(state.env_steps, state.generation, run, checksum(data), mark, files, metrics)
    try:
        for segment in added:
            (folder / "replay").mkdir(exist_ok=True)
            write_durably(folder / "replay" / segment.name, episodes)
        _remove(temporary)
        temporary.mkdir(parents=True)
        write_durably(temporary / "state.safetensors", data)
        write_durably(temporary / "manifest.json", described.to_bytes())
        _remove(target)  # only there if an earlier save of this state failed at its very end
        temporary.rename(target)
    except BaseException:
        if not target.exists():  # else it was the signal to stop that came, and just too late
            _remove(temporary)
            for segment in added:
                (folder / "replay" / segment.name).unlink(missing_ok=True)
        raise
    sync_folder(target.parent)
    sync_folder(folder)
    # Only now are they safe on the disk.
    for _ in new:
        replay.unsaved.popleft()
    replay.saved = files
    _prune(folder)
    return target


def load(
    folder: Path, outline: State, differences: Callable[[dict[str, Any]], list[str]], replay: ReplayBuffer | None = None
) -> Loaded:
    """The newest checkpoint that is whole; with it, if `replay` is given, its replay.

    Args:
        folder: the run folder.
        outline: of the state that is expected.
        differences: tells in words where a checkpoint's run is not the one expected.
        replay: an empty buffer to fill.

    Raises:
        UserError: if there is none, or it is of another configuration or of a newer format.
    """
    skipped: list[str] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            found = manifest.read(path / "manifest.json")
            if different := differences(found.run):
                raise UserError(
                    f"{folder} was trained with another configuration than its config.toml says now "
                    f"({'; '.join(different)}): put that back, or begin another run with `arac train`."
                )
            state = read_state(path, found, outline)
            if replay is not None:
                fill(folder, found, replay)
            return Loaded(state, found, skipped)
        except UserError:
            raise
        except (OSError, ValueError) as error:
            skipped.append(f"checkpoint {int(path.name)}: {error}")
    reasons = f" ({'; '.join(skipped)})" if skipped else ""
    raise UserError(f"{folder} has no checkpoint to go on from{reasons}; start again with `arac train`.")


def read_state(path: Path, found: Manifest, outline: State) -> State:
    """The state of a checkpoint.

    Raises:
        OSError, ValueError: if it is damaged, or not what the outline says, or not finite.
    """
    limit = pytree_io.size_in_bytes(outline) + HEADER
    data = read_verified(path / "state.safetensors", found.state, limit)
    try:
        arrays = safetensors.numpy.load(data)
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"state.safetensors is not a safetensors file ({error})") from None
    state: Any = pytree_io.from_arrays(outline, arrays)
    counters = found.env_steps, found.generation
    if (state.env_steps, state.generation) != counters or int(path.name) != state.env_steps:
        raise ValueError(f"it counts {state.env_steps} steps and {state.generation} generations, not {counters}")
    if broken := pytree_io.not_finite(state):
        raise ValueError(f"{', '.join(broken)} not finite")
    return state


def check_replay(found: Manifest, capacity: int) -> None:
    """Whether the replay files of a checkpoint are those that its place in history needs.

    Raises:
        ValueError: if they are not.
    """
    for one, other in pairwise(found.segments):
        if one.first + one.episodes != other.first:
            raise ValueError(f"replay has a gap between {one.name} and {other.name}")
    begin = found.segments[0].first if found.segments else found.mark.episodes
    end = found.segments[-1].first + found.segments[-1].episodes if found.segments else found.mark.episodes
    if not begin <= found.mark.first_episode <= found.mark.episodes == end:
        raise ValueError(f"its replay files have episodes {begin} to {end}, and it needs {found.mark}")
    if found.mark.row >= row_count(capacity):
        raise ValueError(f"its oldest episode lies in row {found.mark.row:,}, outside of replay")


def fill(folder: Path, found: Manifest, replay: ReplayBuffer) -> None:
    """Fills an empty replay buffer with what the checkpoint's held; leaves it empty if it cannot.

    Raises:
        OSError, ValueError: if a file is damaged, or they do not fit together.
    """

    def episodes() -> Iterator[Episode]:
        for segment in found.segments:
            skip = max(found.mark.first_episode - segment.first, 0)
            yield from islice(read_segment(folder, segment, replay.capacity, *replay.sizes), skip, None)

    check_replay(found, replay.capacity)
    replay.restore(episodes(), found.mark)
    replay.saved = found.segments


def read_segment(
    folder: Path, segment: Segment, capacity: int, observation_size: int, action_size: int
) -> list[Episode]:
    """The episodes of one file of a replay with this capacity.

    Raises:
        OSError, ValueError: if it is damaged, or not what the manifest says.
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
    """Oldest first; temporary folders and those set aside are not among them."""
    found = (folder / "checkpoints").glob("*")
    return sorted(path for path in found if _NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink())


def set_aside_after(folder: Path, env_steps: int) -> None:
    """Renames the broken checkpoints that are newer than the one a run goes on from: it will write them again."""
    for path in list_checkpoints(folder):
        if int(path.name) > env_steps:
            _remove(path.with_name(f"{path.name}.broken"))
            path.rename(path.with_name(f"{path.name}.broken"))


def leftovers(folder: Path) -> list[Path]:
    """What a process that was killed was writing or removing."""
    return [path for part in (".", "checkpoints", "replay") for path in sorted((folder / part).glob(".*.tmp"))]


def clear_leftovers(folder: Path) -> None:
    for path in leftovers(folder):
        _remove(path)


def _remove(path: Path) -> None:
    """A folder and all in it, a file or a link, if it is there. A folder loses its name first."""
    if path.is_dir() and not path.is_symlink():
        going = path if path.name.startswith(".") else path.rename(path.with_name(f".{path.name}.old.tmp"))
        shutil.rmtree(going)
    else:
        path.unlink(missing_ok=True)


def _prune(folder: Path) -> None:
    """Removes all but the last checkpoints, then the replay files that none of those needs.

    What cannot be removed, or read, stays: the checkpoint is safe without it.
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
