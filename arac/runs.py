"""Run folders: made once, described in config.toml, locked while a process works on them."""

import fcntl
import json
import platform
import tomllib
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w

from arac import algorithms, checkpoint, envs, metrics
from arac.algorithms import Algorithm
from arac.algorithms.shared import Evaluation
from arac.config import Config, configured
from arac.envs import EnvSpec
from arac.errors import UserError
from arac.files import sha256, write_durably
from arac.replay import Mark, ReplayBuffer

_VERSIONS = ("arac-rl", "jax", "jaxlib", "numpy", "gymnasium", "mujoco")


@dataclass(frozen=True)
class Description:
    """What a run is: all that its numbers depend on."""

    algorithm: Algorithm
    env: EnvSpec
    seed: int
    config: Config
    preset: str | None = None  # which row of the paper's table the config started from, for people to read

    @property
    def identity(self) -> str:
        """A hash of what the results depend on; the number of workers and the like are not in it."""
        return sha256(json.dumps(self._identity_fields(), sort_keys=True).encode())

    def _identity_fields(self) -> dict[str, Any]:
        table = self.to_table()
        settings = {name: value for name, value in table["config"].items() if name not in _WITHOUT_EFFECT}
        return {**{key: table[key] for key in ("algorithm", "seed", "environment")}, "config": settings}

    def to_table(self) -> dict[str, Any]:
        """As config.toml has it."""
        return {
            "algorithm": self.algorithm.name,
            "seed": self.seed,
            "preset": self.preset or "none",
            "environment": {
                "id": self.env.id,
                "max_episode_steps": self.env.max_episode_steps,
                "kwargs": self.env.kwargs,
            },
            "config": asdict(self.config),
        }

    @staticmethod
    def from_table(table: dict[str, Any]) -> "Description":
        """The opposite of `to_table`; makes the environment once to read its spaces."""
        environment = table["environment"]
        algorithm = algorithms.find(table["algorithm"])
        spec = envs.check(
            environment["id"], max_episode_steps=environment["max_episode_steps"], kwargs=environment["kwargs"]
        )
        config, _ = configured(algorithm.config, spec.id, table["config"], preset=False)
        preset = None if table["preset"] == "none" else table["preset"]
        return Description(algorithm, spec, table["seed"], config, preset)


_WITHOUT_EFFECT = ("workers", "checkpoint_interval")


class Run:
    """A run folder that this process works on; `Run.create` begins one."""

    def __init__(self, folder: Path, description: Description) -> None:
        self.folder = folder
        self.description = description
        self._lock = _locked(folder)
        self._metrics = metrics.Metrics(folder)
        self._saved_steps: int | None = None

    @staticmethod
    def create(folder: Path, description: Description, steps: int) -> "Run":
        """Makes the folder and writes config.toml.

        Raises:
            UserError: if there is a run in it already, or something else.
        """
        check_free(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder} cannot be made ({error.strerror}); choose another --run-dir.") from None
        write_config(folder, description, steps)
        return Run(folder, description)

    def restore(self, template: Any, replay: ReplayBuffer) -> tuple[Any, list[str]]:
        """The state of the newest whole checkpoint, with replay and metrics as they were; and what was skipped."""
        if not (self.folder / "checkpoints").exists():  # killed before its first moment was saved
            return template, []
        loaded = checkpoint.load(self.folder, template, self.description.identity)
        checkpoint.load_replay(self.folder, loaded.manifest, replay)
        checkpoint.set_aside_after(self.folder, loaded.state.env_steps)
        self._metrics.go_back(loaded.state.env_steps, loaded.manifest["metrics"])
        self._saved_steps = loaded.state.env_steps
        return loaded.state, loaded.skipped

    def record(self, state: Any, evaluation: Evaluation | None, seconds: dict[str, float]) -> None:
        """What a generation gave, and what the phases of the run have cost so far."""
        self._metrics.timing(state.env_steps, state.generation, seconds)
        if evaluation is not None:
            self._metrics.evaluation(evaluation)

    def metric_sizes(self) -> dict[str, int]:
        return self._metrics.sizes()

    def save(self, state: Any, replay: ReplayBuffer, mark: Mark, sizes: dict[str, int]) -> None:
        """Writes a checkpoint, unless this very state has one."""
        if state.env_steps == self._saved_steps:
            return
        self._metrics.sync()  # the manifest counts their bytes, so these must be on the disk first
        checkpoint.save(self.folder, state, replay, mark, sizes, self.description.identity)
        self._saved_steps = state.env_steps

    def close(self) -> None:
        self._metrics.close()
        self._lock.close()


def read(folder: Path) -> tuple[Description, int]:
    """What the run in a folder is, and for how many steps it was started.

    Raises:
        UserError: if the folder holds no run.
    """
    try:
        table = tomllib.loads((folder / "config.toml").read_text())
        return Description.from_table(table), table["steps"]
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} holds no run: there is no config.toml in it.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{folder / 'config.toml'} cannot be read: {error!r}.") from None


def write_config(folder: Path, description: Description, steps: int) -> None:
    versions = {name: version(name) for name in _VERSIONS} | {"python": platform.python_version()}
    table = {"steps": steps, **description.to_table(), "versions": versions}
    write_durably(folder / "config.toml", tomli_w.dumps(table).encode())


def check_free(folder: Path) -> None:
    """Refuses a folder that a new run would mix with something else.

    Raises:
        UserError: if it holds a run or other files.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; choose another --run-dir.")
    if (folder / "config.toml").exists():
        raise UserError(f"{folder} already holds a run; go on with `arac resume {folder}` or choose another --run-dir.")
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty and holds no run; choose another --run-dir.")


def fresh_folder(parent: Path, name: str) -> Path:
    """`name` below `parent`, with a number behind it if that is taken."""
    candidates = [name, *(f"{name}-{number}" for number in range(2, 10_000))]
    return next(parent / candidate for candidate in candidates if not (parent / candidate).exists())


def _locked(folder: Path) -> Any:
    file = (folder / ".lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UserError(f"Another process is working on {folder}; wait for it or stop it first.") from None
    return file
