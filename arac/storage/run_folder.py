"""Run folders: made once, described in config.toml, locked while a process works on them."""

import contextlib
import fcntl
import os
import platform
import shutil
import stat
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import tomli_w

from arac.algorithms.base import Evaluation
from arac.envs import Maker
from arac.errors import StorageFailure, UserError
from arac.models.policies.custom import CustomPolicy
from arac.replay.buffer import ReplayBuffer, ReplayCursor
from arac.storage import checkpoint, metrics
from arac.storage.run_spec import RunSpec, not_plain
from arac.utils.atomic_io import Checksum, read_bounded, sync_folder, write_durably
from arac.utils.processes import cores

# What lies in a run folder.
_MADE_AFTERWARDS = ("curve.png", "champion.json", "champion.safetensors", "outcome.json")
_FILES = ("config.toml", *metrics.DETERMINISTIC_FILES, "timings.jsonl", *_MADE_AFTERWARDS)
FOLDERS = ("checkpoints", "replay", "tensorboard", "videos", "wandb")
# Is there until a new run folder is complete.
_BEGINNING = ".beginning.tmp"
_CONFIG_LIMIT = 2**14  # what reading takes may grow with the square of it
_GLANCE = 0.2  # seconds; who only looks whether a run is locked has let go by then
_VERSIONS = ("arac-rl", "jax", "jaxlib", "numpy", "gymnasium", "mujoco")


class Run:
    """A run folder that this process works on; `Run.create` begins one."""

    def __init__(self, folder: Path, description: RunSpec) -> None:
        check_parts(folder)
        self.folder = folder
        self.description = description
        self._lock = lock(folder)
        self._metrics = metrics.Metrics(folder)
        self._saved_steps: int | None = None

    @staticmethod
    def create(folder: Path, description: RunSpec, steps: int, state: Any, replay: ReplayBuffer) -> "Run":
        """Begins a run with its first checkpoint; config.toml comes last and makes the folder a run.

        Raises:
            UserError: if there is a run in the folder already, or something else.
            StorageFailure: if it cannot be written.
        """
        config = _config(description, steps, versions())
        check_free(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder} cannot be made ({error.strerror}); choose another --run-dir.") from None
        run = Run(folder, description)
        try:
            check_free(folder)  # again, now that it is ours: another process may have begun a run in it
            with run.writing():
                _clear_beginning(folder)
                _mark_beginning(folder)
                run._metrics.begin()
                run.save(state, replay, replay.mark, run.metric_checksums())
                write_durably(folder / "config.toml", config)
                (folder / _BEGINNING).unlink()
                sync_folder(folder.parent)
        except BaseException:
            run.close()
            raise
        return run

    def restore(self, outline: Any, replay: ReplayBuffer) -> tuple[Any, list[str]]:
        """The state of the newest whole checkpoint, with replay and metrics as they were, and what was not whole."""
        loaded = checkpoint.load(self.folder, outline, self.description.differences, replay)
        with self.writing():
            checkpoint.clear_leftovers(self.folder)
            checkpoint.set_aside_after(self.folder, loaded.state.env_steps)
            changed = self._metrics.go_back(loaded.state.env_steps, loaded.manifest.metrics)
        self._saved_steps = loaded.state.env_steps
        return loaded.state, [*(f"skipped {reason}" for reason in loaded.skipped), *changed]

    def set_total_steps(self, steps: int) -> None:
        """Writes another goal into config.toml; the versions stay those that the run began with."""
        then = read_config(self.folder).get("versions", {})
        with self.writing():
            write_durably(self.folder / "config.toml", _config(self.description, steps, then))

    def record(self, state: Any, evaluation: Evaluation | None, seconds: dict[str, float]) -> None:
        """What a generation gave, and what the phases of the run have cost so far."""
        with self.writing():
            self._metrics.timing(state.env_steps, state.generation, seconds)
            if evaluation is not None:
                self._metrics.evaluation(evaluation, getattr(state, "archive", None))

    def metric_checksums(self) -> dict[str, Checksum]:
        return self._metrics.checksums()

    def save(self, state: Any, replay: ReplayBuffer, mark: ReplayCursor, checksums: dict[str, Checksum]) -> Path | None:
        """Writes a checkpoint, unless this very state has one; its folder."""
        if state.env_steps == self._saved_steps:
            return None
        with self.writing():
            self._metrics.sync()  # the manifest has their hashes, so what it speaks of must be on the disk first
            written = checkpoint.save(self.folder, state, replay, mark, checksums, self.description.identity())
        self._saved_steps = state.env_steps
        return written

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turns the system's refusal to write into a sentence.

        Raises:
            StorageFailure: if it refuses.
        """
        try:
            yield
        except StorageFailure:
            raise
        except OSError as error:
            kept = "" if self._saved_steps is None else f"; {self._saved_steps:,} steps are saved"
            raise StorageFailure(f"{self.folder} cannot be written ({error.strerror or error}){kept}.") from error

    def close(self) -> None:
        try:
            with self.writing():
                self._metrics.close()
        finally:
            os.close(self._lock)


def read(folder: Path, env: Maker | None = None, policy: type[CustomPolicy] | None = None) -> tuple[RunSpec, int]:
    """What the run in a folder is, and for how many steps it was started; the rest as for `Description.from_table`.

    Raises:
        UserError: if the folder holds no run.
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
    """The table in config.toml.

    Raises:
        UserError: if the folder holds no run.
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
    """What config.toml holds.

    Raises:
        UserError: if a keyword argument of the environment is not a plain value.
    """
    try:
        data = tomli_w.dumps({"steps": steps, **description.to_table(), "versions": made_with}).encode()
    except TypeError as error:
        raise not_plain(error) from None
    if len(data) > _CONFIG_LIMIT:
        raise UserError(f"env_kwargs must not be so long: config.toml would have {len(data):,} bytes.")
    return data


def versions() -> dict[str, str]:
    """Of all that the last digit of a result may depend on; a product is divided among the cores."""
    installed = {name: version(name) for name in _VERSIONS}
    return installed | {
        "python": platform.python_version(),
        "cores": str(len(cores())),
    }


def other_versions(folder: Path) -> list[str]:
    """In words, what has another version now than when config.toml was written."""
    then = read_config(folder).get("versions")
    if not isinstance(then, dict):
        return ["unknown ones"]
    return [f"{name} {now} instead of {then[name]}" for name, now in versions().items() if then.get(name, now) != now]


def check_free(folder: Path) -> None:
    """Refuses a folder that a new run would mix with something else, and names that lead elsewhere.

    Raises:
        UserError: if it holds a run or other files, or has such a name.
    """
    if ".." in folder.parts or not str(folder).isprintable():
        raise UserError(f"{str(folder)!r} is no name for a run: use --run-dir without '..' and control characters.")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; choose another --run-dir.")
    if (folder / "config.toml").exists():
        raise UserError(f"{folder} already holds a run; go on with `arac resume {folder}` or choose another --run-dir.")
    begun = (folder / _BEGINNING).exists()  # by a process that was killed before there was a run
    if folder.exists() and any(folder.iterdir()) and not begun:
        raise UserError(f"{folder} is not empty and holds no run; choose another --run-dir.")


def _mark_beginning(folder: Path) -> None:
    """Make the mark before anything else, and at once: under another name first, a kill could leave that alone."""
    if not (folder / _BEGINNING).exists():
        (folder / _BEGINNING).open("xb").close()
        sync_folder(folder)


def fresh_folder(parent: Path, name: str) -> Path:
    """A new folder `name` below `parent`, with a number behind it if that is taken."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            folder = parent / (name if number == 1 else f"{name}-{number}")
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                break
    except OSError as error:
        raise UserError(f"{parent} cannot be made ({error.strerror}); choose a --run-dir elsewhere.") from None
    return folder


def is_locked(folder: Path) -> bool:
    """Whether a process is working on a run."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return not _take(descriptor, fcntl.LOCK_SH)  # shared: those who only look do not see each other
    finally:
        os.close(descriptor)


def lock(folder: Path) -> int:
    """The folder itself, open and locked until it is closed or the process ends."""
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
    """Refuses a folder in which something else lies where a run writes: a link would lead elsewhere, a pipe wait.

    Raises:
        UserError: if it does.
    """
    for names, is_as_it_should in ((_FILES, stat.S_ISREG), (FOLDERS, stat.S_ISDIR)):
        for path in (folder / name for name in names):
            if os.path.lexists(path) and not is_as_it_should(path.lstat().st_mode):
                raise UserError(f"{path} is a link, or not what a run has there; remove it first.")


def _clear_beginning(folder: Path) -> None:
    """Removes what a process left that was killed before its run was one."""
    if (folder / _BEGINNING).exists():
        for name in FOLDERS:
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
