"""ARAC: Attraction-Repulsion Actor-Critic, with the steps and line numbers of the paper's Algorithm 1."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from arac.algorithms.base import (
    Context,
    Evaluation,
    Repulsion,
    UpdateBudget,
    confirm,
    evaluate,
    evaluation_due,
    explore,
    measure,
    run_chunks,
    soft_update_config,
)
from arac.algorithms.config import SoftConfig
from arac.envs import EnvSpec
from arac.errors import UserError
from arac.learning.forces import ForceConfig, ForceMetrics, Forces
from arac.learning.losses import Base, Divergence, TargetPolicies
from arac.learning.sac_updates import (
    ActorLearner,
    ActorMetrics,
    CriticLearner,
    Temperature,
    Temperatures,
    UpdateConfig,
    actor_updates,
    critic_updates,
    fresh_optimiser,
)
from arac.models.critics import init_critic
from arac.models.policies import FlowPolicy, Policy
from arac.models.policies.custom import CustomPolicy, CustomPolicyAdapter
from arac.models.stacked import take, vmap_init
from arac.population.archive import Archive, FeltBy, Strategy, Targets, betas
from arac.utils.rng import stream_key, stream_rng
from arac.utils.validation import Bounds, Count, NonNegative

FIRST_TEMPERATURE = 0.2  # of adaptive ones; the paper's largest
# By the actors' updates: actors, temperature, and forces with lambda.
Trained: TypeAlias = tuple[ActorLearner, Temperature, Forces | None]


@dataclass(frozen=True, kw_only=True)
class ARACConfig(SoftConfig):
    """Attraction-Repulsion Actor-Critic."""

    preset_fields: ClassVar[tuple[str, ...]] = ("flows", "sigma", "archive_capacity", "actor_coefficient", "strategy")
    letter_fields: ClassVar[tuple[str, ...]] = ("temperature",)
    named_presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper-letter": {
            "ar_coefficient": 1.0, "ar_from": "archive", "ar_divergence": "kl", "ar_base": "own", "kl_clip": "none",
            "temperature": 0.2,
        },
    }  # fmt: skip
    policy_fields: ClassVar[frozenset[str]] = frozenset({"flows", "sigma", "ar_base"})
    earlier_values: ClassVar[dict[str, Any]] = {"ar_divergence": "kl", "ar_from": "archive", "ar_felt_by": "all"}
    leaves_since_format_2: ClassVar[tuple[str, ...]] = (".archive.born", ".log_coefficient")

    population_size: Annotated[int, Bounds(1, 10_000)] = 5
    """Members of the population (M)."""
    elites: Count = 2
    """Fittest members, which train the critic and are attracted and repelled by archived policies (K)."""
    archive_capacity: Annotated[int, Bounds(1, 1_000_000)] = 20
    """Earlier policies that the archive keeps (G)."""
    archive_sample: Annotated[int, Bounds(1, 10_000)] = 5
    """Archived policies drawn for each elite and generation (n)."""
    actor_coefficient: NonNegative = 1.0
    """Mini-batches of all actors together per environment step (p); each actor gets p/M."""
    strategy: Strategy = "proactive"
    """proactive: away from the worse half, towards the better; reactive: only away, most from the worst."""
    ar_coefficient: Annotated[float | Literal["auto"], Bounds(0)] = "auto"
    """Weight of attraction and repulsion (lambda); auto adapts it to `ar_target`, 0 switches both off."""
    ar_target: Annotated[float, Bounds(1e-06)] = 3.0
    """Divergence from other members that auto aims at, in nats; at 3, two policies overlap by about a fifth."""
    ar_from: Targets = "both"
    """Policies that repel and attract. archive: archived ones, elites only, as in the paper; members: at each update
    another member, which only repels; both."""
    ar_felt_by: FeltBy = "non_elites"
    """Members that other members repel. non_elites: all but the elites, and none where all are elites; all."""
    ar_divergence: Divergence = "bounded"
    """bounded: at most log 2, and contracting a policy does not raise it; kl: the paper's."""
    ar_base: Base = "whole"
    """Part of the policy that receives the gradient of attraction and repulsion. whole: all of it; own, shared: the
    flows, those of the other policy on its own base Gaussian or on the member's; gaussian: the base Gaussian."""
    kl_clip: Annotated[float | Literal["none"], Bounds(0)] = 1.0
    """Ignore a policy beyond this divergence (nats), for ar_divergence kl; none never does, as in the paper."""
    flows: Annotated[int, Bounds(0, 1000)] = 3
    """Radial flows per policy (N)."""
    sigma: Annotated[float | Literal["learned"], Bounds(1e-06)] = 0.4
    """Standard deviation of the base Gaussian, or learned from the state."""
    temperature: Annotated[float | Literal["auto"], Bounds(0)] = "auto"
    """Weight of the entropy (alpha); auto adapts each member's to an entropy of minus the number of actions."""

    @classmethod
    def upgraded(cls, settings: dict[str, Any], action_size: int) -> dict[str, Any]:
        now = super().upgraded(settings, action_size)
        if "ar_felt_by" not in settings and "ar_target" in now:  # ar_target was per dimension then
            now["ar_target"] *= action_size
        return now

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elites > self.population_size:
            raise UserError(
                f"elites ({self.elites}) must not exceed population_size ({self.population_size}): "
                "lower the one or raise the other.",
                fields=("elites", "population_size"),
            )


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class State:
    """Everything that is passed from one generation to the next, except for replay."""

    actors: ActorLearner  # the population and its optimisers, stacked
    critic: CriticLearner  # shared by all members
    archive: Archive
    log_coefficient: np.ndarray  # log lambda of each member
    temperatures: Temperatures | None  # of each member, if they are adaptive
    elites: np.ndarray  # of the last evaluation, best first
    generation: int
    env_steps: int

    @property
    def population(self) -> Policy:
        return self.actors.policy

    def temperature(self, config: ARACConfig) -> Temperature:
        """Return the members' adaptive temperatures, or the fixed one of all."""
        return jnp.float32(config.temperature) if self.temperatures is None else self.temperatures

    @property
    def champion(self) -> int:
        return int(self.elites[0])


def init(config: ARACConfig, env: EnvSpec, seed: int, policy: type[CustomPolicy] | None = None) -> State:
    """Return the state before the first generation: lines 2-5.

    Args:
        config: the settings.
        env: the task, for the sizes of observations and actions.
        seed: all random numbers come from it.
        policy: a user's policy class; None for flow policies.
    """
    sigma = None if config.sigma == "learned" else float(config.sigma)

    def init_policy(key: jax.Array) -> Policy:
        if policy is not None:
            return CustomPolicyAdapter.init(policy, key, env)
        return FlowPolicy.init(
            key, env.observation_size, env.action_size, hidden=(config.hidden_size,), flows=config.flows, sigma=sigma
        )

    population = vmap_init(init_policy, stream_key(seed, "population"), config.population_size)
    critic = init_critic(
        stream_key(seed, "critic-init"), config.critic, env.observation_size, env.action_size, (config.hidden_size,) * 2
    )
    begin = partial(fresh_optimiser, soft_update_config(config))
    return State(
        actors=ActorLearner(population, jax.vmap(begin)(population)),
        critic=CriticLearner(critic, begin(critic.online)),
        archive=Archive.empty(take(population, 0), config.archive_capacity),
        log_coefficient=np.full(config.population_size, first_log_coefficient(config), np.float32),
        temperatures=init_temperatures(config) if config.temperature == "auto" else None,
        elites=stream_rng(seed, "first-elites").permutation(config.population_size)[: config.elites],
        generation=0,
        env_steps=0,
    )


def generation(context: Context[ARACConfig], state: State) -> tuple[State, Evaluation | None]:
    """Carry out one pass of Algorithm 1's outer loop; return the new state, and the evaluation if one was due."""
    config = context.config

    # Lines 8-12: collect samples, one episode of each member, with noise.
    episodes = explore(context, state)
    env_steps = state.env_steps + sum(len(episode) for episode in episodes)

    # Lines 13-25: update critic, then actors; each new step earns one mini-batch of the critic, none in the warm-up.
    budget = UpdateBudget.earned(config, state.env_steps, env_steps)
    critic, critic_loss = update_critic(context, state, budget)
    learned, actor_losses, repulsion = update_actors(context, replace(state, critic=critic), budget)
    learned = replace(learned, generation=state.generation + 1, env_steps=env_steps)
    if not evaluation_due(context, state.env_steps, env_steps):
        return learned, None

    # Lines 26-30: evaluate actors, rank them, and archive them if they have been trained.
    played = evaluate(context, learned.population, state.generation)
    archive = state.archive
    if state.env_steps >= config.warmup_steps:
        archive_rng = stream_rng(context.seed, "archive", state.generation)
        archive = archive.add(learned.population, played.fitness, env_steps, archive_rng)
    row = measure(
        context,
        learned,
        played,
        {"critic_loss": critic_loss, **actor_losses},
        elites=config.elites,
        archive_size=archive.size,
    )
    row = confirm(context, learned.population, state.generation, row._replace(repulsion=repulsion))
    return replace(learned, elites=row.elites, archive=archive), row


def update_critic(context: Context[ARACConfig], state: State, budget: UpdateBudget) -> tuple[CriticLearner, float]:
    """Train the critic with the updates of the budget, divided equally among the elites' policies: lines 13-17.

    Returns:
        The critic, and the mean loss.
    """
    learner, total, temperature = state.critic, 0.0, state.temperature(context.config)
    for slot, elite in enumerate(state.elites):
        policy = take(state.population, elite)
        key = stream_key(context.seed, "critic", state.generation, slot)
        weight = jnp.exp(temperature.log[elite]) if isinstance(temperature, Temperatures) else temperature
        train = partial(train_on_policy, context, policy, weight, key)
        learner, losses = run_chunks(context, "critic", budget.share(slot, len(state.elites)), train, learner)
        total += sum(map(float, losses))
    return learner, total / max(budget.count, 1)


def train_on_policy(
    context: Context[ARACConfig],
    policy: Policy,
    temperature: Float[Array, ""],
    key: jax.Array,
    learner: CriticLearner,
    start: int,
    stop: int,
) -> tuple[CriticLearner, Float[Array, ""]]:
    """Carry out updates `start` to `stop - 1` of the critic with one elite's policy; return it and the summed loss."""
    fixed, view = soft_update_config(context.config), context.replay.view
    return critic_updates(fixed, learner, policy, temperature, view, key, start, stop)


def update_actors(
    context: Context[ARACConfig], state: State, budget: UpdateBudget
) -> tuple[State, dict[str, float], Repulsion | None]:
    """Train each actor on p / M of the budget's mini-batches, by Eq. 5 or Eq. 2: lines 18-25.

    Eq. 5 is for members that others repel or attract.

    Returns:
        The new state, the means of the updates' metrics, and the sources of repulsion if there was any.
    """
    config = context.config
    count = budget.scaled(config.actor_coefficient, config.population_size)
    keys = jax.random.split(stream_key(context.seed, "actors", state.generation), config.population_size)
    slots, targets = sample_archive(context, state)
    forces = None
    repelled = repelled_members(config, state.elites)
    if config.ar_coefficient != 0 and (len(repelled) or targets is not None):
        forces = Forces(jnp.asarray(state.log_coefficient), jnp.asarray(repelled), jnp.asarray(state.elites), targets)
    # Without forces their settings do not matter, and must not cause another compilation.
    fixed = soft_update_config(config) if forces is None else update_config(config)
    critic, view = state.critic.critic, context.replay.view

    def train(carry: Trained, start: int, stop: int) -> tuple[Trained, tuple[ActorMetrics, ForceMetrics | None]]:
        actors, temperature, forces = carry
        actors, temperature, forces, metrics = actor_updates(
            fixed, actors, critic, temperature, forces, view, keys, start, stop
        )
        return (actors, temperature, forces), metrics

    learned = state.actors, state.temperature(config), forces
    (actors, temperature, forces), sums = run_chunks(context, "actors", count, train, learned)
    if not sums:
        return state, {"actor_loss": 0.0, "entropy": 0.0, "archive_kl": 0.0}, None
    metrics, measured = jax.tree.map(lambda *parts: np.sum(parts, 0, np.float64) / count, *sums)
    losses = {"actor_loss": float(metrics.loss.mean()), "entropy": -float(metrics.log_prob.mean()), "archive_kl": 0.0}
    state = replace(state, actors=actors)
    if isinstance(temperature, Temperatures):
        losses["temperature"] = float(jnp.exp(temperature.log).mean())
        state = replace(state, temperatures=temperature)
    if forces is None:
        return state, losses, None
    if targets is not None:
        used = np.asarray(targets.weights) != 0
        losses["archive_kl"] = float((measured.archived.kl * used).sum() / max(used.sum(), 1))
    log_coefficient = np.asarray(forces.log_coefficient)
    losses["ar_coefficient"] = float(np.exp(log_coefficient).mean())
    return replace(state, log_coefficient=log_coefficient), losses, sources(state.archive, slots, targets, measured)


def sources(archive: Archive, slots: np.ndarray, targets: TargetPolicies | None, measured: ForceMetrics) -> Repulsion:
    """Return the sources of repulsion, for the metrics.

    Args:
        archive: the archive that policies were drawn from.
        slots: the slots of the drawn policies, by elite.
        targets: the drawn policies with their weights; None if the archive is not used.
        measured: the mean divergences over the updates.

    Returns:
        `shares`: the share of the population's members, and of the archived policies by the environment steps at which
        they were added; the shares sum to 1. `acting`: the share of the repelling weights that still had a gradient.
    """
    force, weight = {"members": float(measured.living.pull.sum())}, float(measured.living.pull.size)
    if targets is not None:
        assert measured.archived is not None
        repelling = np.maximum(np.asarray(targets.weights, np.float64), 0)
        weight += float(repelling.sum())
        born = archive.born[slots]
        for steps in np.unique(born):
            force[str(steps)] = float((repelling * measured.archived.pull)[born == steps].sum())
    total = sum(force.values())
    shares = {name: value / total for name, value in force.items() if value > 0}
    return {"acting": total / weight if weight else 0.0, "shares": shares}


def sample_archive(context: Context[ARACConfig], state: State) -> tuple[np.ndarray, TargetPolicies | None]:
    """Draw n archived policies for each elite: line 20.

    Returns:
        Their slots in the archive, and the policies with their weights; None for these if the archive is not used.
    """
    config = context.config
    slots = np.zeros((config.elites, config.archive_sample), int)
    if config.ar_coefficient == 0 or config.ar_from == "members" or state.archive.size == 0:
        return slots, None
    weights = np.zeros((config.elites, config.archive_sample), np.float32)
    for row, elite in enumerate(state.elites):
        rng = stream_rng(context.seed, "archive-sample", state.generation, int(elite))
        drawn = state.archive.sample(config.archive_sample, rng)
        slots[row, : len(drawn)] = drawn
        weights[row, : len(drawn)] = betas(state.archive.fitness[drawn], config.strategy) / len(drawn)
    return slots, TargetPolicies(take(state.archive.policies, slots), jnp.asarray(weights))


def repelled_members(config: ARACConfig, elites: np.ndarray) -> np.ndarray:
    """Return the indices of the members that other members repel: none, all, or all but the elites."""
    members = np.arange(config.population_size)
    if config.ar_from == "archive" or config.population_size == 1:
        return members[:0]
    return np.setdiff1d(members, elites) if config.ar_felt_by == "non_elites" else members


def init_temperatures(config: ARACConfig) -> Temperatures:
    """Return the adaptive temperatures before the first update."""
    log = jnp.full(config.population_size, math.log(FIRST_TEMPERATURE), jnp.float32)
    return Temperatures(log, jax.vmap(partial(fresh_optimiser, soft_update_config(config)))(log))


def first_log_coefficient(config: ARACConfig) -> float:
    """Return log lambda at the start: 0 if lambda is adapted, and also if it is 0, where it is not used."""
    fixed = config.ar_coefficient
    return math.log(fixed) if isinstance(fixed, int | float) and fixed > 0 else 0.0


def update_config(config: ARACConfig) -> UpdateConfig:
    """Return the settings that the actors' update loop is compiled for."""
    forces = ForceConfig(
        divergence=config.ar_divergence,
        base=config.ar_base,
        kl_clip=None if config.kl_clip == "none" else float(config.kl_clip),
        target=config.ar_target if config.ar_coefficient == "auto" else None,
    )
    return soft_update_config(config)._replace(forces=forces)
