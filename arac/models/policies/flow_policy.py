"""The stochastic policy of ARAC, SAC-NF and SAC: a Gaussian, N radial flows (none for SAC), tanh (Eq. 7)."""

import math
from dataclasses import dataclass

import jax
from jaxtyping import Array, Float

from arac.models.mlp import namespace
from arac.models.policies import radial_flow as radial
from arac.models.policies.gaussian import Gaussian, log_density
from arac.models.policies.radial_flow import RadialFlow
from arac.models.shapes import Action, LogProb, Observation


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class FlowPolicy:
    """A stochastic policy. The density of any action is exact, because the flows have a closed-form inverse.

    `noise` is a standard normal sample of the action's shape. The caller provides it, so that sampling is a pure and
    differentiable function; `mode` is the action for zero noise.
    """

    base: Gaussian
    flows: tuple[RadialFlow, ...]

    @staticmethod
    def init(
        key: jax.Array,
        observation_size: int,
        action_size: int,
        *,
        hidden: tuple[int, ...],
        flows: int,
        sigma: float | None,
    ) -> "FlowPolicy":
        """Return a new policy with `flows` radial flows; sigma is learned if it is None."""
        base_key, flow_key = jax.random.split(key)
        return FlowPolicy(
            base=Gaussian.init(base_key, (observation_size, *hidden, action_size), sigma),
            flows=tuple(RadialFlow.init(jax.random.fold_in(flow_key, i), action_size) for i in range(flows)),
        )

    def act(self, observation: Observation, noise: Action) -> Action:
        """Return an action without its log-probability, as workers need it at each step."""
        mean, log_std = self.base(observation)
        xp = namespace(mean)
        return xp.tanh(radial.forward(self.flows, mean + xp.exp(log_std) * noise))

    def mode(self, observation: Observation) -> Action:
        """Return the action without noise: the mean, passed through the flows and tanh."""
        mean, _ = self.base(observation)
        return namespace(mean).tanh(radial.forward(self.flows, mean))

    def sample(self, observation: Observation, noise: Action) -> tuple[Action, LogProb]:
        """Return an action and its log-probability."""
        mean, log_std = self.base(observation)
        xp = namespace(mean)
        z = mean + xp.exp(log_std) * noise
        x, log_det = radial.forward_log_det(self.flows, z)
        return xp.tanh(x), log_density(z, mean, log_std) - log_det - log_tanh_slope(x).sum(-1)

    def log_prob(self, observation: Observation, action: Action) -> LogProb:
        """Return the log-probability of a given action; actions at -1 or 1 are moved slightly inwards."""
        xp = namespace(action)
        edge = 1 - 2.0**-22  # the last float32 values below 1 still have a finite atanh
        x = xp.arctanh(xp.clip(action, -edge, edge))
        return pre_tanh_log_prob(x, *self.base(observation), self.flows) - log_tanh_slope(x).sum(-1)


def pre_tanh_log_prob(x: Action, mean: Action, log_std: Action, flows: tuple[RadialFlow, ...]) -> LogProb:
    """Return the log-density of x, the action before tanh, for flows applied to a Gaussian."""
    z, log_det = radial.inverse_log_det(flows, x)
    return log_density(z, mean, log_std) - log_det


def log_tanh_slope(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return log(1 - tanh(x)^2), numerically stable for large |x|."""
    return 2 * (math.log(2) - x - namespace(x).logaddexp(-2 * x, 0.0))
