"""The update loops: many mini-batches in one jitted call, at the machine's matrix-multiply rate.

Episode lengths change every generation, so the number of updates is a traced number and each loop compiles once.
Update i draws its mini-batch and noise from (key, i) alone: how a count is cut into calls changes nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from arac import replay
from arac.compiling import compiled
from arac.critics import Critic, narrowed, widened
from arac.losses import Archived, Base, actor_loss, attraction_repulsion_loss, critic_loss
from arac.policies import Policy
from arac.replay import Batch, Contents

OptimiserState: TypeAlias = Any
Carry = TypeVar("Carry")
Drawn = TypeVar("Drawn")
_AHEAD = 32  # updates whose random numbers are drawn at once


class Rules(NamedTuple):
    """The numbers that a compiled loop is made for."""

    discount: float
    tau: float
    learning_rate: float
    batch_size: int
    ar_base: Base = "shared"
    kl_clip: float | None = None


class CriticLearner(NamedTuple):
    critic: Critic
    optimiser: OptimiserState


class ActorLearner(NamedTuple):
    """One actor, or a population of them with a leading axis."""

    policy: Policy
    optimiser: OptimiserState


def adam(rules: Rules) -> optax.GradientTransformation:
    return optax.adam(rules.learning_rate)


def gradient_step(rules: Rules, parameters: Any, gradient: Any, optimiser: OptimiserState) -> tuple[Any, Any]:
    """One step of Adam: the new parameters and the new optimiser state."""
    change, optimiser = adam(rules).update(gradient, optimiser)
    return optax.apply_updates(parameters, change), optimiser


def critic_step(
    rules: Rules,
    learner: CriticLearner,
    policy: Policy,
    temperature: Float[Array, ""],
    batch: Batch,
    noise: Float[Array, "batch action"],
) -> tuple[CriticLearner, Float[Array, ""]]:
    """One mini-batch for the critic, and its loss."""
    critic = learner.critic
    loss, gradient = jax.value_and_grad(critic_loss)(
        critic.online, critic, policy, temperature, batch, noise, rules.discount
    )
    online, optimiser = gradient_step(rules, critic.online, gradient, learner.optimiser)
    return CriticLearner(critic.following(online, rules.tau), optimiser), loss


def actor_step(
    rules: Rules,
    learner: ActorLearner,
    critic: Critic,
    temperature: Float[Array, ""],
    archived: Archived | None,
    observation: Float[Array, "batch obs"],
    noise: Float[Array, "batch action"],
) -> tuple[ActorLearner, "ActorMetrics"]:
    """One mini-batch for one actor: Eq. 5 if it has archived policies to feel, else Eq. 2."""

    def loss(policy: Policy) -> tuple[Float[Array, ""], ActorMetrics]:
        total, log_prob = actor_loss(policy, critic.q, temperature, observation, noise)
        if archived is None:
            return total, ActorMetrics(total, log_prob, jnp.zeros(()))
        ar, kl = attraction_repulsion_loss(
            policy, archived, observation, noise, base=rules.ar_base, kl_clip=rules.kl_clip
        )
        return total + ar, ActorMetrics(total, log_prob, kl.mean())

    gradient, metrics = jax.grad(loss, has_aux=True)(learner.policy)
    return ActorLearner(*gradient_step(rules, learner.policy, gradient, learner.optimiser)), metrics


class ActorMetrics(NamedTuple):
    loss: Float[Array, ""]
    log_prob: Float[Array, ""]
    archive_kl: Float[Array, ""]


@partial(compiled, static="rules")
def critic_updates(
    rules: Rules,
    learner: CriticLearner,
    policy: Policy,
    temperature: float,
    contents: Contents,
    key: jax.Array,
    start: int,
    stop: int,
) -> tuple[CriticLearner, Float[Array, ""]]:
    """Updates `start` to `stop - 1` of the critic with one policy, and the sum of their losses."""

    def update(drawn: Draw, carry: tuple[CriticLearner, Float[Array, ""]]) -> tuple[CriticLearner, Float[Array, ""]]:
        learner, total = carry
        batch = replay.gather(contents, drawn.positions)
        learner, loss = critic_step(rules, learner, policy, jnp.float32(temperature), batch, drawn.noise)
        return learner, total + loss

    def draw_one(i: Any) -> Draw:
        return draw(rules.batch_size, contents, jax.random.fold_in(key, i))

    wide = widened(learner, contents.action_size)
    wide, total = repeat(start, stop, draw_one, update, (wide, jnp.zeros(())))
    return narrowed(wide), total


@partial(compiled, static="rules")
def actor_updates(
    rules: Rules,
    learners: ActorLearner,
    critic: Critic,
    temperature: float,
    archived: Archived | None,
    contents: Contents,
    keys: jax.Array,
    start: int,
    stop: int,
) -> tuple[ActorLearner, ActorMetrics]:
    """Updates `start` to `stop - 1` of several actors side by side, each on mini-batches of its own.

    `archived` and `keys` have the actors' leading axis; without `archived` nothing of attraction and repulsion is
    computed. The metrics are sums over the updates, one for each actor.
    """
    critic = widened(critic, contents.action_size)

    def one(learner: ActorLearner, archived: Archived | None, drawn: Draw) -> tuple[ActorLearner, ActorMetrics]:
        batch = replay.gather(contents, drawn.positions)
        return actor_step(rules, learner, critic, jnp.float32(temperature), archived, batch.observation, drawn.noise)

    def update(drawn: Draw, carry: tuple[ActorLearner, ActorMetrics]) -> tuple[ActorLearner, ActorMetrics]:
        learners, totals = carry
        learners, metrics = jax.vmap(one)(learners, archived, drawn)
        return learners, jax.tree.map(jnp.add, totals, metrics)

    def draw_all(i: Any) -> Draw:
        return jax.vmap(lambda key: draw(rules.batch_size, contents, jax.random.fold_in(key, i)))(keys)

    zeros = jnp.zeros(keys.shape[0])
    return repeat(start, stop, draw_all, update, (learners, ActorMetrics(zeros, zeros, zeros)))


class Draw(NamedTuple):
    """The chance in an update."""

    positions: Int[Array, " batch"]  # of the mini-batch in replay
    noise: Float[Array, "batch action"]  # standard normal, for the actions of a policy on it


def draw(batch_size: int, contents: Contents, key: jax.Array) -> Draw:
    batch_key, noise_key = jax.random.split(key)
    noise = jax.random.normal(noise_key, (batch_size, contents.action_size))
    return Draw(replay.positions(contents, batch_key, batch_size), noise)


def repeat(
    start: Any, stop: Any, draw: Callable[[Any], Drawn], update: Callable[[Drawn, Carry], Carry], carry: Carry
) -> Carry:
    """`carry = update(draw(i), carry)` for i from `start` to `stop - 1`.

    What is drawn depends on i alone, so it is drawn for many updates at once: the random numbers of one are too few to
    keep the machine busy.
    """

    def some(block: Any, carry: Carry) -> Carry:
        first = start + block * _AHEAD
        drawn = jax.vmap(draw)(first + jnp.arange(_AHEAD))

        def one(number: Any, carry: Carry) -> Carry:
            return update(jax.tree.map(lambda leaf: leaf[number], drawn), carry)

        return jax.lax.fori_loop(0, jnp.minimum(_AHEAD, stop - first), one, carry)

    return jax.lax.fori_loop(0, -((start - stop) // _AHEAD), some, carry)
