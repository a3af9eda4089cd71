"""Attraction and repulsion among the members of a population: gradients that are added to those of the actors."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from arac.learning.losses import Base, Divergence, Divergences, TargetPolicies, attraction_repulsion_loss
from arac.models.policies import Policy
from arac.models.stacked import take

# Policies are compared on a quarter of a mini-batch, because each policy costs a forward pass on these states.
STATES_PER_COMPARED = 4
# If lambda is adapted: the largest change of log lambda per update, and the range of log lambda.
COEFFICIENT_STEP = 0.01
LOG_COEFFICIENT_RANGE = (math.log(1e-3), math.log(1e5))


class ForceConfig(NamedTuple):
    """The settings of attraction and repulsion that an update loop is compiled for."""

    divergence: Divergence = "bounded"
    base: Base = "own"
    kl_clip: float | None = None
    target: float | None = None  # divergence that lambda is adapted to, in nats; None leaves lambda as it is


class Forces(NamedTuple):
    """The attraction and repulsion that act on the members of a population during a generation."""

    log_coefficient: Float[Array, " member"]  # log lambda
    repelled: Int[Array, " repelled"]  # indices of the members that other members repel; may be empty
    elites: Int[Array, " elite"]  # indices of the members that archived policies repel or attract
    archived: TargetPolicies | None  # for each elite; None if the archive is empty or unused


class ForceMetrics(NamedTuple):
    """Divergences from the policies that repel or attract, of one update or summed over updates."""

    living: Divergences  # (repelled, 1): from another member of the population
    archived: Divergences | None  # (elite, n): from archived policies


def with_forces(
    config: ForceConfig,
    gradient: Policy,
    policies: Policy,
    forces: Forces,
    partners: Int[Array, " member"],
    observation: Float[Array, "member batch obs"],
    noise: Float[Array, "member batch action"],
) -> tuple[Policy, ForceMetrics]:
    """Add attraction and repulsion to a population's gradients; return them and the divergences.

    `partners` has for each member the index of the other member that repels it.
    """
    compared = max(observation.shape[1] // STATES_PER_COMPARED, 1)
    observation, noise = observation[:, :compared], noise[:, :compared]
    coefficient = jnp.exp(forces.log_coefficient)

    def add(gradient: Policy, members: Int[Array, " some"], targets: TargetPolicies) -> tuple[Policy, Divergences]:
        force, divergences = jax.vmap(partial(force_gradient, config))(
            take(policies, members), targets, coefficient[members], observation[members], noise[members]
        )
        return jax.tree.map(lambda all_, some: all_.at[members].add(some), gradient, force), divergences

    repelled, living, archived = forces.repelled, no_divergences(len(forces.repelled), 1), None
    if len(repelled):
        others = jax.tree.map(lambda leaf: leaf[partners[repelled]][:, None], policies)
        gradient, living = add(gradient, repelled, TargetPolicies(others, jnp.ones((len(repelled), 1))))
    if forces.archived is not None:
        gradient, archived = add(gradient, forces.elites, forces.archived)
    return gradient, ForceMetrics(living, archived)


def adapted(config: ForceConfig, forces: Forces, measured: ForceMetrics) -> Float[Array, " member"]:
    """Return log lambda of each member, raised if its divergence is below the target and lowered if it is above.

    The step depends on the ratio of divergence and target and is bounded, because divergences have heavy tails. A
    member that no other repels keeps its lambda; if no member is repelled by another, the elites' lambdas are adapted
    to their divergence from the archived policies that repel them.
    """
    before, target = forces.log_coefficient, config.target
    if target is None:
        return before

    def after(log_coefficient: Array, kl: Array) -> Array:
        step = COEFFICIENT_STEP * jnp.clip(1 - kl / target, -1.0, 1.0)
        return jnp.clip(log_coefficient + step, *LOG_COEFFICIENT_RANGE)

    if len(forces.repelled):
        return before.at[forces.repelled].set(after(before[forces.repelled], measured.living.kl[:, 0]))
    if forces.archived is None or measured.archived is None:
        return before
    repelled = forces.archived.weights > 0
    nothing = ~repelled.any(1)
    mean = (measured.archived.kl * repelled).sum(1) / jnp.maximum(repelled.sum(1), 1)
    elites = forces.elites
    return before.at[elites].set(jnp.where(nothing, before[elites], after(before[elites], mean)))


def force_gradient(
    config: ForceConfig,
    policy: Policy,
    targets: TargetPolicies,
    coefficient: Float[Array, ""],
    observation: Float[Array, "batch obs"],
    noise: Float[Array, "batch action"],
) -> tuple[Policy, Divergences]:
    """Return the gradient of `coefficient` (lambda) times Eq. 1, and the divergences."""

    def loss(policy: Policy) -> tuple[Float[Array, ""], Divergences]:
        value, divergences = attraction_repulsion_loss(
            policy, targets, observation, noise, divergence=config.divergence, base=config.base, kl_clip=config.kl_clip
        )
        return coefficient * value, divergences

    return jax.grad(loss, has_aux=True)(policy)


def no_divergences(*shape: int) -> Divergences:
    """Return divergences of zero."""
    return Divergences(jnp.zeros(shape), jnp.zeros(shape))


def no_force_metrics(forces: Forces) -> ForceMetrics:
    """Return metrics of zero, to which those of updates are added."""
    archived = None if forces.archived is None else no_divergences(*forces.archived.weights.shape)
    return ForceMetrics(no_divergences(len(forces.repelled), 1), archived)


def draw_partners(key: jax.Array, members: int) -> Int[Array, " member"]:
    """Draw for each member the index of another one; a single member gets its own index."""
    if members == 1:
        return jnp.zeros(1, int)
    shift = jax.random.randint(jax.random.fold_in(key, 1), (members,), 1, members)
    return (jnp.arange(members) + shift) % members
