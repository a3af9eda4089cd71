"""Policies, which choose actions. All of them have the four methods of `Policy`.

SAC's Gaussian policy is the flow policy without flows: `FlowPolicy.init(..., flows=0, sigma=None)`.
"""

from typing import Protocol

from arac.models.policies.deterministic import DeterministicPolicy
from arac.models.policies.flow_policy import FlowPolicy
from arac.models.policies.gaussian import Gaussian
from arac.models.policies.radial_flow import RadialFlow
from arac.models.shapes import Action, LogProb, Observation

__all__ = ["DeterministicPolicy", "FlowPolicy", "Gaussian", "Policy", "RadialFlow"]


class Policy(Protocol):
    """The interface of a policy: a pytree of arrays whose actions lie in [-1, 1].

    `noise` is a standard normal sample of the action's shape. A population is one policy whose leaves have a leading
    axis, and a worker's copy has NumPy leaves: methods written against `array.__array_namespace__()` work for both.
    `custom.CustomPolicy` is the interface of users' policies.
    """

    def act(self, observation: Observation, noise: Action) -> Action:
        """Return an action."""

    def sample(self, observation: Observation, noise: Action) -> tuple[Action, LogProb]:
        """Return an action and its log-probability."""

    def log_prob(self, observation: Observation, action: Action) -> LogProb:
        """Return the log-probability of a given action."""

    def mode(self, observation: Observation) -> Action:
        """Return the action without noise."""
