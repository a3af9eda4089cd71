"""The losses, as pure functions, with the numbers of the paper's equations."""

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
    """Return the loss of a critic of either kind.

    Args:
        online: the trained part of the critic, for which the gradient is taken.
        critic: the critic, whose target networks are used.
        policy: provides the actions for the targets.
        temperature: weight of the entropy.
        batch: the transitions.
        noise: standard normal numbers for the actions of `policy`.
        discount: discount factor (gamma).
    """
    if isinstance(critic, ValueCritic):
        assert isinstance(online, QAndValue)
        return q_loss(online.q, value_target(critic.target, batch, discount), batch) + value_loss(
            online, policy, temperature, batch, noise
        )
    assert not isinstance(online, QAndValue)
    return q_loss(online, twin_target(critic.target, policy, temperature, batch, noise, discount), batch)


def q_loss(q: Q, target: Float[Array, " batch"], batch: Batch) -> Float[Array, ""]:
    """Return the loss of Eq. 3: the squared error, summed over the Q networks."""
    error = q(batch.observation, batch.action) - stop_gradient(target)
    return (error**2).mean(-1).sum()


def value_target(target_value: MLP, batch: Batch, discount: float) -> Float[Array, " batch"]:
    """Return the target of Eq. 3, `r + gamma V(s')`. A terminal state has value 0; a truncated episode bootstraps."""
    return batch.reward + discount * ~batch.terminal * target_value(batch.next_observation)[..., 0]


def value_loss(
    online: QAndValue, policy: Policy, temperature: Float[Array, ""], batch: Batch, noise: Float[Array, "batch action"]
) -> Float[Array, ""]:
    """Return the loss of Eq. 4: V(s) is fitted to the smaller Q of a newly sampled action, plus the entropy term."""
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
    """Return SAC v2's target `r + gamma (min Q'(s', a') - temperature log pi(a'))`, a' sampled from the policy."""
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
    """Return the loss of Eq. 2, and the mean log-probability of the sampled actions."""
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
    """Return TD3's target `r + gamma min Q'(s', clip(pi'(s') + noise))`; with one Q and no noise it is DDPG's."""
    action = jnp.clip(target_policy.mode(batch.next_observation) + noise, -1.0, 1.0)
    return batch.reward + discount * ~batch.terminal * target_q(batch.next_observation, action).min(0)


def deterministic_actor_loss(
    policy: DeterministicPolicy, q: Q, observation: Float[Array, "batch obs"]
) -> Float[Array, ""]:
    """Return the actor loss of TD3 and DDPG: minus the value that the first Q gives to the policy's actions."""
    return -q(observation, policy.mode(observation))[0].mean()


def temperature_loss(
    log_temperature: Float[Array, ""], mean_log_prob: Float[Array, ""], target_entropy: float
) -> Float[Array, ""]:
    """Return SAC v2's temperature loss: minimising it raises the temperature while entropy is below its target."""
    return -log_temperature * stop_gradient(mean_log_prob + target_entropy)


class TargetPolicies(NamedTuple):
    """The policies that repel or attract an agent, stacked, with their weights in the loss.

    A weight is `beta / n` (Eqs. 8 and 9): positive to repel, negative to attract, 0 for an unused slot.
    """

    policies: Policy
    weights: Float[Array, " n"]


class Divergences(NamedTuple):
    """Divergences of an agent from the policies of a `TargetPolicies`."""

    kl: Float[Array, " n"]  # KL(pi || pi'), also if the loss uses another divergence
    pull: Float[Array, " n"]  # strength of the force: 1 for equal policies, falling to 0 as they part


def attraction_repulsion_loss(
    policy: Policy,
    targets: TargetPolicies,
    observation: Float[Array, "batch obs"],
    noise: Float[Array, "batch action"],
    *,
    divergence: Divergence,
    base: Base,
    kl_clip: float | None,
) -> tuple[Float[Array, ""], Divergences]:
    """Return the loss of Eqs. 1 and 10, `-mean(beta D(pi, pi'))`, and the divergences. The caller multiplies by lambda.

    Args:
        policy: the policy that is trained.
        targets: the policies that repel or attract it; they receive no gradient.
        observation: the states on which policies are compared.
        noise: standard normal numbers for the actions of `policy` in these states.
        divergence: "kl" is the paper's KL(pi || pi'). It is unbounded, and the cheapest way to raise it is to contract
            `policy`, so that repulsion lowers the entropy. "bounded" is KL(pi || (pi + pi') / 2), at most log 2, with
            log pi held constant: its force fades as policies part, and contracting does not raise it.
        base: the part of a flow policy that receives the gradient. "whole": all of it. "own": its flows. "shared": its
            flows, with the other policy's flows applied to the base of `policy`. "gaussian": its base Gaussian, and
            only the base Gaussians are compared.
        kl_clip: policies beyond this KL neither repel nor attract; None sets no limit. For "kl" only.
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

    value, kl, pull = jax.vmap(distance)(stop_gradient(targets.policies))
    return -(targets.weights * value).sum(), Divergences(kl, pull)


def log_densities(
    policy: Policy, other: Policy, observation: Any, noise: Any, *, base: Base
) -> tuple[Float[Array, " batch"], Float[Array, " batch"]]:
    """Return log pi(x) and log pi'(x) for one sample x of pi in each state, before tanh if both are flow policies.

    `base` is explained in `attraction_repulsion_loss`. It applies to flow policies; others are always compared as a
    whole and receive the gradient as a whole.
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
    """Return KL(pi || pi'), estimated as the mean of `log pi(x) - log pi'(x)` over samples x of pi."""
    log_pi, log_other = log_densities(policy, other, observation, noise, base=base)
    return (log_pi - log_other).mean()


def gaussian_kl(policy: FlowPolicy, other: FlowPolicy, observation: Float[Array, "batch obs"]) -> Float[Array, ""]:
    """Return the KL divergence of the base Gaussians, without flows, in closed form, for the paper's ablation."""
    return gaussian.kl(*policy.base(observation), *other.base(observation)).mean()
