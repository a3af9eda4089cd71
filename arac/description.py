"""What a run is: algorithm, environment, seed and settings, as a table that can be written down and compared."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from arac import algorithms, envs, memory, trees
from arac.algorithms import Algorithm
from arac.config import Config
from arac.envs import EnvSpec, Maker
from arac.errors import UserError
from arac.presets import configured

# Settings that no result depends on.
_WITHOUT_EFFECT = ("workers", "rollouts", "episode_timeout", "checkpoint_interval")


@dataclass(frozen=True)
class Description:
    """What a run is: all that its numbers depend on."""

    algorithm: Algorithm
    env: EnvSpec
    seed: int
    config: Config
    preset: str | None = None  # which row of the paper's table the config started from, for people to read

    def first_state(self) -> Any:
        """The state that the run begins with."""
        return self.algorithm.init(self.config, self.env, self.seed)

    def outline(self) -> Any:
        """Of its states; nothing is allocated for it.

        Raises:
            UserError: if a state would not fit into memory.
        """
        try:
            outline = trees.outline(self.first_state)
        except MemoryError as error:
            raise UserError(f"These settings need more memory than there is ({error}).") from None
        memory.check(trees.size_in_bytes(outline), "The networks and the archive", "lower hidden_size or their number")
        return outline

    def identity(self) -> dict[str, Any]:
        """All that the results depend on; the number of workers and the like are not in it."""
        table = self.to_table()
        settings = {name: value for name, value in table["config"].items() if name not in _WITHOUT_EFFECT}
        return {**{key: table[key] for key in ("algorithm", "seed", "environment")}, "config": settings}

    def differences(self, identity: dict[str, Any]) -> list[str]:
        """Where another identity is not this one's, in words. Settings that it does not know had their defaults."""
        defaults = json.loads(json.dumps(asdict(self.algorithm.config())))
        here, there = (_flat(json.loads(json.dumps(one))) for one in (self.identity(), identity))
        names = sorted(here.keys() | there.keys())
        values = [(name, here.get(name), there.get(name, defaults.get(name))) for name in names]
        return [f"{name} is {now!r}, was {then!r}" for name, now, then in values if now != then]

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
                **({"callable": True} if callable(self.env.source) else {}),
            },
            "config": asdict(self.config),
        }

    @staticmethod
    def from_table(table: dict[str, Any], env: Maker | None = None) -> "Description":
        """The opposite of `to_table`; makes the environment once to read its spaces.

        What a file names is never called: a function that made the environment has to be given again, as `env`.
        """
        environment = table["environment"]
        if bool(environment.get("callable")) != (env is not None):
            raise UserError(
                f"{environment['id']} is "
                + ("a name: leave env out." if env else "Python code: load or resume it in Python, with env=.")
            )
        algorithm = algorithms.find(table["algorithm"])
        seed = check_seed(table["seed"])
        spec = envs.check(
            env or environment["id"], max_episode_steps=environment["max_episode_steps"], kwargs=environment["kwargs"]
        )
        config, _ = configured(algorithm.config, spec.id, table["config"], preset=False)
        preset = None if table["preset"] == "none" else table["preset"]
        return Description(algorithm, spec, seed, config, preset)


def check_seed(seed: Any) -> int:
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise UserError(f"seed must be a whole number from 0 to {2**32 - 1}, got {seed!r}.")
    return seed


def not_plain(error: TypeError) -> UserError:
    """For a description that cannot be written down."""
    return UserError(f"env_kwargs must be numbers, words, lists or tables to be written down ({error}).")


def _flat(identity: dict[str, Any]) -> dict[str, Any]:
    """Its settings under their names, all on one level."""
    rest = {name: value for name, value in identity.items() if name not in ("environment", "config")}
    environment = {f"environment.{name}": value for name, value in identity["environment"].items()}
    return {**rest, **environment, **identity["config"]}
