"""Settings that several algorithms share, as frozen dataclasses that are checked when they are made.

Every field is a keyword of the Python class and a flag of the command; the line below a field is its help.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

from arac.errors import UserError
from arac.models.critics import CriticKind
from arac.utils.validation import Bounds, Count, Natural, NonNegative, Share, check_value


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of every algorithm."""

    preset_table: ClassVar[str] = "paper"  # the file below presets/ with the settings for each task
    preset_fields: ClassVar[tuple[str, ...]] = ()  # what this algorithm takes from a row of it
    letter_fields: ClassVar[tuple[str, ...]] = ()  # what it takes beside them with the preset "paper-letter"
    # Other values than the defaults, by the preset that chooses them.
    named_presets: ClassVar[dict[str, dict[str, Any]]] = {"paper-letter": {}}
    # Settings of the built-in stochastic policy; they have no effect on a custom policy.
    policy_fields: ClassVar[frozenset[str]] = frozenset()
    # The values in effect before these settings existed, where they differ from the defaults.
    earlier_values: ClassVar[dict[str, Any]] = {}
    # NumPy leaves of the state that files of format 1 lack; they begin with their initial values.
    leaves_since_format_2: ClassVar[tuple[str, ...]] = ()

    tau: Share = 0.005
    """Step of the slowly moving target network towards the trained one."""
    learning_rate: NonNegative = 3e-4
    """Adam's learning rate, for actors and critic."""
    batch_size: Count = 256
    """Transitions per mini-batch."""
    hidden_size: Count = 256
    """Units per hidden layer."""
    replay_capacity: Count = 1_000_000
    """Transitions that replay keeps."""
    warmup_steps: Natural = 10_000
    """Environment steps with uniformly random actions at the start; learning begins after them."""
    eval_episodes: Count = 10
    """Episodes without noise per agent at an evaluation (R)."""
    eval_interval: Natural = 10_000
    """Environment steps between evaluations; 0 evaluates after every generation."""
    store_evaluation: bool = False
    """Put evaluation episodes into replay too, as in Algorithm 2. They never count as training steps."""
    checkpoint_interval: Count = 10_000
    """Environment steps between checkpoints."""
    episode_timeout: Annotated[float | Literal["none"], Bounds(0.1, 1e7)] = 600.0
    """Seconds after which an episode's worker process is ended; none disables the limit."""
    workers: Annotated[int | Literal["auto"], Bounds(0, 1000)] = "auto"
    """Worker processes that play episodes; auto: one per core, 0: this process. Results do not depend on it."""
    rollouts: Literal["local", "ray"] = "local"
    """Play episodes in local workers or on a Ray cluster: that of RAY_ADDRESS, else one of this machine. Results do
    not depend on it."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self), include_extras=True)
        for field in dataclasses.fields(self):
            check_value(field.name, getattr(self, field.name), hints[field.name])
        if self.batch_size > self.replay_capacity:
            raise UserError(
                f"batch_size ({self.batch_size}) must not exceed replay_capacity ({self.replay_capacity}).",
                fields=("batch_size", "replay_capacity"),
            )

    def episode_limit(self) -> float | None:
        """Return the seconds that an episode may take, or None if there is no limit."""
        return None if self.episode_timeout == "none" else self.episode_timeout

    @classmethod
    def upgraded(cls, settings: dict[str, Any], action_size: int) -> dict[str, Any]:
        """Return the settings of a run, which an earlier version may have written, converted to this version."""
        return {**cls.earlier_values, **settings}


@dataclass(frozen=True, kw_only=True)
class DiscountConfig(Config):
    """Settings of algorithms with one discount factor."""

    discount: Share = 0.99
    """Discount factor (gamma)."""


@dataclass(frozen=True, kw_only=True)
class ExplorationConfig(Config):
    """Settings of algorithms that explore with noise on their actions."""

    noise_hold: Annotated[int, Bounds(1, 10_000)] = 1
    """Longest time that exploration holds a draw of its noise, in steps; 1 draws anew at every step. Times are random,
    short ones the most frequent: 64 is a good start where agents must get far."""


@dataclass(frozen=True, kw_only=True)
class SoftConfig(ExplorationConfig, DiscountConfig):
    """Settings of the soft actor-critics."""

    policy_fields: ClassVar[frozenset[str]] = frozenset({"flows", "sigma"})

    critic: CriticKind = "value"
    """value: twin Q, V and a target V (SAC v1, the paper's); twin: twin Q with separate targets (SAC v2)."""


@dataclass(frozen=True, kw_only=True)
class TargetNoiseConfig(Config):
    """Settings of algorithms whose critic has TD3's target; noise in units of actions in [-1, 1]."""

    target_noise: NonNegative = 0.2
    """Standard deviation of the noise on the target's actions."""
    target_noise_clip: NonNegative = 0.5
    """Maximum absolute value of that noise."""


@dataclass(frozen=True, kw_only=True)
class SmoothedConfig(TargetNoiseConfig, ExplorationConfig):
    """Settings of TD3's learners."""

    policy_delay: Count = 2
    """Critic updates for each update of the actor and the targets."""
    exploration_noise: NonNegative = 0.1
    """Standard deviation of the noise on actions that collect experience."""
