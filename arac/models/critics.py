"""Critics: twin Q with a state value (SAC v1, the paper's), or twin Q alone (SAC v2, TD3), or one Q (DDPG)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from arac.models.mlp import MLP, LayerStyle, elu, matmul
from arac.models.policies import DeterministicPolicy
from arac.models.stacked import vmap_init

Network = TypeVar("Network", bound="MLP | TwinQ | WideTwinQ | DeterministicPolicy")
Tree = TypeVar("Tree")
CriticKind: TypeAlias = Literal["value", "twin"]
CriticTarget: TypeAlias = Literal["delayed", "every"]  # moves with each update of the actor, or of the critic


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class TwinQ:
    """Two independent Q networks, stacked along a leading axis; DDPG uses one."""

    networks: "MLP | BranchedQ"

    def __call__(
        self, observation: Float[Array, "batch obs"], action: Float[Array, "batch action"]
    ) -> Float[Array, "2 batch"]:
        pair = jnp.concatenate([observation, action], -1)
        return jax.vmap(lambda network: network(pair)[..., 0])(self.networks)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class WideTwinQ:
    """A `TwinQ` fused for the update loops: the two first layers are one product, with state and action separate.

    The contribution of a state is then computed once for all actions that are evaluated in it, and the gradient with
    respect to an action costs nothing for the state.
    """

    state: Float[Array, "obs wide"]
    action: Float[Array, "action wide"]
    bias: Float[Array, " wide"]
    later: MLP  # the layers after the first, stacked

    @staticmethod
    def of(q: TwinQ, action_size: int) -> "WideTwinQ":
        """Fuse the first layers of `q`, which must consist of plain MLPs."""
        network = q.networks
        assert isinstance(network, MLP)
        first = jnp.concatenate(list(network.weights[0]), -1)
        return WideTwinQ(
            state=first[:-action_size],
            action=first[-action_size:],
            bias=network.biases[0].ravel(),
            later=replace(network, weights=network.weights[1:], biases=network.biases[1:]),
        )

    def as_twin(self) -> TwinQ:
        """Undo `of`."""
        count = len(self.later.weights[0])
        first = jnp.stack(jnp.split(jnp.concatenate([self.state, self.action]), count, -1))
        biases = jnp.stack(jnp.split(self.bias, count))
        later = self.later
        return TwinQ(replace(later, weights=(first, *later.weights), biases=(biases, *later.biases)))

    def __call__(
        self, observation: Float[Array, "batch obs"], action: Float[Array, "batch action"]
    ) -> Float[Array, "2 batch"]:
        wide = matmul(observation, self.state) + matmul(action, self.action) + self.bias
        hidden = jnp.moveaxis(wide.reshape(*wide.shape[:-1], len(self.later.weights[0]), -1), -2, 0)
        return jax.vmap(lambda later, x: later.onward(x, later.weights, later.biases)[..., 0])(self.later, hidden)


Q: TypeAlias = TwinQ | WideTwinQ


def fuse_twin_q(tree: Tree, action_size: int) -> Tree:
    """Replace every TwinQ of plain MLPs in the tree by its fused form."""
    return _over_pairs(lambda q: WideTwinQ.of(q, action_size), TwinQ, tree)


def split_twin_q(tree: Tree) -> Tree:
    """Undo `fuse_twin_q`."""
    return _over_pairs(lambda q: q.as_twin(), WideTwinQ, tree)


def _over_pairs(convert: Callable[[Any], Any], kind: type, tree: Tree) -> Tree:
    def is_pair(node: Any) -> bool:
        return isinstance(node, kind) and not isinstance(getattr(node, "networks", None), BranchedQ)

    return jax.tree.map(lambda node: convert(node) if is_pair(node) else node, tree, is_leaf=is_pair)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class BranchedQ:
    """ERL's Q network: state and action pass through separate layers, whose outputs are then concatenated."""

    state: MLP
    action: MLP
    joint: MLP

    @staticmethod
    def init(key: jax.Array, observation_size: int, action_size: int, *, branch: int, joint: int) -> "BranchedQ":
        """Return a new network with `branch` units in each branch and `joint` in the layer that joins them."""
        state_key, action_key, joint_key = jax.random.split(key, 3)
        return BranchedQ(
            state=MLP.init(state_key, (observation_size, branch)),
            action=MLP.init(action_key, (action_size, branch)),
            joint=MLP.init(joint_key, (2 * branch, joint, 1), LayerStyle("elu", norm="before")),
        )

    def with_last_scaled(self, factor: float) -> "BranchedQ":
        """Return the network with the weights and biases of its last layer multiplied by `factor`."""
        return replace(self, joint=self.joint.with_last_scaled(factor))

    def __call__(self, pair: Float[Array, "batch both"]) -> Float[Array, "batch 1"]:
        size = self.state.weights[0].shape[0]
        branches = elu(self.state(pair[..., :size])), elu(self.action(pair[..., size:]))
        return self.joint(jnp.concatenate(branches, -1))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class QAndValue:
    """The trained networks of a `ValueCritic`."""

    q: Q
    value: MLP


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ValueCritic:
    """A critic that bootstraps from a target network for the state value (Eqs. 3 and 4)."""

    online: QAndValue
    target: MLP

    @property
    def q(self) -> Q:
        return self.online.q

    def with_soft_target(self, online: QAndValue, tau: float) -> "ValueCritic":
        """Return the critic with new trained networks and its target moved towards them by `tau`."""
        return ValueCritic(online, soft_update(self.target, online.value, tau))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class TwinCritic:
    """A critic that bootstraps from target Q networks and the policy's next action."""

    online: Q
    target: Q

    @property
    def q(self) -> Q:
        return self.online

    def with_soft_target(self, online: Q, tau: float) -> "TwinCritic":
        """Return the critic with new trained networks and its target moved towards them by `tau`."""
        return TwinCritic(online, soft_update(self.target, online, tau))


Critic: TypeAlias = ValueCritic | TwinCritic


def init_critic(
    key: jax.Array, kind: CriticKind, observation_size: int, action_size: int, hidden: tuple[int, ...]
) -> Critic:
    """Return a new critic whose target networks equal the trained ones."""
    q_key, value_key = jax.random.split(key)
    if kind == "twin":
        return init_twin_critic(q_key, observation_size, action_size, hidden)
    q = init_twin_critic(q_key, observation_size, action_size, hidden).online
    value = MLP.init(value_key, (observation_size, *hidden, 1))
    return ValueCritic(QAndValue(q, value), value)


def init_twin_critic(
    key: jax.Array, observation_size: int, action_size: int, hidden: tuple[int, ...], style: LayerStyle = LayerStyle()
) -> TwinCritic:
    """Return a new critic of twin Q networks whose target networks equal the trained ones."""
    sizes = (observation_size + action_size, *hidden, 1)
    q = TwinQ(vmap_init(lambda k: MLP.init(k, sizes, style), key, 2))
    return TwinCritic(q, q)


def soft_update(target: Network, online: Network, tau: float) -> Network:
    """Return `target` moved towards `online` by the fraction `tau`."""
    return jax.tree.map(lambda slow, fast: slow + tau * (fast - slow), target, online)
