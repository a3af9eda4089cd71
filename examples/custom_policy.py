"""ARAC with a custom action distribution: Kumaraswamy's, which is similar to the Beta distribution.

It is defined on a bounded interval, so no tanh concentrates actions at the bounds. Unlike Beta's, its cumulative
distribution has a closed-form inverse, so that a sample is a differentiable function of noise.
"""

import math
from dataclasses import dataclass

import jax
import numpy as np
import scipy.special
from jax.scipy.special import log_ndtr

from arac import ARAC
from arac.models.mlp import MLP, namespace


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class KumaraswamyPolicy:
    """`x = (1 - (1 - u)^(1/b))^(1/a)` with u uniform; the action is `2 x - 1`. With a, b > 1 it has one peak."""

    network: MLP

    @staticmethod
    def init(key, observation_size, action_size):
        return KumaraswamyPolicy(MLP.init(key, (observation_size, 64, 64, 2 * action_size)))

    def shape(self, observation):
        """Return a and b: 1 + softplus of the network's output."""
        output = self.network(observation)
        both = 1 + namespace(output).logaddexp(output, 0.0)
        half = both.shape[-1] // 2
        return both[..., :half], both[..., half:]

    def sample(self, observation, noise):
        a, b = self.shape(observation)
        xp = namespace(a)
        # The noise is normal, so 1 - u is the normal distribution at -noise; all in logarithms, to stay exact.
        log_rest = (scipy.special.log_ndtr if isinstance(noise, np.ndarray) else log_ndtr)(-noise) / b
        log_x = xp.log(-xp.expm1(log_rest)) / a
        return 2 * xp.exp(log_x) - 1, log_density(a, b, log_x, log_rest)

    def log_prob(self, observation, action):
        a, b = self.shape(observation)
        xp = namespace(a)
        log_x = xp.log(xp.clip((action + 1) / 2, 1e-6, 1 - 1e-6))
        return log_density(a, b, log_x, xp.log(-xp.expm1(a * log_x)))

    def act(self, observation, noise):
        return self.sample(observation, noise)[0]

    def mode(self, observation):
        """Return the median, which is the action for zero noise."""
        a, b = self.shape(observation)
        return 2 * (1 - 0.5 ** (1 / b)) ** (1 / a) - 1


def log_density(a, b, log_x, log_rest):
    """Return the log-density of the action; `log_rest` is `log(1 - x^a)`."""
    xp = namespace(a)
    return (xp.log(a) + xp.log(b) + (a - 1) * log_x + (b - 1) * log_rest - math.log(2)).sum(-1)


if __name__ == "__main__":
    agent = ARAC("Pendulum-v1", policy=KumaraswamyPolicy, hidden_size=64, warmup_steps=1000, eval_episodes=2)
    agent.learn(3_000, run_dir="runs/kumaraswamy")
    # To resume after a stop: ARAC.resume("runs/kumaraswamy", policy=KumaraswamyPolicy)
    print(agent.evaluate(episodes=5).mean)
