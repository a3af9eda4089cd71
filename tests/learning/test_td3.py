"""TD3's updates against NumPy and against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from arac.learning.losses import deterministic_actor_loss, q_loss, smoothed_target
from arac.learning.td3_updates import (
    Learner,
    UpdateConfig,
    actor_updates,
    begin_actor,
    critic_step,
    critic_updates,
    learner_updates,
)
from arac.learning.update_loop import sample_batch
from arac.models.critics import BranchedQ, TwinCritic, TwinQ, init_twin_critic
from arac.models.mlp import MLP, LayerNorm, LayerStyle
from arac.models.policies import DeterministicPolicy
from arac.models.stacked import members, stack, to_numpy, vmap_init
from arac.replay.buffer import Batch, ReplayBuffer, gather
from arac.replay.episode import Episode

OBS, ACT = 3, 2
RULES = UpdateConfig(actor_learning_rate=1e-3, critic_learning_rate=2e-3, tau=0.1, batch_size=8)


target_of = jax.jit(smoothed_target)
actor_loss = jax.jit(deterministic_actor_loss)


@jax.jit
def init_branched_q(key):
    return BranchedQ.init(key, OBS, ACT, branch=6, joint=7)


def a_tenth_nearer(target, online):
    return jax.tree.map(lambda slow, fast: 0.9 * np.asarray(slow) + 0.1 * np.asarray(fast), target, online)


def policy(seed=0, **options):
    chosen = {"hidden": (16, 16), "exploration": 0.1, **options}
    return DeterministicPolicy.init(jax.random.key(seed), OBS, ACT, **chosen)


def critic(seed=1):
    online = init_twin_critic(jax.random.key(seed), OBS, ACT, (16, 16)).online
    return TwinCritic(online, init_twin_critic(jax.random.key(seed + 1), OBS, ACT, (16, 16)).online)


def learner(seed=0, update_config=RULES):
    return Learner.begin(update_config, policy(seed), critic(seed + 10))._replace(target_policy=policy(seed + 20))


def filled(seed=0):
    rng = np.random.default_rng(seed)
    replay = ReplayBuffer(1000, OBS, ACT)
    for steps in (40, 25, 60):
        rewards = rng.normal(size=steps).astype(np.float32)
        observations = rng.normal(size=(steps + 1, OBS)).astype(np.float32)
        actions = rng.uniform(-1, 1, (steps, ACT)).astype(np.float32)
        replay.extend([Episode(observations, actions, rewards, bool(steps % 2), float(rewards.sum()), steps)])
    return replay.view


def batch(seed=0, size=8):
    rng = np.random.default_rng(seed)
    return Batch(
        observation=jnp.asarray(rng.normal(size=(size, OBS)), jnp.float32),
        action=jnp.asarray(rng.uniform(-1, 1, (size, ACT)), jnp.float32),
        reward=jnp.asarray(rng.normal(size=size), jnp.float32),
        terminal=jnp.asarray(rng.random(size) < 0.4),
        next_observation=jnp.asarray(rng.normal(size=(size, OBS)), jnp.float32),
    )


def forward(network, x):
    """Evaluate a network of ReLU layers in float64."""
    *hidden, last = zip(network.weights, network.biases, strict=True)
    for weight, bias in hidden:
        x = np.maximum(x @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64), 0)
    return x @ np.asarray(last[0], np.float64) + np.asarray(last[1], np.float64)


def both_q(q, observation, action):
    pair = np.concatenate([observation, action], 1)
    return np.stack([forward(network, pair)[:, 0] for network in members(q.networks)])


def assert_same_trees(one, other, **tolerance):
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(left, right, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def test_the_target_takes_the_smaller_q_of_a_smoothed_action():
    data, pi, q = batch(), policy(), critic().target
    noise = np.random.default_rng(1).normal(size=(8, ACT)).astype(np.float32)
    got = target_of(q, pi, data, noise, 0.9)
    action = np.clip(np.tanh(forward(pi.network, np.asarray(data.next_observation))) + noise, -1, 1)
    value = both_q(q, np.asarray(data.next_observation), action).min(0)
    expected = np.asarray(data.reward) + 0.9 * np.where(data.terminal, 0, value)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_the_smoothing_noise_is_scaled_and_then_clipped():
    """A huge deviation moves every target action by exactly the clip, up or down."""
    update_config = RULES._replace(target_noise=1e6, target_noise_clip=0.25)
    data, start = batch(), learner()
    noise = np.random.default_rng(0).choice(np.float32([-1, 1]), (8, ACT))
    _, loss = jax.jit(critic_step, static_argnums=0)(update_config, start.critic, start.target_policy, 0.9, data, noise)
    target = target_of(start.critic.critic.target, start.target_policy, data, 0.25 * noise, 0.9)
    q = both_q(start.critic.critic.online, np.asarray(data.observation), np.asarray(data.action))
    assert float(loss) == pytest.approx(float(((q - np.asarray(target)) ** 2).mean(1).sum()), rel=1e-4)


def slope(loss, tree, leaf, index, step=1e-2):
    """Return the finite difference of a loss along one parameter."""
    leaves, structure = jax.tree.flatten(tree)

    @jax.jit
    def at(shift):
        soft_update = [part.at[index].add(shift) if number == leaf else part for number, part in enumerate(leaves)]
        return loss(jax.tree.unflatten(structure, soft_update))

    return (float(at(step)) - float(at(-step))) / (2 * step)


@pytest.mark.parametrize("index", [(0, 1, 2), (1, 2, 5), (1, 0, 7)])
def test_the_critics_gradient_by_finite_differences(index):
    data, start = batch(size=64), learner()
    target = target_of(start.critic.critic.target, start.target_policy, data, np.zeros((64, ACT), np.float32), 0.9)
    online = start.critic.critic.online
    gradient = jax.jit(jax.grad(q_loss))(online, target, data)
    assert float(jax.tree.leaves(gradient)[0][index]) == pytest.approx(
        slope(lambda q: q_loss(q, target, data), online, 0, index), rel=0.05, abs=2e-3
    )


def test_the_actor_climbs_the_first_q_alone():
    data, pi, q = batch(size=64), policy(), critic().online
    expected = -both_q(q, np.asarray(data.observation), np.tanh(forward(pi.network, np.asarray(data.observation))))[0]
    assert float(actor_loss(pi, q, data.observation)) == pytest.approx(expected.mean(), rel=1e-4)
    gradient = jax.jit(jax.grad(deterministic_actor_loss))(pi, q, data.observation)
    index = (1, 3)
    assert float(jax.tree.leaves(gradient)[0][index]) == pytest.approx(
        slope(lambda actor: deterministic_actor_loss(actor, q, data.observation), pi, 0, index), rel=0.05, abs=1e-3
    )


@jax.jit
def drawn_batch(view, key):
    """Return the first batch of a loop with this key, and its noise."""
    drawn = sample_batch(8, view, jax.random.fold_in(key, 0))
    return gather(view, drawn.positions), drawn.noise


def run(learners, start, stop, *, update_config=RULES, discounts=(0.99,), seed=5):
    keys = jax.random.split(jax.random.key(seed), len(discounts))
    return learner_updates(update_config, learners, jnp.array(discounts), filled(), keys, start, stop)


def test_the_actor_and_the_targets_move_with_every_second_update():
    before = stack([learner()])
    first, losses = run(before, 0, 1)
    assert_same_trees(first.actor.policy, before.actor.policy, rtol=0, atol=0)
    assert_same_trees(first.target_policy, before.target_policy, rtol=0, atol=0)
    assert_same_trees(first.critic.critic.target, before.critic.critic.target, rtol=0, atol=0)
    assert float(losses.actor[0]) == 0
    second, losses = run(first, 1, 2)
    assert float(losses.actor[0]) != 0
    for after, online, old in (
        (second.target_policy, second.actor.policy, first.target_policy),
        (second.critic.critic.target, second.critic.critic.online, first.critic.critic.target),
    ):
        assert_same_trees(after, a_tenth_nearer(old, online))


def test_the_critics_target_can_move_with_every_update():
    update_config = RULES._replace(critic_target="every")
    before = stack([learner()])
    first, _ = run(before, 0, 1, update_config=update_config)
    assert_same_trees(first.target_policy, before.target_policy, rtol=0, atol=0)
    second, _ = run(first, 1, 2, update_config=update_config)
    for after, old in ((first, before), (second, first)):
        critic = after.critic.critic
        assert_same_trees(critic.target, a_tenth_nearer(old.critic.critic.target, critic.online))
    assert_same_trees(second.target_policy, a_tenth_nearer(first.target_policy, second.actor.policy))


def test_the_first_step_of_adam_goes_against_the_gradient_by_the_learning_rate():
    before = stack([learner()])
    after, _ = run(before, 1, 2)
    for name, rate in (("actor", 1e-3), ("critic", 2e-3)):
        old = before.actor.policy if name == "actor" else before.critic.critic.online
        new = after.actor.policy if name == "actor" else after.critic.critic.online
        steps = np.concatenate([np.ravel(n - o) for n, o in zip(*map(jax.tree.leaves, (new, old)), strict=True)])
        soft_update = np.abs(steps[np.abs(steps) > 1e-7])
        assert np.quantile(soft_update, 0.5) == pytest.approx(rate, rel=0.02)


def test_how_updates_are_cut_into_calls_changes_nothing():
    whole, _ = run(stack([learner()]), 0, 7)
    first, _ = run(stack([learner()]), 0, 3)
    parts, _ = run(first, 3, 7)
    assert_same_trees(whole, parts, rtol=0, atol=0)


def test_learners_side_by_side_are_as_each_alone():
    discounts, keys = (0.9, 0.999), jax.random.split(jax.random.key(5), 2)
    together, losses = run(stack([learner(1), learner(2)]), 0, 6, discounts=discounts)
    for number in range(2):
        alone, loss = learner_updates(
            RULES, stack([learner(number + 1)]), jnp.array(discounts[number : number + 1]), filled(),
            keys[number : number + 1], 0, 6,
        )  # fmt: skip
        assert_same_trees(jax.tree.map(lambda leaf, n=number: leaf[n : n + 1], together), alone, rtol=1e-3, atol=1e-5)
        assert float(losses.critic[number]) == pytest.approx(float(loss.critic[0]), rel=1e-4)


def test_without_delay_smoothing_and_with_one_q_it_is_ddpg():
    """ERL's learner makes the update of Optax with the closed formula of DDPG's target."""
    update_config = RULES._replace(target_noise=0.0, policy_delay=1, gradient_clip=0.01)
    q = TwinQ(jax.jit(lambda key: vmap_init(init_branched_q, key, 1))(jax.random.key(0)))
    start = Learner.begin(update_config, policy(), TwinCritic(q, q))
    after, _ = run(stack([start]), 0, 1, update_config=update_config)
    data, _ = drawn_batch(filled(), jax.random.split(jax.random.key(5), 1)[0])

    def loss(online):
        action = policy().mode(data.next_observation)
        target = data.reward + 0.99 * ~data.terminal * q(data.next_observation, action)[0]
        return ((online(data.observation, data.action)[0] - target) ** 2).mean()

    gradient = jax.jit(jax.grad(loss))(q)
    assert float(optax.global_norm(gradient)) > 0.01, "it has to be clipped"
    optimiser = optax.chain(optax.clip_by_global_norm(0.01), optax.adam(2e-3))

    @jax.jit
    def updated(q, gradient):
        return optax.apply_updates(q, optimiser.update(gradient, optimiser.init(q))[0])

    expected = updated(q, gradient)
    assert_same_trees(jax.tree.map(lambda leaf: leaf[0], after.critic.critic.online), expected, rtol=1e-3, atol=1e-5)


def test_a_critic_alone_and_an_actor_alone_are_the_same_steps():
    """In CEM-TD3's loops the critic's target uses the actor itself, and follows after every update."""
    start, view, key = learner(), filled(), jax.random.key(3)
    after, _ = critic_updates(RULES, start.critic, start.actor.policy, 0.9, view, key, 0, 1)
    data, noise = drawn_batch(view, key)
    expected, _ = jax.jit(critic_step, static_argnums=0)(RULES, start.critic, start.actor.policy, 0.9, data, noise)
    assert_same_trees(after.critic.online, expected.critic.online)
    old, online = start.critic.critic.target, expected.critic.online
    assert_same_trees(after.critic.target, a_tenth_nearer(old, online))
    actor, total = actor_updates(
        RULES, begin_actor(RULES, start.actor.policy), after.critic.online, view, key, 0, 50
    )  # fmt: skip
    later = actor_loss(actor.policy, after.critic.online, data.observation)
    assert float(later) < float(actor_loss(start.actor.policy, after.critic.online, data.observation))
    assert np.isfinite(float(total))


def test_the_loops_compile_once_whatever_the_counts():
    before = learner_updates._cache_size()
    learners = stack([learner()])
    for start, stop in ((0, 3), (3, 4), (4, 40)):
        learners, _ = run(learners, start, stop, update_config=RULES._replace(tau=0.07))
    assert learner_updates._cache_size() == before + 1


@pytest.mark.parametrize("style", [LayerStyle("relu"), LayerStyle("tanh"), LayerStyle("leaky_relu"), LayerStyle("elu"),
                                   LayerStyle("tanh", "before"), LayerStyle("elu", "after")])  # fmt: skip
def test_a_network_is_the_same_in_numpy_and_in_jax(style):
    network = MLP.init(jax.random.key(0), (4, 9, 7, 2), style)
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    np.testing.assert_allclose(to_numpy(network)(x), jax.jit(MLP.__call__)(network, x), rtol=1e-5, atol=1e-6)
    gradient = jax.jit(jax.grad(lambda net: net(1000 * jnp.asarray(x)).sum()))(network)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_styles_are_what_their_names_say():
    x = np.linspace(-3, 3, 7).astype(np.float32)[None]
    scale = np.arange(1, 8, dtype=np.float32)
    one = MLP((np.eye(7, dtype=np.float32),) * 2, (np.zeros(7, np.float32),) * 2, (LayerNorm(scale, 0 * scale + 1),))

    def through(style):
        return MLP(one.weights, one.biases, one.norms, style)(x)[0]

    def normed(values):
        return scale * (values - values.mean()) / np.sqrt(values.var() + 1e-5) + 1

    elu = np.where(x[0] > 0, x[0], np.exp(x[0]) - 1)
    np.testing.assert_allclose(through(LayerStyle("leaky_relu")), np.where(x[0] > 0, x[0], 0.01 * x[0]), rtol=1e-6)
    np.testing.assert_allclose(through(LayerStyle("elu")), elu, rtol=1e-5)
    np.testing.assert_allclose(through(LayerStyle("elu", "after")), normed(elu), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(through(LayerStyle("tanh", "before")), np.tanh(normed(x[0])), rtol=1e-4, atol=1e-5)


def test_erls_critic_has_a_branch_for_the_state_and_one_for_the_action():
    q = init_branched_q(jax.random.key(0))
    pair = np.random.default_rng(0).normal(size=(5, OBS + ACT)).astype(np.float32)

    def elu(x):
        return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))

    def linear(network, x, layer=0):
        return x @ np.asarray(network.weights[layer]) + np.asarray(network.biases[layer])

    joined = np.concatenate([elu(linear(q.state, pair[:, :OBS])), elu(linear(q.action, pair[:, OBS:]))], 1)
    hidden = linear(q.joint, joined)
    hidden = (hidden - hidden.mean(1, keepdims=True)) / np.sqrt(hidden.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(
        jax.jit(BranchedQ.__call__)(q, pair), linear(q.joint, elu(hidden), 1), rtol=1e-4, atol=1e-5
    )
