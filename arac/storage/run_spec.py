"""The specification of a run: algorithm, environment, seed and settings, as a table to save and compare."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium

from arac import envs
from arac.algorithms import registry
from arac.algorithms.base import State
from arac.algorithms.config import Config
from arac.algorithms.presets import configured
from arac.algorithms.registry import Algorithm
from arac.envs import EnvSpec
from arac.envs.making import FromUser, name_of
from arac.errors import UserError
from arac.models.policies import custom
from arac.models.policies.custom import CustomPolicy
from arac.storage import pytree_io
from arac.utils import memory

# Settings that no result depends on.
WITHOUT_EFFECT = ("workers", "rollouts", "episode_timeout", "checkpoint_interval")


@dataclass(frozen=True)
class RunSpec:
    """The specification of a run: everything that its results depend on."""

    algorithm: Algorithm
    env: EnvSpec
    seed: int
    config: Config
    preset: str | None = None  # the row of the paper's table that the config started from, for information
    policy: type[CustomPolicy] | None = None  # a user's class in place of the algorithm's policy

    def first_state(self) -> State:
        """Return the state that the run begins with."""
        own = () if self.policy is None else (self.policy,)
        return self.algorithm.init(self.config, self.env, self.seed, *own)

    def outline(self) -> State:
        """Return the outline of the run's states (see `pytree_io.outline`) without allocating one.

        Raises:
            UserError: if a state would not fit into memory.
        """
        try:
            outline = pytree_io.outline(self.first_state)
        except MemoryError as error:
            raise UserError(f"These settings need more memory than there is ({error}).") from None
        memory.check(
            pytree_io.size_in_bytes(outline), "The networks and the archive", "lower hidden_size or their number"
        )
        return outline

    def identity(self) -> dict[str, Any]:
        """Return the table of everything that the results depend on, without settings such as the number of workers."""
        table = self.to_table()
        settings = {name: value for name, value in table["config"].items() if name not in WITHOUT_EFFECT}
        names = ("algorithm", "seed", "environment", "policy")
        return {**{name: table[name] for name in names if name in table}, "config": settings}

    def differences(self, identity: dict[str, Any]) -> list[str]:
        """Describe each difference of another identity from this one.

        A setting that it lacks did not exist when it was written; the value in effect then is compared.
        """
        defaults = json.loads(json.dumps(asdict(self.algorithm.config())))
        then = {**identity, "config": self.config.upgraded(identity["config"], self.env.action_size)}
        here, there = (_flat(json.loads(json.dumps(one))) for one in (self.identity(), then))
        names = sorted(here.keys() | there.keys())
        values = [(name, here.get(name), there.get(name, defaults.get(name))) for name in names]
        return [f"{name} is {now!r}, was {then!r}" for name, now, then in values if now != then]

    def to_table(self) -> dict[str, Any]:
        """Return the specification as the table that config.toml holds."""
        return {
            "algorithm": self.algorithm.name,
            "seed": self.seed,
            "preset": self.preset or "none",
            "environment": {
                "id": self.env.id,
                "max_episode_steps": self.env.max_episode_steps,
                "kwargs": self.env.kwargs,
                **({"callable": True} if self.env.from_user else {}),
                **({"wrappers": list(self.env.wrappers)} if self.env.wrappers else {}),
            },
            **({} if self.policy is None else {"policy": name_of(self.policy)}),
            "config": asdict(self.config),
        }

    @staticmethod
    def from_table(
        table: dict[str, Any], env: FromUser | None = None, policy: type[CustomPolicy] | None = None
    ) -> "RunSpec":
        """Return the specification that a table of `to_table` describes; makes the environment once to check it.

        User code that a table names is never called, so it has to be given again.

        Args:
            table: the table.
            env: the function or class that made the environment, or the environment, if it was not made by name.
            policy: the user's policy class, if there was one.

        Raises:
            UserError: if `env` or `policy` is not what the table names, or a value is invalid.
            KeyError, TypeError, AttributeError: if the table is malformed.
        """
        environment = table["environment"]
        if bool(environment.get("callable")) != (env is not None):
            made = "came as a function or an object: load or resume it in Python and pass it as env=."
            raise UserError(f"{environment['id']} {'is a registered environment: omit env.' if env else made}")
        algorithm = registry.find(table["algorithm"])
        seed = check_seed(table["seed"])
        kwargs = None if isinstance(env, gymnasium.Env) else environment["kwargs"]
        spec = envs.check(env or environment["id"], max_episode_steps=environment["max_episode_steps"], kwargs=kwargs)
        settings = algorithm.config.upgraded(table["config"], spec.action_size)
        config, _ = configured(algorithm.config, spec.id, settings, preset=False)
        preset = None if table["preset"] == "none" else table["preset"]
        check_policy(policy, algorithm, spec)
        _check_same_policy(table.get("policy"), policy)
        return RunSpec(algorithm, spec, seed, config, preset, policy)


def check_seed(seed: object) -> int:
    """Return the seed.

    Raises:
        UserError: if it is not a whole number from 0 to 2**32 - 1.
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise UserError(f"seed must be a whole number from 0 to {2**32 - 1}, got {seed!r}.", fields=("seed",))
    return seed


def check_policy(policy: type[CustomPolicy] | None, algorithm: Algorithm, env: EnvSpec) -> None:
    """Check that a user's policy class, if there is one, can be trained by the algorithm.

    Raises:
        UserError: if it cannot.
    """
    if policy is None:
        return
    if not algorithm.takes_policy:
        able = ", ".join(name for name, one in registry.ALGORITHMS.items() if one.takes_policy)
        raise UserError(f"{algorithm.name} does not support custom policies; these do: {able}.", fields=("policy",))
    custom.check(policy, env)


def _check_same_policy(then: str | None, policy: type[CustomPolicy] | None) -> None:
    if then is None and policy is not None:
        raise UserError("The run was trained with the built-in policy: omit policy.")
    if then is not None and (policy is None or name_of(policy) != then):
        got = "" if policy is None else f", got {name_of(policy)}"
        raise UserError(f"The run was trained with the policy {then}: load or resume it in Python, with policy={got}.")


def not_plain(error: TypeError) -> UserError:
    """Return the error for keyword arguments of an environment that cannot be saved."""
    return UserError(
        f"env_kwargs must be numbers, strings, lists or dicts to be saved ({error}).", fields=("env_kwargs",)
    )


def _flat(identity: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of an identity by name, without nesting."""
    rest = {name: value for name, value in identity.items() if name not in ("environment", "config")}
    environment = {f"environment.{name}": value for name, value in identity["environment"].items()}
    return {**rest, **environment, **identity["config"]}
