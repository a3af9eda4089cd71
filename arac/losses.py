"""The losses, each a pure function with its equation's number in the paper beside it."""

from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from arac.critics import Critic, Q, QAndValue, ValueCritic
from arac.networks import MLP
from arac.policies import DeterministicPolicy, FlowPolicy, Policy, gaussian
from arac.policies import flows as radial
from arac.policies.flow_policy import pre_tanh_log_prob
from arac.replay import Batch

Base: TypeAlias = Literal["shared", "own", "gaussian"]


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


class Archived(NamedTuple):
    """The n policies sampled from the archive for one elite, stacked, each with its weight in the loss.

    A weight is `lambda * beta / n`; a slot that stands empty because the archive is small has weight 0.
    """

    policies: Policy
    weights: Float[Array, " n"]


def attraction_repulsion_loss(
    policy: Policy,
    archived: Archived,
    observation: Float[Array, "batch obs"],
    noise: Float[Array, "batch action"],
    *,
    base: Base,
    kl_clip: float | None,
) -> tuple[Float[Array, ""], Float[Array, " n"]]:
    """Eqs. 1 and 10: `-lambda mean(beta KL(pi || pi'))`, and the divergences themselves.

    Repulsion has no end of its own: a contraction alone raises the divergence for ever. `kl_clip` stops pushing
    where a repelled policy is already that far away. `base` speaks of flow policies; of any other the whole policy
    counts, and feels it.
    """
    others = stop_gradient(archived.policies)

    def divergence(other: Policy) -> Float[Array, ""]:
        if not (isinstance(policy, FlowPolicy) and isinstance(other, FlowPolicy)):
            return sampled_kl(policy, other, observation, noise)
        if base == "gaussian":
            return gaussian_kl(policy, other, observation)
        return flow_kl(policy, other, observation, noise, base=base)

    kl = jax.vmap(divergence)(others)
    repelled = archived.weights > 0
    felt = kl if kl_clip is None else jnp.where(repelled, jnp.minimum(kl, kl_clip), kl)
    return -(archived.weights * felt).sum(), kl


def flow_kl(
    policy: FlowPolicy,
    other: FlowPolicy,
    observation: Float[Array, "batch obs"],
    noise: Float[Array, "batch action"],
    *,
    base: Base,
) -> Float[Array, ""]:
    """`E[log pi(x) - log pi'(x)]` over samples x of pi before tanh, which both share, so that it cancels.

    The bases are detached: only the flows of `policy` feel this. Under "shared" both flows stand on the base of
    `policy`, so that means play no part; under "own" the other policy keeps its own. See docs/deviations.md.
    """
    mean, log_std = stop_gradient(policy.base(observation))
    z = mean + jnp.exp(log_std) * noise
    x, log_det = radial.forward_log_det(policy.flows, z)
    other_base = (mean, log_std) if base == "shared" else stop_gradient(other.base(observation))
    log_pi = gaussian.log_density(z, mean, log_std) - log_det
    return (log_pi - pre_tanh_log_prob(x, *other_base, other.flows)).mean()


def gaussian_kl(policy: FlowPolicy, other: FlowPolicy, observation: Float[Array, "batch obs"]) -> Float[Array, ""]:
    """The ablation of the paper: the divergence of the base Gaussians, felt by mean and sigma, flows left out."""
    return gaussian.kl(*policy.base(observation), *other.base(observation)).mean()


def sampled_kl(
    policy: Policy, other: Policy, observation: Float[Array, "batch obs"], noise: Float[Array, "batch action"]
) -> Float[Array, ""]:
    """`E[log pi(a) - log pi'(a)]` over actions a of pi, for policies of any kind; nothing is detached."""
    action, log_prob = policy.sample(observation, noise)
    return (log_prob - other.log_prob(observation, action)).mean()


def policy_kl(
    policy: Policy, other: Policy, observation: Float[Array, "batch obs"], noise: Float[Array, "batch action"]
) -> Float[Array, ""]:
    """KL between two whole policies, each on its own base: how differently two members behave."""
    if isinstance(policy, FlowPolicy) and isinstance(other, FlowPolicy):
        return flow_kl(policy, other, observation, noise, base="own")
    return sampled_kl(policy, other, observation, noise)
