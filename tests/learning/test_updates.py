"""Optimised update loops give the same results as the plain form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arac.learning.sac_updates import (
    CriticLearner,
    UpdateConfig,
    adam,
    critic_step,
    critic_updates,
)
from arac.learning.update_loop import repeat, sample_batch
from arac.models.critics import BranchedQ, TwinQ, WideTwinQ, fuse_twin_q, init_critic, split_twin_q
from arac.models.mlp import MLP, LayerStyle, matmul
from arac.models.policies import FlowPolicy
from arac.models.stacked import vmap_init
from arac.replay.buffer import ReplayBuffer, gather, sample
from arac.replay.episode import Episode

OBS, ACT = 5, 3
RULES = UpdateConfig(discount=0.9, tau=0.1, learning_rate=0.01, batch_size=16)
KEY = jax.random.key(0)


def pair(style=LayerStyle()):
    return TwinQ(vmap_init(lambda key: MLP.init(key, (OBS + ACT, 8, 6, 1), style), KEY, 2))


def filled():
    rng = np.random.default_rng(0)
    replay = ReplayBuffer(100, OBS, ACT)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((51, OBS), (50, ACT), (50,))]
    replay.extend([Episode(*arrays, terminated=True, total=0.0, steps=50)])
    return replay.view


def assert_close(one, other, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), one, other)


@pytest.mark.parametrize(
    "style", [LayerStyle(), LayerStyle("leaky_relu"), LayerStyle("elu", "before"), LayerStyle("relu", "after")]
)
def test_wide_networks_are_the_same_networks(style):
    q, keys = pair(style), jax.random.split(KEY)
    observation, action = jax.random.normal(keys[0], (7, OBS)), jax.random.normal(keys[1], (7, ACT))
    wide = jax.jit(WideTwinQ.of, static_argnums=1)(q, ACT)
    values = jax.jit(lambda q: q(observation, action))
    assert_close(values(wide), values(q), rtol=1e-5, atol=1e-6)

    def loss(q, action):
        return (q(observation, action).min(0) ** 2).sum()

    gradient = jax.jit(jax.grad(loss, (0, 1)))
    of_q, of_action = gradient(q, action)
    of_wide, of_wide_action = gradient(wide, action)
    assert_close(jax.jit(WideTwinQ.as_twin)(of_wide), of_q, rtol=1e-4, atol=1e-5)
    assert_close(of_wide_action, of_action, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["value", "twin"])
def test_there_and_back_is_the_same_bits(kind):
    critic = init_critic(KEY, kind, OBS, ACT, (8, 8))
    learner = CriticLearner(critic, adam(RULES).init(critic.online))
    wide = jax.jit(fuse_twin_q, static_argnums=1)(learner, ACT)
    assert isinstance(wide.critic.q, WideTwinQ)
    back = jax.jit(split_twin_q)(wide)
    assert jax.tree.structure(back) == jax.tree.structure(learner)
    jax.tree.map(np.testing.assert_array_equal, back, learner)


def test_networks_that_are_no_plain_pair_stay_as_they_are():
    q = TwinQ(vmap_init(lambda key: BranchedQ.init(key, OBS, ACT, branch=4, joint=4), KEY, 1))
    for same in (fuse_twin_q(q, ACT), split_twin_q(q)):
        assert jax.tree.structure(same) == jax.tree.structure(q)


@pytest.mark.parametrize(("fan_in", "fan_out"), [(64, 64), (128, 3), (5, 64), (70, 90), (3, 2)])
def test_a_products_gradient_is_the_products_gradient(fan_in, fan_out):
    """Each layout of `matmul` gives the result and gradients of JAX's plain product."""
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(shape, np.float32) for shape in ((10, fan_in), (fan_in, fan_out)))

    def gradient(multiply):
        return jax.grad(lambda x, weight: jnp.sin(multiply(x, weight)).sum(), (0, 1))

    ours, plain = jax.jit(gradient(matmul)), jax.jit(gradient(jnp.matmul))
    assert_close(ours(x, weight), plain(x, weight), rtol=1e-4, atol=1e-4)
    stacked = np.stack([x, 2 * x]), np.stack([weight, 3 * weight])
    ours = gradient(jax.vmap(matmul))  # not compiled as one: XLA aborts with 3 inputs and 2 outputs
    assert_close(ours(*stacked), plain(*stacked), rtol=1e-4, atol=1e-3)


def test_a_product_of_numpy_arrays_stays_in_numpy():
    assert isinstance(matmul(np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)), np.ndarray)


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 1), (3, 35), (0, 64), (7, 104)])
def test_repeat_does_each_number_once_and_in_order(start, stop):
    def note(i, carry):
        seen, count = carry
        return seen.at[count].set(i), count + 1

    @jax.jit
    def run(start, stop):
        return repeat(start, stop, lambda i: i, note, (jnp.full(200, -1), 0))

    seen, count = run(start, stop)
    assert count == stop - start
    np.testing.assert_array_equal(seen[:count], np.arange(start, stop))


def test_what_is_drawn_ahead_is_what_would_be_drawn_one_by_one():
    view = filled()

    def keep(drawn, carry):
        draws, count = carry
        return jax.tree.map(lambda all_, one: all_.at[count].set(one), draws, drawn), count + 1

    @jax.jit
    def draw_one(i):
        return sample_batch(4, view, jax.random.fold_in(KEY, i))

    room = jax.tree.map(lambda leaf: jnp.array(np.zeros((40, *leaf.shape), leaf.dtype)), draw_one(0))
    many, _ = jax.jit(lambda room: repeat(5, 45, draw_one, keep, (room, 0)))(room)
    for number in (0, 31, 32, 39):
        one = draw_one(5 + number)
        jax.tree.map(lambda all_, alone, n=number: np.testing.assert_array_equal(all_[n], alone), many, one)


def test_positions_and_gather_are_a_sample():
    view = filled()

    @jax.jit
    def both_ways(key):
        batch_key, _ = jax.random.split(key)
        return gather(view, sample_batch(9, view, key).positions), sample(view, batch_key, 9)

    jax.tree.map(np.testing.assert_array_equal, *both_ways(KEY))


@pytest.mark.parametrize("kind", ["value", "twin"])
def test_the_loop_takes_the_same_steps_as_the_step(kind):
    """The reference makes one update after the other, with the networks in the form of checkpoints."""
    view = filled()
    critic = init_critic(KEY, kind, OBS, ACT, (8, 8))
    policy = FlowPolicy.init(KEY, OBS, ACT, hidden=(8,), flows=2, sigma=0.4)
    start = CriticLearner(critic, adam(RULES).init(critic.online))
    after, total = critic_updates(RULES, start, policy, 0.2, view, KEY, 2, 5)

    @jax.jit
    def step(learner, i):
        drawn = sample_batch(16, view, jax.random.fold_in(KEY, i))
        batch = gather(view, drawn.positions)
        return critic_step(RULES, learner, policy, jnp.float32(0.2), batch, drawn.noise)

    expected, losses = start, 0.0
    for i in range(2, 5):
        expected, loss = step(expected, i)
        losses += float(loss)
    assert float(total) == pytest.approx(losses, rel=1e-4)
    assert_close(after.critic, expected.critic, rtol=1e-3, atol=1e-4)
