"""What can be set: one frozen dataclass per system, checked when it is made, and the paper's presets.

Every field is a keyword of the Python class and a flag of the command; the line below a field is its help.
"""

import dataclasses
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_type_hints

from arac.archive import Strategy
from arac.critics import CriticKind
from arac.envs import suggestion
from arac.envs.tasks import VARIANTS
from arac.errors import UserError
from arac.losses import Base

# The smallest value of each number, and of those with a largest one, that.
_AT_LEAST = {
    "population_size": 1, "elites": 1, "archive_capacity": 1, "archive_sample": 1, "actor_coefficient": 0,
    "ar_coefficient": 0, "flows": 0, "eval_episodes": 1, "eval_interval": 0, "checkpoint_interval": 1,
    "warmup_steps": 0, "workers": 0, "batch_size": 1, "replay_capacity": 1, "hidden_size": 1, "temperature": 0,
    "discount": 0, "tau": 0, "learning_rate": 0, "kl_clip": 0, "sigma": 1e-6,
    "episode_timeout": 0.1,
}  # fmt: skip
_AT_MOST = {
    "discount": 1, "tau": 1, "flows": 1000, "workers": 1000, "population_size": 10_000, "archive_capacity": 1_000_000,
    "archive_sample": 10_000, "episode_timeout": 1e7,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config:
    """What all systems share."""

    preset_fields: ClassVar[tuple[str, ...]] = ()  # what this system takes from a row of the paper's table

    critic: CriticKind = "value"
    """value: twin Q, V and a target V (SAC v1, the paper's); twin: twin Q with targets of their own (SAC v2)."""
    discount: float = 0.99
    """Discount factor (gamma)."""
    tau: float = 0.005
    """Step of the slowly moving target network towards the trained one."""
    learning_rate: float = 3e-4
    """Adam's learning rate, for actors and critic."""
    batch_size: int = 256
    """Transitions per mini-batch."""
    hidden_size: int = 256
    """Units per hidden layer."""
    replay_capacity: int = 1_000_000
    """Transitions that replay keeps."""
    warmup_steps: int = 10_000
    """Environment steps with uniformly random actions at the start; learning begins after them."""
    eval_episodes: int = 10
    """Episodes without noise per agent at an evaluation (R)."""
    eval_interval: int = 10_000
    """Environment steps between evaluations; 0 evaluates after every generation."""
    store_evaluation: bool = False
    """Put evaluation episodes into replay too, as Algorithm 2 has it. They never count as training steps."""
    checkpoint_interval: int = 10_000
    """Environment steps between checkpoints."""
    episode_timeout: float | Literal["none"] = 600.0
    """Seconds after which an episode's worker process is ended; none: it may take for ever."""
    workers: int | Literal["auto"] = "auto"
    """Worker processes that play episodes; auto: one per core, 0: this process. Results do not depend on it."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            _check_type(field.name, getattr(self, field.name), hints[field.name])
            _check_range(field.name, getattr(self, field.name))
        if self.batch_size > self.replay_capacity:
            raise UserError(f"batch_size ({self.batch_size}) must not exceed replay_capacity ({self.replay_capacity}).")


@dataclass(frozen=True, kw_only=True)
class ARACConfig(Config):
    """Attraction-Repulsion Actor-Critic."""

    preset_fields: ClassVar[tuple[str, ...]] = (
        "flows", "sigma", "archive_capacity", "actor_coefficient", "temperature", "strategy",
    )  # fmt: skip

    population_size: int = 5
    """Agents (M)."""
    elites: int = 2
    """Fittest agents that train the critic and feel attraction and repulsion (K)."""
    archive_capacity: int = 20
    """Earlier policies that the archive keeps (G)."""
    archive_sample: int = 5
    """Archived policies drawn for each elite and generation (n)."""
    actor_coefficient: float = 1.0
    """Mini-batches of all actors together per environment step (p); each actor gets p/M."""
    strategy: Strategy = "proactive"
    """proactive: away from the worse half, towards the better; reactive: only away, most from the worst."""
    ar_coefficient: float = 1.0
    """Weight of attraction and repulsion (lambda); 0 switches them off."""
    ar_base: Base = "shared"
    """What the archived flows stand on: the agent's own base (shared), theirs (own); gaussian: no flows, bases only."""
    kl_clip: float | Literal["none"] = 1.0
    """Divergence, in nats, from which on a policy is not repelled further; none is the paper's letter."""
    flows: int = 3
    """Radial flows per policy (N)."""
    sigma: float | Literal["learned"] = 0.4
    """Standard deviation of the base Gaussian, or learned from the state."""
    temperature: float = 0.2
    """Weight of the entropy (alpha)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elites > self.population_size:
            raise UserError(
                f"elites ({self.elites}) must not exceed population_size ({self.population_size}): "
                "lower the one or raise the other."
            )


@dataclass(frozen=True, kw_only=True)
class SACConfig(Config):
    """Soft actor-critic. SAC v2 as it stands; `critic="value", temperature=0.2` is v1."""

    critic: CriticKind = "twin"
    temperature: float | Literal["auto"] = "auto"
    """Weight of the entropy; auto learns it, towards an entropy of minus the action's size."""


@dataclass(frozen=True, kw_only=True)
class SACNFConfig(Config):
    """Soft actor-critic with a radial-flow policy: ARAC's agent, alone."""

    preset_fields: ClassVar[tuple[str, ...]] = ("flows", "sigma", "temperature")

    flows: int = 3
    """Radial flows (N)."""
    sigma: float | Literal["learned"] = 0.4
    """Standard deviation of the base Gaussian, or learned from the state."""
    temperature: float = 0.2
    """Weight of the entropy (alpha)."""


AnyConfig = TypeVar("AnyConfig", bound=Config)


def configured(
    kind: type[AnyConfig], env_id: str, overrides: dict[str, Any], *, preset: bool = True
) -> tuple[AnyConfig, str | None]:
    """The config for a task, and the name of the preset it starts from, if there is one.

    Raises:
        UserError: if an override is not a field, or its value is not allowed.
    """
    fields = [field.name for field in dataclasses.fields(kind)]
    for name in overrides:
        if name not in fields:
            raise UserError(
                f"{kind.__name__.removesuffix('Config')} has no setting {name!r}.{suggestion(name, fields)}"
            )
    row = paper_table().get(task_name(env_id)) if preset else None
    chosen = {name: row[name] for name in kind.preset_fields} if row else {}
    return kind(**{**chosen, **overrides}), task_name(env_id) if chosen else None


def default_steps(env_id: str) -> int:
    """The paper's number of environment steps for a task; a million for all others."""
    return paper_table().get(task_name(env_id), {}).get("steps", 1_000_000)


@cache
def paper_table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("arac").joinpath("presets/paper.toml").read_text())


def task_name(env_id: str) -> str:
    """`arac/HumanoidRllab-v0` is HumanoidRllab, `Hopper-v5` and `module:Hopper-v5` are Hopper, variants too."""
    name = re.sub(r"-v\d+$", "", re.split("[/:]", env_id)[-1])
    return VARIANTS.get(name, name)


def _check_type(name: str, value: Any, hint: Any) -> None:
    allowed = get_args(hint) or (hint,)
    kinds = tuple(kind for kind in allowed if isinstance(kind, type))
    words = [word for kind in allowed if not isinstance(kind, type) for word in (get_args(kind) or (kind,))]
    if value in words and isinstance(value, str):
        return
    if isinstance(value, bool) == (bool in kinds) and isinstance(value, kinds + ((int,) if float in kinds else ())):
        return
    described = [{int: "a whole number", float: "a number", bool: "true or false"}[kind] for kind in kinds]
    raise UserError(f"{name} must be {' or '.join([*described, *map(repr, words)])}, got {value!r}.")


def _check_range(name: str, value: Any) -> None:
    if isinstance(value, str | bool) or name not in _AT_LEAST:
        return
    low, high = _AT_LEAST[name], _AT_MOST.get(name, float("inf"))
    if not low <= value <= high or value == float("inf"):
        bounds = f"at least {low}" if high == float("inf") else f"from {low} to {high}"
        raise UserError(f"{name} must be {bounds}, got {value}.")
