"""The losses, each a pure function with its equation's number in the paper beside it."""

import math
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from arac.models.critics import Critic, Q, QAndValue, ValueCritic
from arac.models.mlp import MLP
from arac.models.policies import DeterministicPolicy, FlowPolicy, Policy, gaussian
from arac.models.policies import radial_flow as radial
from arac.models.policies.flow_policy import pre_tanh_log_prob
from arac.replay.buffer import Batch

Base: TypeAlias = Literal["whole", "own", "shared", "gaussian"]
Divergence: TypeAlias = Literal["bounded", "kl"]


def critic_loss(
    online: QAndValue | Q,
    critic: Critic,
    policy: Policy,
    temperature: Float[Array, ""],
    batch: Batch,
    noise: Float[Array, "batch action"],
    discount: float,
) -> Float[Array, ""]:
    """The loss of whichever kind of critic it is, as a function of the part that is trained."""
    if isinstance(critic, ValueCritic):
        assert isinstance(online, QAndValue)
        return q_loss(online.q, value_target(critic.target, batch, discount), batch) + value_loss(
            online, policy, temperature, batch, noise
        )
    assert not isinstance(online, QAndValue)
    return q_loss(online, twin_target(critic.target, policy, temperature, batch, noise, discount), batch)


def q_loss(q: Q, target: Float[Array, " batch"], batch: Batch) -> Float[Array, ""]:
    """Eq. 3: the squared error of both Q networks, added."""
    error = q(batch.observation, batch.action) - stop_gradient(target)
    return (error**2).mean(-1).sum()


def value_target(target_value: MLP, batch: Batch, discount: float) -> Float[Array, " batch"]:
    """Eq. 3: `r + gamma V(s')`. A terminal state is worth nothing; a truncated episode bootstraps."""
    return batch.reward + discount * ~batch.terminal * target_value(batch.next_observation)[..., 0]


def value_loss(
    online: QAndValue, policy: Policy, temperature: Float[Array, ""], batch: Batch, noise: Float[Array, "batch action"]
) -> Float[Array, ""]:
    """Eq. 4: the value moves to the smaller Q of a fresh action, plus the policy's entropy there."""
    action, log_prob = policy.sample(batch.observation, noise)
    soft_value = online.q(batch.observation, action).min(0) - temperature * log_prob
    error = online.value(batch.observation)[..., 0] - stop_gradient(soft_value)
    return 0.5 * (error**2).mean()


def twin_target(
    target_q: Q,
    policy: Policy,
    temperature: Float[Array, ""],
    batch: Batch,
    noise: Float[Array, "batch action"],
    discount: float,
) -> Float[Array, " batch"]:
    """SAC v2: `r + gamma (min Q'(s', a') - temperature log pi(a'))` with a' fresh from the policy."""
    action, log_prob = policy.sample(batch.next_observation, noise)
    soft_value = target_q(batch.next_observation, action).min(0) - temperature * log_prob
    return batch.reward + discount * ~batch.terminal * soft_value


def actor_loss(
    policy: Policy,
    q: Q,
    temperature: Float[Array, ""],
    observation: Float[Array, "batch obs"],
    noise: Float[Array, "batch action"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Eq. 2, and the mean log-probability beside it."""
    action, log_prob = policy.sample(observation, noise)
    loss = temperature * log_prob - q(observation, action).min(0)
    return loss.mean(), log_prob.mean()


def smoothed_target(
    target_q: Q,
    target_policy: DeterministicPolicy,
    batch: Batch,
    noise: Float[Array, "batch action"],
    discount: Float[Array, ""],
) -> Float[Array, " batch"]:
    """TD3: `r + gamma min Q'(s', clip(pi'(s') + noise))`. DDPG: the same with one Q and no noise."""
    action = jnp.clip(target_policy.mode(batch.next_observation) + noise, -1.0, 1.0)
    return batch.reward + discount * ~batch.terminal * target_q(batch.next_observation, action).min(0)


def deterministic_actor_loss(
    policy: DeterministicPolicy, q: Q, observation: Float[Array, "batch obs"]
) -> Float[Array, ""]:
    """TD3 and DDPG: minus the first Q of the policy's own actions."""
    return -q(observation, policy.mode(observation))[0].mean()


def temperature_loss(
    log_temperature: Float[Array, ""], mean_log_prob: Float[Array, ""], target_entropy: float
) -> Float[Array, ""]:
    """SAC v2: the temperature rises while the entropy is below its target."""
    return -log_temperature * stop_gradient(mean_log_prob + target_entropy)


class TargetPolicies(NamedTuple):
    """Policies that an agent is repelled from or attracted to, stacked, each with its weight in the loss.

    A weight is `beta / n` (Eqs. 8 and 9), above 0 to repel; an unused slot has weight 0.
    """

    policies: Policy
    weights: Float[Array, " n"]


class Divergences(NamedTuple):
    """Distances from the policies of a `TargetPolicies`."""

    kl: Float[Array, " n"]  # KL(pi || pi'), whichever divergence is in the loss
    pull: Float[Array, " n"]  # share of the force of contact that is left at this distance, from 0 to 1


def attraction_repulsion_loss(
    policy: Policy,
    felt: TargetPolicies,
    observation: Float[Array, "batch obs"],
    noise: Float[Array, "batch action"],
    *,
    divergence: Divergence,
    base: Base,
    kl_clip: float | None,
) -> tuple[Float[Array, ""], Divergences]:
    """Return Eqs. 1 and 10, `-mean(beta D(pi, pi'))`, and the distances. The caller multiplies by lambda.

    Args:
        policy: feels the loss.
        felt: is held still.
        observation: the states on which policies are compared.
        noise: standard normal numbers for the actions of `policy` there.
        divergence: "kl" is the paper's KL(pi || pi'). It grows without end, and the cheapest way to raise it is to
            contract, so that repulsion lowers the entropy. "bounded" is KL(pi || (pi + pi') / 2), at most log 2, with
            log pi held still: its force fades as policies part, and contracting does not raise it.
        base: what is compared and what feels the loss, for flow policies. "whole": all of the policy. "own" lets the
            flows alone feel it; "shared" too, with the other flows on the base of `policy`. "gaussian" compares the
            bases, which then feel the loss, without flows.
        kl_clip: a KL beyond this is not felt, neither as repulsion nor as attraction. For "kl" alone.
    """

    def distance(other: Policy) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        if divergence == "kl":
            kl = sampled_kl(policy, other, observation, noise, base=base)
            if base == "gaussian" and isinstance(policy, FlowPolicy) and isinstance(other, FlowPolicy):
                kl = gaussian_kl(policy, other, observation)
            clip = jnp.inf if kl_clip is None else kl_clip
            return jnp.minimum(kl, clip), kl, (kl < clip).astype(kl.dtype)
        log_pi, log_other = log_densities(policy, other, observation, noise, base=base)
        ratio = stop_gradient(log_pi) - log_other
        value = (math.log(2) - jax.nn.softplus(-ratio)).mean()
        return value, ratio.mean(), jnp.minimum(2 * jax.nn.sigmoid(-ratio), 1.0).mean()

    value, kl, pull = jax.vmap(distance)(stop_gradient(felt.policies))
    return -(felt.weights * value).sum(), Divergences(kl, pull)


def log_densities(
    policy: Policy, other: Policy, observation: Any, noise: Any, *, base: Base
) -> tuple[Float[Array, " batch"], Float[Array, " batch"]]:
    """Return log pi(x) and log pi'(x) for one sample x of pi in each state, before tanh where both have it.

    `base` concerns flow policies, and is that of `attraction_repulsion_loss`. Any other policy counts as a whole and
    feels it as a whole.
    """
    if not (isinstance(policy, FlowPolicy) and isinstance(other, FlowPolicy)):
        action, log_pi = policy.sample(observation, noise)
        return log_pi, other.log_prob(observation, action)
    if base == "gaussian":
        policy, other = FlowPolicy(policy.base, ()), FlowPolicy(other.base, ())
    mean, log_std = policy.base(observation)
    if base in ("own", "shared"):
        mean, log_std = stop_gradient((mean, log_std))
    z = mean + jnp.exp(log_std) * noise
    x, log_det = radial.forward_log_det(policy.flows, z)  # before tanh, which both share, so that it cancels
    other_base = (mean, log_std) if base == "shared" else stop_gradient(other.base(observation))
    log_pi = gaussian.log_density(z, mean, log_std) - log_det
    return log_pi, pre_tanh_log_prob(x, *other_base, other.flows)


def sampled_kl(
    policy: Policy,
    other: Policy,
    observation: Float[Array, "batch obs"],
    noise: Float[Array, "batch action"],
    *,
    base: Base = "own",
) -> Float[Array, ""]:
    """Return `E[log pi(x) - log pi'(x)]` over samples x of pi: how differently two policies behave."""
    log_pi, log_other = log_densities(policy, other, observation, noise, base=base)
    return (log_pi - log_other).mean()


def gaussian_kl(policy: FlowPolicy, other: FlowPolicy, observation: Float[Array, "batch obs"]) -> Float[Array, ""]:
    """Return the divergence of the base Gaussians in closed form, for the paper's ablation: flows are left out."""
    return gaussian.kl(*policy.base(observation), *other.base(observation)).mean()
