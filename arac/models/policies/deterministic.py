"""A deterministic policy with Gaussian exploration noise around it, as in TD3."""

import math
from dataclasses import dataclass, field

import jax

from arac.models.mlp import MLP, LayerStyle, namespace
from arac.models.policies.gaussian import log_density
from arac.models.shapes import Action, LogProb, Observation


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class DeterministicPolicy:
    """A policy whose `mode` is the network's output; `act` and `sample` add noise and clip to [-1, 1]."""

    network: MLP
    exploration: float = field(metadata={"static": True})  # standard deviation of the added noise, in action units

    @staticmethod
    def init(
        key: jax.Array,
        observation_size: int,
        action_size: int,
        *,
        hidden: tuple[int, ...],
        exploration: float,
        style: LayerStyle = LayerStyle(),
    ) -> "DeterministicPolicy":
        """Return a new policy with hidden layers of the sizes `hidden`."""
        return DeterministicPolicy(MLP.init(key, (observation_size, *hidden, action_size), style), exploration)

    def act(self, observation: Observation, noise: Action) -> Action:
        mode = self.mode(observation)
        return namespace(mode).clip(mode + self.exploration * noise, -1.0, 1.0)

    def mode(self, observation: Observation) -> Action:
        output = self.network(observation)
        return namespace(output).tanh(output)

    def sample(self, observation: Observation, noise: Action) -> tuple[Action, LogProb]:
        """Return a noisy action and its log-probability."""
        action = self.act(observation, noise)
        return action, self.log_prob(observation, action)

    def log_prob(self, observation: Observation, action: Action) -> LogProb:
        """Return the log-density of the noise around the mode, ignoring the clipping.

        Raises:
            ValueError: if `exploration` is 0: without noise there is no density.
        """
        if self.exploration == 0:
            raise ValueError("A deterministic policy has no density; give it exploration noise above 0.")
        mode = self.mode(observation)
        log_std = namespace(mode).full_like(mode, math.log(self.exploration))
        return log_density(action, mode, log_std)
