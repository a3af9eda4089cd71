"""Radial normalizing flows: forward, closed-form inverse and log-determinant (Eq. 6)."""

import math
from dataclasses import dataclass

import jax
from jaxtyping import Array, Float

from arac.models.mlp import namespace
from arac.models.shapes import Action, LogProb

# softplus(_ONE) = 1, so that a flow starts at alpha = alpha + beta = 1: the identity.
_ONE = math.log(math.e - 1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class RadialFlow:
    """The radial flow `f(z) = z + beta / (alpha + r) * (z - centre)` with `r = |z - centre|`.

    `reach = alpha + beta` must be positive for f to be invertible. Written with it, f, its inverse and its
    log-determinant use ratios of positive numbers only, so that no precision is lost by cancellation:

        f(z)     = centre + (z - centre) * (reach + r) / (alpha + r)
        log|det| = (d - 1) log((reach + r) / (alpha + r)) + log((r^2 + 2 alpha r + alpha reach) / (alpha + r)^2)
    """

    centre: Float[Array, " action"]  # z0
    raw_alpha: Float[Array, ""]  # alpha = softplus(raw_alpha)
    raw_reach: Float[Array, ""]  # alpha + beta = softplus(raw_reach)

    @staticmethod
    def init(key: jax.Array, action_size: int) -> "RadialFlow":
        """Return a flow near the identity; random centres keep the flows of a policy from staying equal."""
        centre_key, alpha_key, reach_key = jax.random.split(key, 3)
        return RadialFlow(
            centre=0.1 * jax.random.normal(centre_key, (action_size,)),
            raw_alpha=_ONE + 0.01 * jax.random.normal(alpha_key),
            raw_reach=_ONE + 0.01 * jax.random.normal(reach_key),
        )

    @property
    def alpha(self) -> Float[Array, ""]:
        """The paper's alpha, which is positive."""
        return _softplus(self.raw_alpha)

    @property
    def reach(self) -> Float[Array, ""]:
        """The sum `alpha + beta`, which is positive."""
        return _softplus(self.raw_reach)

    @property
    def beta(self) -> Float[Array, ""]:
        """The paper's beta, which is above `-alpha`."""
        return self.reach - self.alpha

    def forward(self, z: Action) -> Action:
        """Return f(z)."""
        alpha, reach = self.alpha, self.reach
        offset = z - self.centre
        r = _norm(offset)[..., None]
        return self.centre + offset * ((reach + r) / (alpha + r))

    def inverse(self, y: Action) -> Action:
        """Return z with `f(z) = y`.

        `R = |y - centre| = r (reach + r) / (alpha + r)` is a quadratic equation in r with one non-negative root.
        """
        alpha, reach = self.alpha, self.reach
        offset = y - self.centre
        xp = namespace(offset)
        radius = _norm(offset)[..., None]
        b = radius - reach
        root = xp.sqrt(b * b + 4 * alpha * radius)
        # Each branch is the form of the root that does not subtract nearly equal numbers.
        r = xp.where(b >= 0, (b + root) / 2, 2 * alpha * radius / (root + abs(b)))
        return self.centre + offset * ((alpha + r) / (reach + r))

    def log_det(self, z: Action) -> LogProb:
        """Return log |det df/dz| at z, the point before the flow."""
        alpha, reach = self.alpha, self.reach
        r = _norm(z - self.centre)
        xp = namespace(r)
        stretch = (reach + r) / (alpha + r)
        radial = (r * (r + 2 * alpha) + alpha * reach) / ((alpha + r) * (alpha + r))
        return (z.shape[-1] - 1) * xp.log(stretch) + xp.log(radial)


def forward(flows: tuple[RadialFlow, ...], z: Action) -> Action:
    """Apply all flows in order, beginning with the one nearest to the base (Eq. 7)."""
    for flow in flows:
        z = flow.forward(z)
    return z


def forward_log_det(flows: tuple[RadialFlow, ...], z: Action) -> tuple[Action, LogProb]:
    """Return the point after all flows, and the sum of their log-determinants."""
    total = namespace(z).zeros(z.shape[:-1], dtype=z.dtype)
    for flow in flows:
        total = total + flow.log_det(z)
        z = flow.forward(z)
    return z, total


def inverse_log_det(flows: tuple[RadialFlow, ...], x: Action) -> tuple[Action, LogProb]:
    """Return the point before all flows, and the sum of their *forward* log-determinants there."""
    total = namespace(x).zeros(x.shape[:-1], dtype=x.dtype)
    for flow in reversed(flows):
        x = flow.inverse(x)
        total = total + flow.log_det(x)
    return x, total


def _softplus(x: Float[Array, ""]) -> Float[Array, ""]:
    # The floor keeps a flow that is driven to the edge of invertibility finite in float32.
    return namespace(x).logaddexp(x, 0.0) + 1e-6


def _norm(offset: Action) -> LogProb:
    """Return |offset|, with gradient 0 instead of NaN at the centre; the flow's Jacobian does not need it there."""
    return namespace(offset).sqrt((offset * offset).sum(-1) + 1e-37)
