"""Agent files: an agent's description and its state, or its policies alone, as one safetensors file with a hash."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from arac.algorithms.base import State
from arac.envs.making import FromUser
from arac.errors import UserError
from arac.models.policies import Policy
from arac.models.policies.custom import CustomPolicy
from arac.models.stacked import take
from arac.storage import pytree_io
from arac.storage.manifest import FORMAT, NewerFormat
from arac.storage.run_spec import RunSpec, not_plain
from arac.utils.atomic_io import HEADER, read_bounded, sha256, write_durably

_POLICIES_FORMAT = 3  # of files with policies alone, which earlier versions cannot read


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Policies:
    """The policies of an agent: enough to act and to be evaluated, but not to train further."""

    population: Policy  # stacked
    champion: int
    generation: int
    env_steps: int
    archive: ClassVar[None] = None

    @property
    def members(self) -> int:
        """The number of members."""
        return len(jax.tree.leaves(self.population)[0])

    @property
    def elites(self) -> np.ndarray:
        """The champion alone: rankings are not kept."""
        return np.array([self.champion])


def policies_of(state: State, *, champion_only: bool) -> Policies:
    """Return the policies of a state, or the champion's alone."""
    if not champion_only:
        return Policies(state.population, state.champion, state.generation, state.env_steps)
    champion = take(state.population, np.array([state.champion]))
    return Policies(champion, 0, state.generation, state.env_steps)


def write(path: Path, description: RunSpec, state: State) -> None:
    """Write an agent file.

    Args:
        path: the file.
        description: the agent's algorithm, environment, seed and settings.
        state: the state of the algorithm, or `Policies`.

    Raises:
        UserError: if a keyword argument of the environment is not a plain value.
    """
    try:
        table, arrays = json.dumps(description.to_table()), pytree_io.to_arrays(state)
    except TypeError as error:
        raise not_plain(error) from None
    metadata = {"arac": table, "format": str(FORMAT), "version": version("arac-rl")}
    if isinstance(state, Policies):
        metadata |= {"format": str(_POLICIES_FORMAT), "members": str(state.members)}
    hashed = {**metadata, "sha256": _hash(metadata, arrays)}
    write_durably(path, safetensors.numpy.save(arrays, metadata=hashed))


def read_table(path: Path) -> dict[str, Any]:
    """Return the description of the agent in a file, as the table of `RunSpec.to_table`, from the file's header alone.

    Raises:
        UserError: if the file was not made by `write`, or has a newer format.
    """
    with _explained(path):
        table = json.loads(_metadata(path)["arac"])
        if not isinstance(table, dict):
            raise TypeError("its description is not a table")
        return table


def read(path: Path, env: FromUser | None = None, policy: type[CustomPolicy] | None = None) -> tuple[RunSpec, State]:
    """Return the description of the agent in a file, and its state.

    Args:
        path: the file.
        env: as for `RunSpec.from_table`.
        policy: as for `RunSpec.from_table`.

    Raises:
        UserError: if the file was not made by `write`, is damaged, or has a newer format.
    """
    with _explained(path):
        metadata = _metadata(path)
        description = RunSpec.from_table(json.loads(metadata["arac"]), env, policy)
        outline = description.outline()
        if "members" in metadata:
            outline = _outline_of_policies(outline, int(metadata["members"]))
        arrays = safetensors.numpy.load(read_bounded(path, pytree_io.size_in_bytes(outline) + HEADER))
        if metadata.pop("sha256") != _hash(metadata, arrays):
            raise ValueError("it does not match its hash")
        state = pytree_io.from_arrays(outline, arrays, description.config.leaves_since_format_2)
        if broken := pytree_io.not_finite(state):
            raise ValueError(f"{', '.join(broken)} not finite")
        if isinstance(state, Policies) and not 0 <= state.champion < state.members:
            raise ValueError(f"its champion is number {state.champion} of {state.members} members")
        return description, state


def _metadata(path: Path) -> dict[str, str]:
    if path.exists() and not path.is_file():
        raise ValueError("it is not an ordinary file")
    with safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
    if int(metadata["format"]) > (_POLICIES_FORMAT if "members" in metadata else FORMAT):
        raise NewerFormat(path, metadata["format"], metadata.get("version"))
    return metadata


def _outline_of_policies(outline: State, members: int) -> Policies:
    population = jax.eval_shape(lambda state: state.population, outline)
    if members not in (1, jax.tree.leaves(population)[0].shape[0]):
        raise ValueError(f"it holds {members} members, which is neither the champion alone nor all")
    some = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((members, *leaf.shape[1:]), leaf.dtype), population)
    return Policies(some, champion=0, generation=0, env_steps=0)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Convert the errors of reading a file into a `UserError`."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"There is no file or folder {path}.") from None
    except UserError:
        raise
    except (SafetensorError, OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a file that arac saved: {error!r}.") from None


def _hash(metadata: dict[str, str], arrays: dict[str, np.ndarray]) -> str:
    """Return a hash of the metadata and of every array with its name, type and shape."""
    parts = [f"{name} {array.dtype}{array.shape} {sha256(array.tobytes())}" for name, array in sorted(arrays.items())]
    return sha256("\n".join([json.dumps(metadata, sort_keys=True), *parts]).encode())
