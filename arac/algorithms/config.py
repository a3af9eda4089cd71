"""What can be set: one frozen dataclass per system, checked when it is made.

Every field is a keyword of the Python class and a flag of the command; the line below a field is its help.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_type_hints

from arac.errors import UserError
from arac.learning.losses import Base, Divergence
from arac.models.critics import CriticKind, CriticTarget
from arac.population.archive import FeltBy, Strategy, Targets
from arac.utils.validation import check_range, check_type


@dataclass(frozen=True, kw_only=True)
class Config:
    """What all systems share."""

    preset_table: ClassVar[str] = "paper"  # the file below presets/ with the settings for each task
    preset_fields: ClassVar[tuple[str, ...]] = ()  # what this system takes from a row of it
    # Other values than the defaults, by the preset that chooses them.
    named_presets: ClassVar[dict[str, dict[str, Any]]] = {"paper-letter": {}}

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
    rollouts: Literal["local", "ray"] = "local"
    """Where episodes are played while training: local: by the workers; ray: on a Ray cluster, that of RAY_ADDRESS or
    one of this machine. Results do not depend on it."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            check_type(field.name, getattr(self, field.name), hints[field.name])
            check_range(field.name, getattr(self, field.name))
        if self.batch_size > self.replay_capacity:
            raise UserError(f"batch_size ({self.batch_size}) must not exceed replay_capacity ({self.replay_capacity}).")


@dataclass(frozen=True, kw_only=True)
class DiscountConfig(Config):
    """What all share that have one horizon."""

    discount: float = 0.99
    """Discount factor (gamma)."""


@dataclass(frozen=True, kw_only=True)
class ExplorationConfig(Config):
    """What all share that explore with noise on their actions."""

    noise_hold: int = 1
    """Longest time that exploration holds a draw of its noise, in steps; 1 draws anew at every step. Times are random,
    short ones the most frequent: 64 is a good start where agents must get far."""


@dataclass(frozen=True, kw_only=True)
class SoftConfig(ExplorationConfig, DiscountConfig):
    """What the soft actor-critics share."""

    critic: CriticKind = "value"
    """value: twin Q, V and a target V (SAC v1, the paper's); twin: twin Q with targets of their own (SAC v2)."""


@dataclass(frozen=True, kw_only=True)
class ARACConfig(SoftConfig):
    """Attraction-Repulsion Actor-Critic."""

    preset_fields: ClassVar[tuple[str, ...]] = (
        "flows", "sigma", "archive_capacity", "actor_coefficient", "temperature", "strategy",
    )  # fmt: skip
    named_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper-letter": {
            "ar_coefficient": 1.0, "ar_from": "archive", "ar_divergence": "kl", "ar_base": "own", "kl_clip": "none",
        },
    }  # fmt: skip

    population_size: int = 5
    """Agents (M)."""
    elites: int = 2
    """Fittest agents that train the critic and feel archived policies (K)."""
    archive_capacity: int = 20
    """Earlier policies that the archive keeps (G)."""
    archive_sample: int = 5
    """Archived policies drawn for each elite and generation (n)."""
    actor_coefficient: float = 1.0
    """Mini-batches of all actors together per environment step (p); each actor gets p/M."""
    strategy: Strategy = "proactive"
    """proactive: away from the worse half, towards the better; reactive: only away, most from the worst."""
    ar_coefficient: float | Literal["auto"] = "auto"
    """Weight of attraction and repulsion (lambda); auto adapts it to `ar_target`, 0 switches both off."""
    ar_target: float = 3.0
    """Divergence from other members that auto aims at, in nats; at 3, two policies share about a fifth."""
    ar_from: Targets = "both"
    """Policies that repel and attract: archive (the paper's, felt by elites), members (another one of the population
    at each update, repulsion only) or both."""
    ar_felt_by: FeltBy = "non_elites"
    """Members that other members repel: non_elites leaves the elites free to do what pays most, and repels nobody where
    all are elites; all spares nobody."""
    ar_divergence: Divergence = "bounded"
    """bounded: at most log 2, and contracting a policy does not raise it; kl: the paper's."""
    ar_base: Base = "whole"
    """What attraction and repulsion move. whole: all of the policy; own, shared: the flows, the other's on its own base
    Gaussian or on the agent's; gaussian: the base Gaussian."""
    kl_clip: float | Literal["none"] = 1.0
    """Ignore a policy beyond this divergence (nats), for ar_divergence kl; none never does, as in the paper."""
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
class SACConfig(SoftConfig):
    """Soft actor-critic. SAC v2 as it stands; `critic="value", temperature=0.2` is v1."""

    critic: CriticKind = "twin"
    temperature: float | Literal["auto"] = "auto"
    """Weight of the entropy; auto learns it, towards an entropy of minus the action's size."""


@dataclass(frozen=True, kw_only=True)
class SACNFConfig(SoftConfig):
    """Soft actor-critic with a radial-flow policy: ARAC's agent, alone."""

    preset_fields: ClassVar[tuple[str, ...]] = ("flows", "sigma", "temperature")

    flows: int = 3
    """Radial flows (N)."""
    sigma: float | Literal["learned"] = 0.4
    """Standard deviation of the base Gaussian, or learned from the state."""
    temperature: float = 0.2
    """Weight of the entropy (alpha)."""


@dataclass(frozen=True, kw_only=True)
class TargetNoiseConfig(Config):
    """What all share whose critic has TD3's target; noise in units of actions in [-1, 1]."""

    target_noise: float = 0.2
    """Standard deviation of the noise on the target's actions."""
    target_noise_clip: float = 0.5
    """The largest such noise."""


@dataclass(frozen=True, kw_only=True)
class SmoothedConfig(TargetNoiseConfig, ExplorationConfig):
    """What TD3's learners share."""

    policy_delay: int = 2
    """Critic updates for each update of the actor and the targets."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions that collect experience."""


@dataclass(frozen=True, kw_only=True)
class TD3Config(SmoothedConfig, DiscountConfig):
    """Twin Delayed DDPG."""

    warmup_steps: int = 25_000
    """Environment steps with uniformly random actions at the start; learning begins after them."""


@dataclass(frozen=True, kw_only=True)
class CEMTD3Config(TargetNoiseConfig, DiscountConfig):
    """CEM-RL with TD3: a Gaussian over actors, half of which learn by gradient before all are judged."""

    population_size: int = 10
    """Actors per generation; an even number, for they are drawn in opposite pairs."""
    parents: int = 5
    """Fittest actors that the new mean and variance are made of."""
    gradient_actors: int = 5
    """Actors per generation that learn from the critic first."""
    initial_variance: float = 1e-3
    """Of each parameter."""
    damping: float = 1e-3
    """Variance that is added at first."""
    final_damping: float = 1e-5
    """What that falls to."""
    damping_decay: float = 0.95
    """Per generation."""
    hidden_size: int = 400
    """Units of the first hidden layer; the second has three quarters of that."""
    batch_size: int = 100
    """Transitions per mini-batch."""
    learning_rate: float = 1e-3
    """Adam's learning rate, for actors and critic."""
    warmup_steps: int = 10_000
    """Environment steps before the first gradient step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.population_size % 2:
            raise UserError(f"population_size must be even, for actors are drawn in pairs, got {self.population_size}.")
        for name in ("parents", "gradient_actors"):
            if getattr(self, name) > self.population_size:
                raise UserError(
                    f"{name} ({getattr(self, name)}) must not exceed population_size ({self.population_size})."
                )


@dataclass(frozen=True, kw_only=True)
class GeneticConfig(Config):
    """What ERL and CERL share."""

    population_size: int = 10
    """Individuals that evolve."""
    elite_fraction: float = 0.1
    """Of the individuals, that pass on unchanged."""
    tournament_size: int = 3
    """Individuals that compete for a place among the parents."""
    crossover_probability: float = 0.0
    """That two selected parents exchange units."""
    crossover_units: float = 2.0
    """Units that a crossover draws in a layer, at most, relative to how many there are; 2 exchanges 57 % on average."""
    crossover_biases: float = 0.0
    """Biases and norms that a crossover draws in a layer, at most, relative to how many there are."""
    mutation_probability: float = 0.9
    """That an individual mutates."""
    mutation_strength: float = 0.1
    """Standard deviation of a mutation, relative to the weight."""
    mutation_fraction: float = 0.1
    """Of the weights, that a mutation changes."""
    mutation_share: Literal["fixed", "random"] = "fixed"
    """fixed: a mutation changes `mutation_fraction` of the weights; random: of each layer a random share up to that,
    and none in a quarter of the layers, as the authors' code does."""
    super_mutation_strength: float = 10.0
    """Standard deviation of a super-mutation, relative to the weight."""
    super_mutation_probability: float = 0.05
    """Of the weights that a mutation changes, those with a super-mutation."""
    reset_probability: float = 0.05
    """Of the weights that a mutation changes, those drawn anew."""
    reset_scale: float = 1.0
    """Standard deviation of weights that are drawn anew."""
    learning_rate: float = 5e-5
    """Adam's learning rate, for actors."""
    critic_learning_rate: float = 5e-4
    """Adam's learning rate, for the critic."""

    @property
    def elite_count(self) -> int:
        return max(int(self.elite_fraction * self.population_size + 1e-9), 1)  # 0.29 of 100 are 29

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elite_count >= self.population_size:
            raise UserError(
                f"elite_fraction ({self.elite_fraction}) of population_size ({self.population_size}) leaves nobody to "
                "evolve: lower the one or raise the other."
            )
        if self.super_mutation_probability + self.reset_probability > 1:
            raise UserError(
                f"super_mutation_probability ({self.super_mutation_probability}) and reset_probability "
                f"({self.reset_probability}) must not exceed 1 together."
            )


@dataclass(frozen=True, kw_only=True)
class ERLConfig(GeneticConfig, ExplorationConfig, DiscountConfig):
    """Evolutionary Reinforcement Learning: a genetic algorithm and one DDPG learner."""

    preset_table: ClassVar[str] = "erl"
    preset_fields: ClassVar[tuple[str, ...]] = ("elite_fraction", "trials", "synchronisation_interval")
    named_presets: ClassVar[dict[str, dict[str, Any]]] = {
        **Config.named_presets,
        "published": {"mutation_share": "fixed", "crossover_biases": 0.0, "last_layer_scale": 1.0},
        "public-code": {"mutation_share": "random", "crossover_biases": 1.0, "last_layer_scale": 0.1},
    }

    trials: int = 1
    """Episodes that an individual is judged by."""
    synchronisation_interval: int = 10
    """Generations between copies of the learner into the worst individual."""
    exploration_noise: float = 0.3
    """Scale of the learner's Ornstein-Uhlenbeck noise, in units of actions in [-1, 1]."""
    hidden_size: int = 128
    """Units per hidden layer of the actors; the critic has 200 for the state, 200 for the action and 300."""
    batch_size: int = 128
    """Transitions per mini-batch."""
    tau: float = 0.001
    """Step of the slowly moving target networks towards the trained ones."""
    gradient_clip: float = 10.0
    """The largest norm of the critic's gradient."""
    last_layer_scale: float = 1.0
    """Factor on the last layers of the learner's actor and critic at the start."""
    warmup_steps: int = 640
    """Environment steps before the first gradient step: five mini-batches."""
    eval_episodes: int = 5
    """Episodes without noise of the champion at an evaluation."""


@dataclass(frozen=True, kw_only=True)
class CERLConfig(GeneticConfig, SmoothedConfig):
    """Collaborative Evolutionary Reinforcement Learning: a genetic algorithm and TD3 learners of several horizons."""

    named_presets: ClassVar[dict[str, dict[str, Any]]] = {
        **Config.named_presets,
        "published": {
            "mutation_probability": 0.9, "crossover_probability": 0.15, "crossover_units": 2.0,
            "mutation_strength": 0.1, "mutation_fraction": 0.05, "mutation_share": "fixed",
            "super_mutation_strength": 10.0, "super_mutation_probability": 0.05, "reset_probability": 0.02,
            "reset_scale": 1.0, "critic_target": "delayed", "exploration_noise": 0.1, "target_noise": 0.2,
            "target_noise_clip": 0.5,
        },
        # Noise: of actions in [0, 1] there, so twice as much in [-1, 1].
        "public-code": {
            "mutation_probability": 0.2, "crossover_probability": 0.01, "crossover_units": 0.3,
            "mutation_strength": 0.02, "mutation_fraction": 0.03, "mutation_share": "random",
            "super_mutation_strength": 1.0, "super_mutation_probability": 0.1, "reset_probability": 0.1,
            "reset_scale": 0.1, "critic_target": "every", "exploration_noise": 0.2, "target_noise": 0.4,
            "target_noise_clip": 1.0,
        },
    }  # fmt: skip

    elite_fraction: float = 0.2
    """Of the individuals, that pass on unchanged."""
    crossover_probability: float = 0.15
    """That two selected parents exchange units."""
    mutation_fraction: float = 0.05
    """Of the weights, that a mutation changes."""
    reset_probability: float = 0.02
    """Of the weights that a mutation changes, those drawn anew."""
    critic_target: CriticTarget = "delayed"
    """delayed: the critic's target moves with every update of the actor, as in TD3; every: with every update."""
    learner_rollouts: int = 10
    """Episodes of the learners per generation, shared out by their upper confidence bounds."""
    migration_interval: int = 5
    """Generations between copies of the learners into the population."""
    ucb_coefficient: float = 0.9
    """Weight of the exploration among learners."""
    value_step: float = 0.2
    """Weight of the newest return in a learner's value."""
    hidden_size: int = 400
    """Units of the first hidden layer; the second has three quarters of that."""
    learning_rate: float = 1e-3
    """Adam's learning rate, for actors."""
    critic_learning_rate: float = 1e-3
    """Adam's learning rate, for the critics."""
    warmup_steps: int = 2_560
    """Environment steps before the first gradient step: ten mini-batches."""
    discounts: tuple[float, ...] = (0.9, 0.99, 0.997, 0.9995)
    """Discount factor of each learner."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.discounts or not all(0 <= discount <= 1 for discount in self.discounts):
            raise UserError(f"discounts must be numbers from 0 to 1, at least one, got {self.discounts}.")
        if self.learner_rollouts < len(self.discounts):
            raise UserError(
                f"learner_rollouts ({self.learner_rollouts}) must be at least one for each of the "
                f"{len(self.discounts)} learners."
            )
