"""Critics: twin Q with a state value (SAC v1, the paper's), or twin Q alone (SAC v2, TD3), or one Q (DDPG)."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from arac.networks import MLP, Style, elu
from arac.policies import DeterministicPolicy
from arac.population import over_members

Network = TypeVar("Network", bound="MLP | TwinQ | DeterministicPolicy")
CriticKind: TypeAlias = Literal["value", "twin"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class TwinQ:
    """Two independent Q networks, stacked; DDPG has one."""

    networks: "MLP | BranchedQ"

    def __call__(
        self, observation: Float[Array, "batch obs"], action: Float[Array, "batch action"]
    ) -> Float[Array, "2 batch"]:
        pair = jnp.concatenate([observation, action], -1)
        return jax.vmap(lambda network: network(pair)[..., 0])(self.networks)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class BranchedQ:
    """ERL's Q network: state and action each pass a layer of their own before they meet."""

    state: MLP
    action: MLP
    joint: MLP

    @staticmethod
    def init(key: jax.Array, observation_size: int, action_size: int, *, branch: int, joint: int) -> "BranchedQ":
        state_key, action_key, joint_key = jax.random.split(key, 3)
        return BranchedQ(
            state=MLP.init(state_key, (observation_size, branch)),
            action=MLP.init(action_key, (action_size, branch)),
            joint=MLP.init(joint_key, (2 * branch, joint, 1), Style("elu", norm="before")),
        )

    def __call__(self, pair: Float[Array, "batch both"]) -> Float[Array, "batch 1"]:
        size = self.state.weights[0].shape[0]
        branches = elu(self.state(pair[..., :size])), elu(self.action(pair[..., size:]))
        return self.joint(jnp.concatenate(branches, -1))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class QAndValue:
    q: TwinQ
    value: MLP


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ValueCritic:
    """Bootstraps from a slowly moving state value (Eqs. 3 and 4)."""

    online: QAndValue
    target: MLP

    @property
    def q(self) -> TwinQ:
        return self.online.q

    def following(self, online: QAndValue, tau: float) -> "ValueCritic":
        """The critic after an optimiser step: `online` as it is now, the target a small step towards it."""
        return ValueCritic(online, moved(self.target, online.value, tau))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class TwinCritic:
    """Bootstraps from slowly moving twin Q networks and the policy's next action."""

    online: TwinQ
    target: TwinQ

    @property
    def q(self) -> TwinQ:
        return self.online

    def following(self, online: TwinQ, tau: float) -> "TwinCritic":
        """The critic after an optimiser step: `online` as it is now, the target a small step towards it."""
        return TwinCritic(online, moved(self.target, online, tau))


Critic: TypeAlias = ValueCritic | TwinCritic


def init_critic(
    key: jax.Array, kind: CriticKind, observation_size: int, action_size: int, hidden: tuple[int, ...]
) -> Critic:
    q_key, value_key = jax.random.split(key)
    if kind == "twin":
        return init_twin_critic(q_key, observation_size, action_size, hidden)
    q = init_twin_critic(q_key, observation_size, action_size, hidden).online
    value = MLP.init(value_key, (observation_size, *hidden, 1))
    return ValueCritic(QAndValue(q, value), value)


def init_twin_critic(
    key: jax.Array,
    observation_size: int,
    action_size: int,
    hidden: tuple[int, ...],
    style: Style = Style(),  # noqa: B008
) -> TwinCritic:
    sizes = (observation_size + action_size, *hidden, 1)
    q = TwinQ(over_members(lambda k: MLP.init(k, sizes, style), key, 2))
    return TwinCritic(q, q)


def moved(target: Network, online: Network, tau: float) -> Network:
    """The soft target update: tau of the way from `target` to `online`."""
    return jax.tree.map(lambda slow, fast: slow + tau * (fast - slow), target, online)
