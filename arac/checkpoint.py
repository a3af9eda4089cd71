"""Checkpoints: state and replay as safetensors, with a manifest that says what belongs together.

    checkpoints/<env steps>/manifest.json       format, counters, hashes, the replay's place, sizes of the metrics
    checkpoints/<env steps>/state.safetensors   every array of the state
    replay/<first episode>.safetensors          the episodes that are new since the checkpoint before

A save writes replay first, then the checkpoint into a temporary folder that is flushed and renamed: the rename is
the moment when it exists. The last two are kept.
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from arac.errors import UserError
from arac.files import sha256, sync_folder, write_durably
from arac.replay import Mark, ReplayBuffer
from arac.rollout.episode import Episode

FORMAT = 1
KEPT = 2

State = TypeVar("State")


class Loaded(NamedTuple):
    state: Any
    manifest: dict[str, Any]
    skipped: list[str]  # what was found broken on the way to it, newest first


def to_arrays(tree: Any) -> dict[str, np.ndarray]:
    """Every leaf under its path in the tree."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf, order="C") for path, leaf in leaves}


def from_arrays(template: State, arrays: dict[str, np.ndarray]) -> State:
    """The tree of `template`'s shape with the leaves of `arrays`, each of the kind that the template has.

    Raises:
        ValueError: if names, shapes or types are not the template's.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    if set(names) != set(arrays):
        raise ValueError("it holds other arrays than this configuration has")
    return jax.tree.unflatten(
        structure, [_as(leaf, arrays[name], name) for name, (_, leaf) in zip(names, leaves, strict=True)]
    )


def _as(leaf: Any, array: np.ndarray, name: str) -> Any:
    wanted = np.asarray(leaf)
    if array.shape != wanted.shape or array.dtype != wanted.dtype:
        raise ValueError(f"{name} is {array.dtype}{array.shape}, not {wanted.dtype}{wanted.shape}")
    if isinstance(leaf, int):
        return int(array)
    return jnp.asarray(array) if isinstance(leaf, jax.Array) else array


def save(folder: Path, state: Any, replay: ReplayBuffer, mark: Mark, metrics: dict[str, int], identity: str) -> None:
    """Writes a checkpoint of `state` with the replay as it was at `mark`.

    Args:
        folder: the run folder.
        state: a pytree with `env_steps` and `generation`.
        replay: its episodes up to `mark` that are not saved yet are written, and no longer held for it.
        mark: where replay was when `state` was reached.
        metrics: the size of each metrics file then, in bytes.
        identity: the hash of the configuration that the state belongs to.
    """
    new, segments = _save_replay(folder / "replay", replay, mark)
    data = safetensors.numpy.save(to_arrays(state))
    manifest = {
        "format": FORMAT,
        "env_steps": state.env_steps,
        "generation": state.generation,
        "config": identity,
        "files": {"state.safetensors": sha256(data)},
        "replay": {"mark": mark._asdict(), "segments": segments},
        "metrics": metrics,
    }
    target = folder / "checkpoints" / f"{state.env_steps:012d}"
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        write_durably(temporary / "state.safetensors", data)
        write_durably(temporary / "manifest.json", json.dumps(_sealed(manifest), indent=1).encode())
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(target.parent)
    sync_folder(folder)
    # Only now are they safe on the disk.
    for _ in range(new):
        replay.unsaved.popleft()
    replay.saved = segments
    _prune(folder)


def load(folder: Path, template: State, identity: str) -> Loaded:
    """The newest checkpoint that is whole.

    Raises:
        UserError: if there is none.
    """
    skipped: list[str] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            manifest = _manifest(path)
            data = _verified(path / "state.safetensors", manifest["files"]["state.safetensors"])
            for segment in manifest["replay"]["segments"]:
                _verified(folder / "replay" / segment["file"], segment["sha256"])
            if manifest["config"] != identity:
                raise ValueError("it belongs to another configuration")
            return Loaded(from_arrays(template, safetensors.numpy.load(data)), manifest, skipped)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            skipped.append(f"checkpoint {int(path.name)}: {error}")
    reasons = f" ({'; '.join(skipped)})" if skipped else ""
    raise UserError(f"{folder} has no checkpoint to go on from{reasons}; start again with `arac train`.")


def set_aside_after(folder: Path, env_steps: int) -> None:
    """Renames the broken checkpoints that are newer than the one a run goes on from: it will write them again."""
    for path in list_checkpoints(folder):
        if int(path.name) > env_steps:
            shutil.rmtree(path.with_name(f"{path.name}.broken"), ignore_errors=True)
            path.rename(path.with_name(f"{path.name}.broken"))


def load_replay(folder: Path, manifest: dict[str, Any], replay: ReplayBuffer) -> None:
    """Fills an empty replay buffer with what the checkpoint's held."""
    mark = Mark(**manifest["replay"]["mark"])

    def episodes() -> Iterator[Episode]:
        for segment in manifest["replay"]["segments"]:
            data = _verified(folder / "replay" / segment["file"], segment["sha256"])
            skip = max(mark.first_episode - segment["first"], 0)
            yield from islice(_unpack(safetensors.numpy.load(data)), skip, None)

    replay.restore(episodes(), mark)
    replay.saved = manifest["replay"]["segments"]


def list_checkpoints(folder: Path) -> list[Path]:
    """Oldest first; temporary folders are not among them."""
    found = (folder / "checkpoints").glob("*")
    return sorted(path for path in found if path.name.isdigit())


def _sealed(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with a hash of itself."""
    return {**manifest, "sha256": sha256(json.dumps(manifest, sort_keys=True).encode())}


def _manifest(path: Path) -> dict[str, Any]:
    manifest = json.loads((path / "manifest.json").read_bytes())
    if manifest["format"] > FORMAT:
        raise ValueError(f"its format {manifest['format']} is newer than this version of arac reads ({FORMAT})")
    seal = manifest.pop("sha256")
    if _sealed(manifest)["sha256"] != seal:
        raise ValueError("manifest.json does not match its hash")
    return manifest


def _verified(path: Path, expected: str) -> bytes:
    data = path.read_bytes()
    if sha256(data) != expected:
        raise ValueError(f"{path.name} does not match its hash")
    return data


def _save_replay(folder: Path, replay: ReplayBuffer, mark: Mark) -> tuple[int, list[dict[str, Any]]]:
    """Writes the episodes that no file has yet: how many those were, and all files that are still needed."""
    first = replay.mark.episodes - len(replay.unsaved)
    new = list(islice(replay.unsaved, mark.episodes - first))
    segments = replay.saved
    if new:
        data = safetensors.numpy.save(_pack(new))
        name = f"{first:012d}.safetensors"
        folder.mkdir(exist_ok=True)
        write_durably(folder / name, data)
        segments = [*segments, {"file": name, "sha256": sha256(data), "first": first, "count": len(new)}]
    return len(new), [segment for segment in segments if segment["first"] + segment["count"] > mark.first_episode]


def _pack(episodes: list[Episode]) -> dict[str, np.ndarray]:
    return {
        "observations": np.concatenate([episode.observations for episode in episodes]),
        "actions": np.concatenate([episode.actions for episode in episodes]),
        "rewards": np.concatenate([episode.rewards for episode in episodes]),
        "totals": np.array([episode.total for episode in episodes]),
        "lengths": np.array([len(episode) for episode in episodes]),
        "terminated": np.array([episode.terminated for episode in episodes]),
    }


def _unpack(arrays: dict[str, np.ndarray]) -> Iterable[Episode]:
    row = step = 0
    for number, length in enumerate(arrays["lengths"].tolist()):
        yield Episode(
            observations=arrays["observations"][row : row + length + 1],
            actions=arrays["actions"][step : step + length],
            rewards=arrays["rewards"][step : step + length],
            terminated=bool(arrays["terminated"][number]),
            total=float(arrays["totals"][number]),
            steps=length,
        )
        row, step = row + length + 1, step + length


def _prune(folder: Path) -> None:
    """Removes all but the last checkpoints, then the replay files that none of those needs."""
    checkpoints = list_checkpoints(folder)
    for path in checkpoints[:-KEPT]:
        shutil.rmtree(path)
    try:
        manifests = [_manifest(path) for path in checkpoints[-KEPT:]]
    except (OSError, ValueError, KeyError, TypeError):
        return  # one of them is broken: what it needs is not known, so everything stays
    needed = {segment["file"] for manifest in manifests for segment in manifest["replay"]["segments"]}
    for path in (folder / "replay").glob("*"):
        if path.name not in needed:
            path.unlink()
