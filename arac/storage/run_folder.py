"""Run folders: made once, described in config.toml, locked while a process works on them."""

import contextlib
import fcntl
import os
import platform
import shutil
import stat
import time
import tomllib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import tomli_w

from arac.algorithms.base import Evaluation, State
from arac.envs.making import FromUser
from arac.errors import StorageFailure, UserError
from arac.models.policies.custom import CustomPolicy
from arac.replay.buffer import ReplayBuffer, ReplayCursor
from arac.storage import checkpoint, metrics
from arac.storage.replay_segments import ReplayLog
from arac.storage.run_spec import RunSpec, not_plain
from arac.utils.atomic_io import Checksum, read_bounded, sync_folder, write_durably
from arac.utils.processes import cores

# The files and folders of a run folder.
_MADE_AFTERWARDS = ("curve.png", "champion.json", "champion.safetensors", "outcome.json")
_FILES = ("config.toml", *metrics.DETERMINISTIC_FILES, "timings.jsonl", *_MADE_AFTERWARDS)
FOLDERS = ("checkpoints", "replay", "tensorboard", "videos", "wandb")
# The marker of a new run folder, which exists until the folder is complete.
_BEGINNING = ".beginning.tmp"
_CONFIG_LIMIT = 2**14  # bytes; the time of parsing may grow with the square of it
_GLANCE = 0.2  # seconds, after which a process that only tests the lock has released it
_VERSIONS = ("arac-rl", "jax", "jaxlib", "numpy", "gymnasium", "mujoco")


class Run:
    """A run folder, locked by this process; `Run.create` makes a new one."""

    def __init__(self, folder: Path, description: RunSpec) -> None:
        check_parts(folder)
        self.folder = folder
        self.description = description
        self._lock = lock(folder)
        self.replay_log = ReplayLog()
        self._metrics = metrics.Metrics(folder)
        self._saved_steps: int | None = None

    @staticmethod
    def create(folder: Path, description: RunSpec, steps: int, state: State, replay: ReplayBuffer) -> "Run":
        """Create a run folder with a first checkpoint. config.toml is written last: only then is the folder a run.

        Args:
            folder: the run folder.
            description: the run.
            steps: the environment steps to train for.
            state: the run's first state.
            replay: its replay buffer at that state.

        Raises:
            UserError: if the folder cannot be created, or already holds a run or something else.
            StorageFailure: if it cannot be written.
        """
        config = _config(description, steps, versions())
        check_free(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"Cannot create {folder} ({error.strerror}); choose another --run-dir.") from None
        run = Run(folder, description)
        try:
            check_free(folder)  # again, now that it is locked: another process may have made a run in it
            with run.writing():
                _clear_beginning(folder)
                _mark_beginning(folder)
                run._metrics.begin()
                run.replay_log = ReplayLog(replay.cursor.first_episode, deque(replay.episodes()))
                run.save(state, replay.cursor, run.metric_checksums())
                write_durably(folder / "config.toml", config)
                (folder / _BEGINNING).unlink()
                sync_folder(folder.parent)
        except BaseException:
            run.close()
            raise
        return run

    def restore(self, replay: ReplayBuffer) -> tuple[State, list[str]]:
        """Restore state, replay and metrics of the newest undamaged checkpoint.

        Args:
            replay: an empty buffer to fill.

        Returns:
            The state, and a description of each checkpoint that was skipped and each metrics file that has changed.
        """
        loaded = checkpoint.load(self.folder, self.description, replay)
        with self.writing():
            checkpoint.clear_leftovers(self.folder)
            checkpoint.set_aside_after(self.folder, loaded.state.env_steps)
            changed = self._metrics.go_back(loaded.state.env_steps, loaded.manifest.metrics)
        self.replay_log = ReplayLog(loaded.manifest.cursor.episodes, saved=loaded.manifest.segments)
        self._saved_steps = loaded.state.env_steps
        return loaded.state, [*(f"skipped {reason}" for reason in loaded.skipped), *changed]

    def set_total_steps(self, steps: int) -> None:
        """Write another number of total steps into config.toml, and keep the versions that the run was started with."""
        then = read_config(self.folder).get("versions", {})
        with self.writing():
            write_durably(self.folder / "config.toml", _config(self.description, steps, then))

    def record(self, state: State, evaluation: Evaluation | None, seconds: dict[str, float]) -> None:
        """Append the evaluation of a generation, if there was one, and the seconds of each phase so far."""
        with self.writing():
            self._metrics.timing(state.env_steps, state.generation, seconds)
            if evaluation is not None:
                archive = self.description.algorithm.archive(state)
                histograms = {} if archive is None else {"archive/fitness": archive.fitness[: archive.size]}
                self._metrics.evaluation(evaluation, histograms)

    def metric_checksums(self) -> dict[str, Checksum]:
        """Return the checksum of each deterministic metrics file as it is now."""
        return self._metrics.checksums()

    def save(self, state: State, cursor: ReplayCursor, checksums: dict[str, Checksum]) -> Path | None:
        """Write a checkpoint and return its folder, or return None if this state is already saved.

        Args:
            state: the state of the algorithm.
            cursor: the cursor of replay when `state` was reached.
            checksums: the checksum of each metrics file at that moment.
        """
        if state.env_steps == self._saved_steps:
            return None
        with self.writing():
            self._metrics.sync()  # first, because the manifest holds the hashes of these files
            identity = self.description.identity()
            written = checkpoint.save(self.folder, state, self.replay_log, cursor, checksums, identity)
        self._saved_steps = state.env_steps
        return written

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Convert an `OSError` of the block into a `StorageFailure` whose message is a sentence.

        Raises:
            StorageFailure: if the folder cannot be written.
        """
        try:
            yield
        except StorageFailure:
            raise
        except OSError as error:
            kept = "" if self._saved_steps is None else f"; {self._saved_steps:,} steps are saved"
            raise StorageFailure(f"{self.folder} cannot be written ({error.strerror or error}){kept}.") from error

    def close(self) -> None:
        """Close the metrics files and release the lock."""
        try:
            with self.writing():
                self._metrics.close()
        finally:
            os.close(self._lock)


def read(folder: Path, env: FromUser | None = None, policy: type[CustomPolicy] | None = None) -> tuple[RunSpec, int]:
    """Return the specification of the run in a folder, and its total environment steps.

    Args:
        folder: the run folder.
        env: as for `RunSpec.from_table`.
        policy: as for `RunSpec.from_table`.

    Raises:
        UserError: if the folder holds no run, or its config.toml is invalid.
    """
    table = read_config(folder)
    try:
        if not isinstance(table["steps"], int):
            raise TypeError(f"steps {table['steps']!r}")
        return RunSpec.from_table(table, env, policy), table["steps"]
    except UserError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{folder / 'config.toml'} is not the config of a run: {error!r}.") from None


def read_config(folder: Path) -> dict[str, Any]:
    """Return the table in config.toml.

    Raises:
        UserError: if the folder holds no run, or the file cannot be read.
    """
    try:
        return load_config(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} holds no run: there is no config.toml in it.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{folder / 'config.toml'} cannot be read: {error}.") from None


def load_config(folder: Path) -> dict[str, Any]:
    """Return the table in config.toml.

    Raises:
        OSError, ValueError, RecursionError: if there is none, or it cannot be read.
    """
    return tomllib.loads(read_bounded(folder / "config.toml", _CONFIG_LIMIT).decode())


def _config(description: RunSpec, steps: int, made_with: dict[str, str]) -> bytes:
    """Return the content of config.toml.

    Raises:
        UserError: if a keyword argument of the environment is not a plain value, or they are too long.
    """
    try:
        data = tomli_w.dumps({"steps": steps, **description.to_table(), "versions": made_with}).encode()
    except TypeError as error:
        raise not_plain(error) from None
    if len(data) > _CONFIG_LIMIT:
        told = f"env_kwargs are too long: config.toml would have {len(data):,} bytes, the limit is {_CONFIG_LIMIT:,}."
        raise UserError(told, fields=("env_kwargs",))
    return data


def versions() -> dict[str, str]:
    """Return everything that the last digits of a result may depend on, such as the versions of libraries.

    The number of cores is included because matrix products are divided among them.
    """
    installed = {name: version(name) for name in _VERSIONS}
    return installed | {"python": platform.python_version(), "cores": str(len(cores()))}


def other_versions(folder: Path) -> list[str]:
    """Describe each version that is another now than when config.toml was written."""
    then = read_config(folder).get("versions")
    if not isinstance(then, dict):
        return ["unknown ones"]
    return [f"{name} {now} instead of {then[name]}" for name, now in versions().items() if then.get(name, now) != now]


def check_free(folder: Path) -> None:
    """Check that a folder can become a run folder.

    Raises:
        UserError: if it holds a run or other files, or its name contains '..' or control characters.
    """
    if ".." in folder.parts or not str(folder).isprintable():
        raise UserError(f"Invalid run folder {str(folder)!r}: use a path without '..' and control characters.")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; choose another --run-dir.")
    if (folder / "config.toml").exists():
        raise UserError(f"{folder} already holds a run; use `arac resume {folder}`, or choose another --run-dir.")
    begun = (folder / _BEGINNING).exists()  # by a process that was killed before the run was complete
    if folder.exists() and any(folder.iterdir()) and not begun:
        raise UserError(f"{folder} is not empty and holds no run; choose another --run-dir.")


def _mark_beginning(folder: Path) -> None:
    """Create the marker before anything else.

    It is created under its final name: a kill before a rename would leave a folder neither empty nor marked.
    """
    if not (folder / _BEGINNING).exists():
        (folder / _BEGINNING).open("xb").close()
        sync_folder(folder)


def fresh_folder(parent: Path, name: str) -> Path:
    """Create a folder `name` in `parent`, with a number appended if that name is taken, and return it.

    Raises:
        UserError: if it cannot be created.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            folder = parent / (name if number == 1 else f"{name}-{number}")
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                break
    except OSError as error:
        raise UserError(f"Cannot create {parent} ({error.strerror}); choose another --run-dir.") from None
    return folder


def is_locked(folder: Path) -> bool:
    """Return whether a process is working on a run."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return not _take(descriptor, fcntl.LOCK_SH)  # shared: processes that only test do not exclude each other
    finally:
        os.close(descriptor)


def lock(folder: Path) -> int:
    """Lock a folder until the returned file descriptor is closed or the process ends.

    Raises:
        UserError: if another process has locked it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    if not _take(descriptor, fcntl.LOCK_EX):
        time.sleep(_GLANCE)
        if not _take(descriptor, fcntl.LOCK_EX):
            os.close(descriptor)
            raise UserError(f"Another process is working on {folder}; wait for it or stop it first.")
    return descriptor


def _take(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def check_parts(folder: Path) -> None:
    """Check that the paths that a run writes to, where they exist, are ordinary files and folders.

    A link would let the run write elsewhere, and a pipe would block it.

    Raises:
        UserError: if one is something else.
    """
    for names, is_as_it_should in ((_FILES, stat.S_ISREG), (FOLDERS, stat.S_ISDIR)):
        for path in (folder / name for name in names):
            if os.path.lexists(path) and not is_as_it_should(path.lstat().st_mode):
                raise UserError(f"{path} must be an ordinary file or folder, not a link; remove it.")


def _clear_beginning(folder: Path) -> None:
    """Remove what a process left that was killed before its new run folder was complete."""
    if (folder / _BEGINNING).exists():
        for name in FOLDERS:
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
