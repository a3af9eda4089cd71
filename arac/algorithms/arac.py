"""ARAC: Attraction-Repulsion Actor-Critic, Algorithm 1 of the paper in its order."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from arac import streams
from arac.algorithms.shared import Context, Evaluation, evaluate, evaluation_due, learning_steps, measure, rules
from arac.archive import Archive, betas
from arac.config import ARACConfig
from arac.critics import init_critic
from arac.envs import EnvSpec
from arac.losses import Archived
from arac.policies import FlowPolicy, Policy
from arac.policies.custom import CustomPolicy, Own
from arac.population import over_members, put, take
from arac.updates import ActorLearner, CriticLearner, actor_updates, adam, critic_updates


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class State:
    """Everything that a generation hands to the next, but for replay."""

    actors: ActorLearner  # the population and its optimisers, stacked
    critic: CriticLearner  # shared by all
    archive: Archive
    elites: np.ndarray  # of the last evaluation, best first
    generation: int
    env_steps: int

    @property
    def population(self) -> Policy:
        return self.actors.policy

    @property
    def champion(self) -> int:
        return int(self.elites[0])


def init(config: ARACConfig, env: EnvSpec, seed: int, policy: type[CustomPolicy] | None = None) -> State:
    sigma = None if config.sigma == "learned" else float(config.sigma)

    def init_policy(key: jax.Array) -> Policy:
        if policy is not None:
            return Own.init(policy, key, env)
        return FlowPolicy.init(
            key, env.observation_size, env.action_size, hidden=(config.hidden_size,), flows=config.flows, sigma=sigma
        )

    population = over_members(init_policy, streams.key(seed, "population"), config.population_size)
    critic = init_critic(
        streams.key(seed, "critic-init"),
        config.critic,
        env.observation_size,
        env.action_size,
        (config.hidden_size,) * 2,
    )
    optimiser = adam(rules(config))
    return State(
        actors=ActorLearner(population, jax.vmap(optimiser.init)(population)),
        critic=CriticLearner(critic, optimiser.init(critic.online)),
        archive=Archive.empty(take(population, 0), config.archive_capacity),
        elites=streams.rng(seed, "first-elites").permutation(config.population_size)[: config.elites],
        generation=0,
        env_steps=0,
    )


def generation(context: Context, state: State) -> tuple[State, Evaluation | None]:
    """One pass of Algorithm 1's outer loop."""
    config: ARACConfig = context.config

    # Collect samples: one episode per agent, with noise.
    warming_up = state.env_steps < config.warmup_steps
    episodes = context.rollouts.explore(state.population, state.generation, "random" if warming_up else "explore")
    context.replay.extend(episodes)
    env_steps = state.env_steps + sum(len(episode) for episode in episodes)

    # Update critic, then actors: as many mini-batches as the new steps have earned.
    earned = learning_steps(config, state.env_steps), learning_steps(config, env_steps)
    critic, critic_loss = update_critic(context, state, *earned)
    actors, actor_losses = update_actors(context, state, critic, *earned)
    learned = replace(state, critic=critic, actors=actors, generation=state.generation + 1, env_steps=env_steps)
    if not evaluation_due(context, state.env_steps, env_steps):
        return learned, None

    # Evaluate actors, rank them, archive them.
    played = evaluate(context, learned.population, state.generation)
    archive_rng = streams.rng(context.seed, "archive", state.generation)
    archive = state.archive.add(learned.population, played.fitness, archive_rng)
    row = measure(context, learned, played, archive.size, {"critic_loss": critic_loss, **actor_losses})
    return replace(learned, elites=row.elites, archive=archive), row


def update_critic(context: Context, state: State, before: int, after: int) -> tuple[CriticLearner, float]:
    """`after - before` mini-batches, shared equally by the elites; also the mean loss."""
    config: ARACConfig = context.config
    fixed, contents = rules(config), context.replay.contents
    learner, total = state.critic, 0.0
    for slot, elite in enumerate(state.elites):
        policy = take(state.population, elite)
        key = streams.key(context.seed, "critic", state.generation, slot)
        count = _share(after, slot, len(state.elites)) - _share(before, slot, len(state.elites))
        for start, stop in context.progress.chunks("critic", count):
            learner, loss = critic_updates(fixed, learner, policy, config.temperature, contents, key, start, stop)
            total += float(loss)  # waits for it: progress shows what is done, not what is queued
    return learner, total / max(after - before, 1)


def update_actors(
    context: Context, state: State, critic: CriticLearner, before: int, after: int
) -> tuple[ActorLearner, dict[str, float]]:
    """`p (after - before) / M` mini-batches for each actor: Eq. 5 for elites, Eq. 2 for the rest."""
    config: ARACConfig = context.config
    count = _of_each_actor(config, after) - _of_each_actor(config, before)
    everyone = np.arange(config.population_size)
    keys = jax.random.split(streams.key(context.seed, "actors", state.generation), config.population_size)
    felt = sample_archive(context, state)
    groups = [(everyone, None)] if felt is None else [(state.elites, felt), (np.delete(everyone, state.elites), None)]

    actors, contents = state.actors, context.replay.contents
    sums = {"actor_loss": 0.0, "entropy": 0.0, "archive_kl": 0.0}
    for members, archived in groups:
        if len(members) == 0:
            continue
        learners = take(actors, members)
        for start, stop in context.progress.chunks("actors", count):
            learners, metrics = actor_updates(
                rules(config),
                learners,
                critic.critic,
                config.temperature,
                archived,
                contents,
                keys[members],
                start,
                stop,
            )
            sums["actor_loss"] += float(metrics.loss.sum())
            sums["entropy"] -= float(metrics.log_prob.sum())
            sums["archive_kl"] += float(metrics.archive_kl.sum())
        actors = put(actors, members, learners)
    weights = {"actor_loss": config.population_size, "entropy": config.population_size, "archive_kl": config.elites}
    return actors, {name: total / max(count * weights[name], 1) for name, total in sums.items()}


def sample_archive(context: Context, state: State) -> Archived | None:
    """For each elite, n archived policies and their weights; None while there is nothing to feel."""
    config: ARACConfig = context.config
    if config.ar_coefficient == 0 or state.archive.size == 0:
        return None
    slots = np.zeros((config.elites, config.archive_sample), int)
    weights = np.zeros((config.elites, config.archive_sample), np.float32)
    for row, elite in enumerate(state.elites):
        rng = streams.rng(context.seed, "archive-sample", state.generation, int(elite))
        drawn = state.archive.sample(config.archive_sample, rng)
        slots[row, : len(drawn)] = drawn
        coefficients = betas(state.archive.fitness[drawn], config.strategy)
        weights[row, : len(drawn)] = config.ar_coefficient * coefficients / len(drawn)
    return Archived(take(state.archive.policies, slots), jnp.asarray(weights))


def _of_each_actor(config: ARACConfig, updates: int) -> int:
    """How many mini-batches each actor has had once the critic has had `updates`: p / M of them, rounded down."""
    return int(updates * config.actor_coefficient / config.population_size)


def _share(updates: int, slot: int, slots: int) -> int:
    """How many of the first `updates` go to a slot. The shares of all slots add up to `updates`, at any count."""
    return (updates + slot) // slots
