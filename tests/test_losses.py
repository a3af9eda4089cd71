"""The losses and update steps against quadrature, plain NumPy and central differences, in float64."""

from functools import partial

import jax
import numpy as np
import pytest
from scipy import stats
from test_flows import cast, paper_forward, paper_log_density, paper_log_det

from arac.critics import QAndValue, TwinCritic, TwinQ, ValueCritic, init_critic, moved
from arac.diversity import mean_kl, pairwise_kl
from arac.losses import (
    Archived,
    actor_loss,
    attraction_repulsion_loss,
    critic_loss,
    flow_kl,
    gaussian_kl,
    policy_kl,
    q_loss,
    temperature_loss,
    twin_target,
    value_loss,
    value_target,
)
from arac.networks import MLP
from arac.policies import FlowPolicy, Gaussian, RadialFlow
from arac.replay import Batch
from arac.updates import ActorLearner, CriticLearner, Rules, actor_step, adam, critic_step

OBSERVATIONS, ACTIONS, BATCH = 3, 2, 8
DISCOUNT, TEMPERATURE = 0.9, 0.3
ADAM_EPSILON = 1e-8
RULES = Rules(discount=DISCOUNT, tau=0.1, learning_rate=0.01, batch_size=BATCH)


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def random_mlp(rng, sizes, *lead):
    shapes = [(sizes[i], sizes[i + 1]) for i in range(len(sizes) - 1)]
    weights = tuple(rng.normal(size=(*lead, *shape)) / np.sqrt(shape[0]) for shape in shapes)
    return MLP(weights, tuple(0.3 * rng.normal(size=(*lead, shape[1])) for shape in shapes))


def random_policy(seed, flows=2, sigma=None):
    """Clearly not a Gaussian: each flow contracts or expands around a centre of its own near the mean."""
    rng = np.random.default_rng(seed)
    network = random_mlp(rng, (OBSERVATIONS, 5, ACTIONS if sigma is not None else 2 * ACTIONS))
    if sigma is None:
        network.biases[-1][ACTIONS:] = np.log(0.6)
        network.weights[-1][:, ACTIONS:] *= 0.3
    chain = tuple(
        RadialFlow(0.7 * rng.normal(size=ACTIONS), rng.uniform(-1, 1.5, ()), rng.uniform(-1, 1.5, ()))
        for _ in range(flows)
    )
    return FlowPolicy(Gaussian(network, sigma), chain)


def random_critic(seed, kind):
    """Targets differ from the networks that they follow."""
    rng = np.random.default_rng(seed)
    q, target_q = (TwinQ(random_mlp(rng, (OBSERVATIONS + ACTIONS, 6, 5, 1), 2)) for _ in range(2))
    value, target = (random_mlp(rng, (OBSERVATIONS, 6, 5, 1)) for _ in range(2))
    return TwinCritic(q, target_q) if kind == "twin" else ValueCritic(QAndValue(q, value), target)


def random_batch(seed):
    rng = np.random.default_rng(seed)
    return Batch(
        observation=rng.normal(size=(BATCH, OBSERVATIONS)),
        action=rng.uniform(-1, 1, (BATCH, ACTIONS)),
        reward=rng.normal(size=BATCH),
        terminal=np.arange(BATCH) % 3 == 0,
        next_observation=rng.normal(size=(BATCH, OBSERVATIONS)),
    )


def random_noise(seed):
    return np.random.default_rng(seed).normal(size=(BATCH, ACTIONS))


def stack(members):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *members)


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def central_differences(loss, tree, step=1e-6):
    """The gradient of `loss(tree)`, one parameter at a time, as one flat array."""
    leaves, structure = jax.tree.flatten(tree)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def at(values):
        parts = [part.reshape(leaf.shape) for part, leaf in zip(np.split(values, ends), leaves, strict=True)]
        return loss(jax.tree.unflatten(structure, parts))

    start = flat(tree)
    return np.array([(at(start + d) - at(start - d)) / (2 * step) for d in step * np.eye(start.size)])


# The losses again, in plain NumPy.


def numpy_mlp(network, x):
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        x = np.maximum(x @ weight + bias, 0)
    return x @ network.weights[-1] + network.biases[-1]


def numpy_min_q(q, observation, action):
    return np.minimum(*numpy_twin_q(q, observation, action))


def numpy_twin_q(q, observation, action):
    pair = np.concatenate([observation, action], -1)
    members = (jax.tree.map(lambda leaf, i=i: leaf[i], q.networks) for i in range(2))
    return [numpy_mlp(network, pair)[:, 0] for network in members]


def numpy_base(policy, observation):
    output = numpy_mlp(policy.base.network, observation)
    if policy.base.sigma is not None:
        return output, np.full_like(output, policy.base.sigma)
    return output[..., :ACTIONS], np.exp(np.clip(output[..., ACTIONS:], -20, 2))


def numpy_before_tanh(policy, observation, noise):
    mean, std = numpy_base(policy, observation)
    x = mean + std * noise
    log_prob = stats.norm.logpdf(noise).sum(-1) - np.log(std).sum(-1)
    for flow in policy.flows:
        log_prob = log_prob - paper_log_det(flow, x)
        x = paper_forward(flow, x)
    return x, log_prob


def numpy_sample(policy, observation, noise):
    x, log_prob = numpy_before_tanh(policy, observation, noise)
    return np.tanh(x), log_prob + 2 * np.log(np.cosh(x)).sum(-1)


def numpy_soft_value(q, policy, observation, noise):
    action, log_prob = numpy_sample(policy, observation, noise)
    return numpy_min_q(q, observation, action) - TEMPERATURE * log_prob


def numpy_q_loss(q, target, batch):
    return sum(np.mean((value - target) ** 2) for value in numpy_twin_q(q, batch.observation, batch.action))


def numpy_target(bootstrap, batch):
    return np.array(
        [r if end else r + DISCOUNT * v for r, end, v in zip(batch.reward, batch.terminal, bootstrap, strict=True)]
    )


def numpy_actor_loss(policy, q, observation, noise):
    return -numpy_soft_value(q, policy, observation, noise).mean()


def numpy_kl(policy, other, observation, noise, base):
    x, log_pi = numpy_before_tanh(policy, observation, noise)
    other_base = numpy_base(policy if base == "shared" else other, observation)
    return np.mean(log_pi - paper_log_density(x, *other_base, other.flows))


# Divergences by quadrature.


def normal_points(count):
    """Standard normal noise spread evenly, so that a mean over it is nearly the integral."""
    uniform = stats.qmc.Sobol(ACTIONS, seed=0).random(count)
    return stats.norm.ppf(uniform)


def quadrature_kl(policy, other, observation, base="own"):
    """The integral of p log(p / q) before tanh, for one observation."""
    count, reach = 300, 6.0
    step = 2 * reach / count
    axis = step * (np.arange(count) + 0.5) - reach
    mean, std = numpy_base(policy, observation)
    x = mean + np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    log_p = paper_log_density(x, mean, std, policy.flows)
    assert np.exp(log_p).sum() * step**2 == pytest.approx(1, abs=1e-3), "the grid misses some of the density"
    log_q = paper_log_density(x, *((mean, std) if base == "shared" else numpy_base(other, observation)), other.flows)
    return (np.exp(log_p) * (log_p - log_q)).sum() * step**2


def observed(observations, count):
    """Each observation with `count` noises."""
    noise = normal_points(count)
    return np.repeat(observations, count, 0), np.tile(noise, (len(observations), 1))


@pytest.mark.parametrize("base", ["shared", "own"])
@pytest.mark.parametrize("sigma", [0.4, None])
def test_flow_kl_is_the_integral(base, sigma):
    policy, other = random_policy(1, 1, sigma), random_policy(2, 2, sigma)
    observations = np.random.default_rng(0).normal(size=(2, OBSERVATIONS))
    expected = np.mean([quadrature_kl(policy, other, o, base) for o in observations])
    stated = jax.jit(partial(flow_kl, base=base))(policy, other, *observed(observations, 2**13))
    assert expected > 0.1
    assert stated == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("base", ["shared", "own"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_flow_kl_of_a_policy_with_itself_is_zero(base, dtype, tolerance):
    policy, batch, noise = cast((random_policy(1, 4), random_batch(0).observation, random_noise(1)), dtype)
    assert abs(jax.jit(partial(flow_kl, base=base))(policy, policy, batch, noise)) < tolerance


@pytest.mark.parametrize("sigma", [0.4, None])
def test_gaussian_kl_is_the_closed_form_of_the_bases(sigma):
    policy, other, observation = random_policy(1, 2, sigma), random_policy(2, 2, sigma), random_batch(0).observation
    (mean, std), (other_mean, other_std) = numpy_base(policy, observation), numpy_base(other, observation)
    terms = np.log(other_std / std) + (std**2 + (mean - other_mean) ** 2) / (2 * other_std**2) - 0.5
    stated = jax.jit(gaussian_kl)(policy, other, observation)
    assert stated == pytest.approx(terms.sum(-1).mean(), rel=1e-12)


def test_policy_kl_is_that_of_policies_on_their_own_bases():
    policy, other = random_policy(1), random_policy(2)
    observation, noise = random_batch(0).observation, random_noise(0)
    expected = numpy_kl(policy, other, observation, noise, "own")
    assert jax.jit(policy_kl)(policy, other, observation, noise) == pytest.approx(expected, rel=1e-10)


@partial(jax.jit, static_argnames="base")
def attraction_repulsion(policy, archived, observation, noise, kl_clip=None, *, base="shared"):
    """The loss, the divergences, and the gradients by the policy and by the archived ones."""

    def loss(policy, policies):
        return attraction_repulsion_loss(
            policy, Archived(policies, archived.weights), observation, noise, base=base, kl_clip=kl_clip
        )

    (value, kl), gradients = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(policy, archived.policies)
    return value, kl, *gradients


def archive_problem(weights):
    policies = stack([random_policy(seed) for seed in range(10, 10 + len(weights))])
    return random_policy(1), Archived(policies, np.array(weights)), random_batch(0).observation, random_noise(0)


def member(policies, i):
    return jax.tree.map(lambda leaf: leaf[i], policies)


@pytest.mark.parametrize("base", ["shared", "own"])
def test_attraction_repulsion_is_minus_the_weighted_divergences_and_only_flows_feel_it(base):
    weights = [0.7, -0.4, 0.2]
    policy, archived, observation, noise = archive_problem(weights)
    value, kl, gradient, by_archived = attraction_repulsion(policy, archived, observation, noise, base=base)

    def reference(flows):
        others = [member(archived.policies, i) for i in range(3)]
        moving = FlowPolicy(policy.base, flows)
        divergences = [numpy_kl(moving, other, observation, noise, base) for other in others]
        return -np.dot(weights, divergences), divergences

    expected, divergences = reference(policy.flows)
    assert value == pytest.approx(expected, rel=1e-10)
    np.testing.assert_allclose(kl, divergences, rtol=1e-10)
    assert not flat(gradient.base).any()
    assert not flat(by_archived).any()
    assert np.abs(flat(gradient.flows)).min() > 0
    differences = central_differences(lambda flows: reference(flows)[0], policy.flows, 1e-5)
    np.testing.assert_allclose(flat(gradient.flows), differences, rtol=1e-6, atol=1e-8)


def test_gaussian_attraction_repulsion_is_felt_by_the_base_and_not_by_the_flows():
    policy, archived, observation, noise = archive_problem([0.7, -0.4, 0.2])
    value, kl, gradient, by_archived = attraction_repulsion(policy, archived, observation, noise, base="gaussian")

    def reference(base):
        plain = FlowPolicy(base, ())
        (mean, std), result = numpy_base(plain, observation), []
        for i in range(3):
            other_mean, other_std = numpy_base(member(archived.policies, i), observation)
            terms = np.log(other_std / std) + (std**2 + (mean - other_mean) ** 2) / (2 * other_std**2) - 0.5
            result.append(terms.sum(-1).mean())
        return -np.dot(archived.weights, result)

    assert value == pytest.approx(reference(policy.base), rel=1e-10)
    assert value == pytest.approx(-np.dot(archived.weights, kl), rel=1e-10)
    assert not flat(gradient.flows).any()
    assert not flat(by_archived).any()
    differences = central_differences(reference, policy.base)
    assert np.abs(differences).max() > 0.1
    np.testing.assert_allclose(flat(gradient.base), differences, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("base", ["shared", "own"])
def test_attraction_brings_densities_together_and_repulsion_apart(base):
    policy, other = random_policy(1), random_policy(4)
    observation, noise = observed(random_batch(0).observation[:1], 128)

    @jax.jit
    def descended(policy, weight, rate):
        archived = Archived(jax.tree.map(lambda leaf: leaf[None], other), weight[None])

        def loss(policy):
            return attraction_repulsion_loss(policy, archived, observation, noise, base=base, kl_clip=None)[0]

        def step(_, policy):
            return jax.tree.map(lambda leaf, slope: leaf - rate * slope, policy, jax.grad(loss)(policy))

        return jax.lax.fori_loop(0, 30, step, policy)

    # Repulsion accelerates without end, so it gets steps that keep the density on the grid.
    start, attracted, repelled = (
        quadrature_kl(jax.tree.map(np.asarray, moving), other, observation[0], base)
        for moving in (policy, descended(policy, -1.0, 0.1), descended(policy, 1.0, 0.01))
    )
    assert attracted < 0.5 * start
    assert repelled > 1.2 * start


def test_kl_clip_stops_repulsion_beyond_it_and_never_attraction():
    policy, archived, observation, noise = archive_problem([0.5, 0.5, -0.5])
    _, kl, *_ = attraction_repulsion(policy, archived, observation, noise)
    order = np.argsort(kl)[[0, 2, 1]]
    archived = Archived(jax.tree.map(lambda leaf: leaf[order], archived.policies), archived.weights)
    near, far, attracted = (float(value) for value in kl[order])
    clip = (near + attracted) / 2
    assert near < clip < attracted < far

    value, clipped_kl, gradient, _ = attraction_repulsion(policy, archived, observation, noise, clip)
    without_far = Archived(archived.policies, archived.weights * [1, 0, 1])
    _, _, expected, _ = attraction_repulsion(policy, without_far, observation, noise)
    assert value == pytest.approx(-0.5 * near - 0.5 * clip + 0.5 * attracted, rel=1e-10)
    np.testing.assert_allclose(clipped_kl, kl[order], rtol=1e-12)
    np.testing.assert_allclose(flat(gradient), flat(expected), rtol=1e-9, atol=1e-12)
    _, _, unclipped, _ = attraction_repulsion(policy, archived, observation, noise)
    assert np.abs(flat(gradient) - flat(unclipped)).max() > 1e-3


def test_every_repelled_policy_beyond_the_clip_leaves_no_gradient():
    policy, archived, observation, noise = archive_problem([0.5, 0.5, 0.5])
    value, kl, gradient, _ = attraction_repulsion(policy, archived, observation, noise, 1e-3)
    assert kl.min() > 1e-3
    assert value == pytest.approx(-1.5e-3)
    assert not flat(gradient).any()


@pytest.mark.parametrize("base", ["shared", "own", "gaussian"])
def test_empty_slots_contribute_nothing(base):
    policy, archived, observation, noise = archive_problem([0.0, -0.8, 0.0])
    value, kl, gradient, _ = attraction_repulsion(policy, archived, observation, noise, base=base)
    assert value == pytest.approx(0.8 * float(kl[1]), rel=1e-12)
    filler = random_policy(99)
    refilled = Archived(stack([filler, member(archived.policies, 1), filler]), archived.weights)
    value_refilled, _, gradient_refilled, _ = attraction_repulsion(policy, refilled, observation, noise, base=base)
    assert value_refilled == value
    np.testing.assert_array_equal(flat(gradient_refilled), flat(gradient))
    empty = Archived(archived.policies, np.zeros(3))
    value, _, gradient, _ = attraction_repulsion(policy, empty, observation, noise, base=base)
    assert value == 0
    assert not flat(gradient).any()


def test_the_loss_is_linear_in_lambda():
    policy, archived, observation, noise = archive_problem([0.5, -0.3, 0.1])
    value, kl, gradient, _ = attraction_repulsion(policy, archived, observation, noise)
    scaled = Archived(archived.policies, 2.5 * archived.weights)
    value_scaled, kl_scaled, gradient_scaled, _ = attraction_repulsion(policy, scaled, observation, noise)
    assert value_scaled == pytest.approx(2.5 * float(value), rel=1e-12)
    np.testing.assert_allclose(flat(gradient_scaled), 2.5 * flat(gradient), rtol=1e-9)
    np.testing.assert_array_equal(kl_scaled, kl)


def test_q_loss_is_both_squared_errors_with_the_target_held_still():
    q, batch = random_critic(0, "twin").online, random_batch(0)
    target = np.random.default_rng(1).normal(size=BATCH)
    value, (gradient, by_target) = jax.jit(jax.value_and_grad(q_loss, argnums=(0, 1)))(q, target, batch)
    assert value == pytest.approx(numpy_q_loss(q, target, batch), rel=1e-12)
    differences = central_differences(lambda q: numpy_q_loss(q, target, batch), q)
    np.testing.assert_allclose(flat(gradient), differences, rtol=1e-6, atol=1e-8)
    assert not by_target.any()


def test_value_target_bootstraps_a_truncated_episode_and_not_a_terminal_state():
    target, batch = random_critic(0, "value").target, random_batch(0)
    stated = jax.jit(value_target, static_argnums=2)(target, batch, DISCOUNT)
    bootstrap = numpy_mlp(target, batch.next_observation)[:, 0]
    np.testing.assert_allclose(stated, numpy_target(bootstrap, batch), rtol=1e-12)
    np.testing.assert_array_equal(stated[batch.terminal], batch.reward[batch.terminal])
    assert np.abs(stated - batch.reward)[~batch.terminal].min() > 1e-3


def test_twin_target_is_the_soft_value_of_the_next_state_and_terminal_states_have_none():
    target, policy, batch, noise = random_critic(0, "twin").target, random_policy(1), random_batch(0), random_noise(2)
    stated = jax.jit(twin_target, static_argnums=5)(target, policy, TEMPERATURE, batch, noise, DISCOUNT)
    bootstrap = numpy_soft_value(target, policy, batch.next_observation, noise)
    np.testing.assert_allclose(stated, numpy_target(bootstrap, batch), rtol=1e-10)
    np.testing.assert_array_equal(stated[batch.terminal], batch.reward[batch.terminal])


def test_value_loss_moves_only_the_value_towards_the_soft_value():
    online, policy, batch, noise = (
        random_critic(0, "value").online,
        random_policy(1),
        random_batch(0),
        random_noise(2),
    )
    soft_value = numpy_soft_value(online.q, policy, batch.observation, noise)

    def reference(value):
        return 0.5 * np.mean((numpy_mlp(value, batch.observation)[:, 0] - soft_value) ** 2)

    stated, (gradient, by_policy, by_temperature) = jax.jit(jax.value_and_grad(value_loss, argnums=(0, 1, 2)))(
        online, policy, TEMPERATURE, batch, noise
    )
    assert stated == pytest.approx(reference(online.value), rel=1e-10)
    differences = central_differences(reference, online.value)
    np.testing.assert_allclose(flat(gradient.value), differences, rtol=1e-6, atol=1e-8)
    assert not flat(gradient.q).any()
    assert not flat(by_policy).any()
    assert by_temperature == 0


def test_actor_loss_is_temperature_log_prob_minus_the_smaller_q():
    policy, q, noise = random_policy(1), random_critic(0, "twin").online, random_noise(2)
    observation = random_batch(0).observation
    (stated, log_prob), gradient = jax.jit(jax.value_and_grad(actor_loss, has_aux=True))(
        policy, q, TEMPERATURE, observation, noise
    )
    action, expected_log_prob = numpy_sample(policy, observation, noise)
    expected = TEMPERATURE * expected_log_prob - np.min(numpy_twin_q(q, observation, action), 0)
    assert stated == pytest.approx(expected.mean(), rel=1e-10)
    assert log_prob == pytest.approx(expected_log_prob.mean(), rel=1e-10)
    differences = central_differences(lambda policy: numpy_actor_loss(policy, q, observation, noise), policy)
    np.testing.assert_allclose(flat(gradient), differences, rtol=1e-6, atol=1e-8)
    assert np.abs(flat(gradient.flows)).min() > 0


@pytest.mark.parametrize(("entropy", "rises"), [(0.5, True), (3.0, False)])
def test_temperature_rises_exactly_while_the_entropy_is_below_its_target(entropy, rises):
    log_temperature, target_entropy = -0.7, 2.0
    value, (slope, by_log_prob) = jax.value_and_grad(temperature_loss, argnums=(0, 1))(
        log_temperature, -entropy, target_entropy
    )
    assert value == pytest.approx(0.7 * (target_entropy - entropy))
    assert slope == pytest.approx(entropy - target_entropy)
    assert (-slope > 0) == rises
    assert by_log_prob == 0


def numpy_critic_loss(online, critic, policy, batch, noise):
    """The loss as a function of `online`, with everything that is bootstrapped or sampled taken from `critic`."""
    if isinstance(critic, TwinCritic):
        bootstrap = numpy_soft_value(critic.target, policy, batch.next_observation, noise)
        return numpy_q_loss(online, numpy_target(bootstrap, batch), batch)
    bootstrap = numpy_mlp(critic.target, batch.next_observation)[:, 0]
    soft_value = numpy_soft_value(critic.online.q, policy, batch.observation, noise)
    value_error = numpy_mlp(online.value, batch.observation)[:, 0] - soft_value
    return numpy_q_loss(online.q, numpy_target(bootstrap, batch), batch) + 0.5 * np.mean(value_error**2)


@pytest.mark.parametrize("kind", ["value", "twin"])
def test_critic_loss_gives_no_gradient_to_targets_or_policy(kind):
    critic, policy, batch, noise = random_critic(0, kind), random_policy(1), random_batch(0), random_noise(2)
    others = jax.jit(jax.grad(critic_loss, argnums=(1, 2, 3)), static_argnums=6)(
        critic.online, critic, policy, TEMPERATURE, batch, noise, DISCOUNT
    )
    assert not flat(others).any()


def adam_first_step(parameters, gradient):
    """By hand: after bias correction the first step is the gradient over its own size."""
    # Central differences cannot tell a gradient near epsilon from 0, so none may lie there.
    assert ((gradient == 0) | (np.abs(gradient) > 1e-6)).all()
    return parameters - RULES.learning_rate * gradient / (np.abs(gradient) + ADAM_EPSILON)


jitted_critic_step = jax.jit(critic_step, static_argnums=0)


@pytest.mark.parametrize("kind", ["value", "twin"])
def test_critic_step_is_one_step_of_adam_and_the_target_follows(kind):
    critic, policy, batch, noise = random_critic(3, kind), random_policy(1), random_batch(0), random_noise(2)
    learner = CriticLearner(critic, adam(RULES).init(critic.online))
    after, loss = jitted_critic_step(RULES, learner, policy, TEMPERATURE, batch, noise)

    reference = partial(numpy_critic_loss, critic=critic, policy=policy, batch=batch, noise=noise)
    assert loss == pytest.approx(reference(critic.online), rel=1e-10)
    gradient = central_differences(reference, critic.online)
    assert (gradient != 0).mean() > 0.5
    expected = adam_first_step(flat(critic.online), gradient)
    np.testing.assert_allclose(flat(after.critic.online), expected, rtol=0, atol=1e-7)
    followed = after.critic.online if kind == "twin" else after.critic.online.value
    np.testing.assert_allclose(flat(after.critic.target), 0.9 * flat(critic.target) + 0.1 * flat(followed), rtol=1e-12)


@pytest.mark.parametrize("weights", [None, [0.7, 0.3, -0.4]])
def test_actor_step_is_one_step_of_adam_on_the_actor_and_archive_losses(weights):
    policy, archived, observation, noise = archive_problem(weights or [0.0])
    others = [member(archived.policies, i) for i in range(len(archived.weights))]

    def divergences(flows):
        moving = FlowPolicy(policy.base, flows)
        return np.array([numpy_kl(moving, other, observation, noise, "own") for other in others])

    start = divergences(policy.flows)
    clip = start[:2].mean()
    rules = RULES._replace(ar_base="own", kl_clip=float(clip))
    critic = random_critic(0, "value")
    after, metrics = jax.jit(actor_step, static_argnums=0)(
        rules,
        ActorLearner(policy, adam(rules).init(policy)),
        critic,
        TEMPERATURE,
        archived if weights else None,
        observation,
        noise,
    )

    def reference(moving):
        alone = numpy_actor_loss(moving, critic.q, observation, noise)
        if weights is None:
            return alone
        kl = divergences(moving.flows)
        return alone - np.dot(weights, [min(kl[0], clip), min(kl[1], clip), kl[2]])

    expected = adam_first_step(flat(policy), central_differences(reference, policy, 1e-5))
    np.testing.assert_allclose(flat(after.policy), expected, rtol=0, atol=1e-7)
    assert metrics.loss == pytest.approx(numpy_actor_loss(policy, critic.q, observation, noise), rel=1e-10)
    assert metrics.log_prob == pytest.approx(numpy_sample(policy, observation, noise)[1].mean(), rel=1e-10)
    assert metrics.archive_kl == pytest.approx(start.mean() if weights else 0.0, rel=1e-10)


def test_second_critic_step_keeps_the_moments_of_the_first():
    critic, policy, batch, noise = random_critic(3, "twin"), random_policy(1), random_batch(0), random_noise(2)
    learner = CriticLearner(critic, adam(RULES).init(critic.online))
    first, _ = jitted_critic_step(RULES, learner, policy, TEMPERATURE, batch, noise)
    second, _ = jitted_critic_step(RULES, first, policy, TEMPERATURE, batch, noise)
    middle = jax.tree.map(np.asarray, first.critic)
    gradients = [
        central_differences(partial(numpy_critic_loss, critic=now, policy=policy, batch=batch, noise=noise), now.online)
        for now in (critic, middle)
    ]
    mean = (0.9 * 0.1 * gradients[0] + 0.1 * gradients[1]) / (1 - 0.9**2)
    square = (0.999 * 0.001 * gradients[0] ** 2 + 0.001 * gradients[1] ** 2) / (1 - 0.999**2)
    expected = flat(middle.online) - RULES.learning_rate * mean / (np.sqrt(square) + ADAM_EPSILON)
    np.testing.assert_allclose(flat(second.critic.online), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("tau", [0.0, 0.005, 0.3, 1.0])
def test_moved_goes_tau_of_the_way(tau):
    target, online = (random_critic(seed, "value").target for seed in (0, 1))
    after = moved(target, online, tau)
    np.testing.assert_allclose(flat(after), (1 - tau) * flat(target) + tau * flat(online), rtol=1e-12, atol=1e-15)


def test_critics_start_with_different_twins_and_targets_equal_to_what_they_follow():
    value, twin = jax.jit(
        lambda key: [init_critic(key, kind, OBSERVATIONS, ACTIONS, (7, 4)) for kind in ("value", "twin")]
    )(jax.random.key(0))
    np.testing.assert_array_equal(flat(value.target), flat(value.online.value))
    np.testing.assert_array_equal(flat(twin.target), flat(twin.online))
    for critic in (value, twin):
        first, second = critic.q.networks.weights[0]
        assert first.shape == (OBSERVATIONS + ACTIONS, 7)
        assert np.abs(first - second).min() > 0


def test_pairwise_kl_is_the_integral_of_row_against_column_and_zero_on_the_diagonal():
    members = [random_policy(seed, 1) for seed in (1, 2)]
    observations = np.random.default_rng(0).normal(size=(2, OBSERVATIONS))
    inputs = cast((stack(members), *observed(observations, 2**13)), np.float32)
    matrix = np.asarray(pairwise_kl(*inputs))
    forth, back = (np.mean([quadrature_kl(p, q, o) for o in observations]) for p, q in (members, members[::-1]))
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(np.diag(matrix), 0, atol=1e-6)
    np.testing.assert_allclose([matrix[0, 1], matrix[1, 0]], [forth, back], rtol=2e-3)
    assert abs(forth - back) > 0.05


def test_mean_kl_leaves_the_diagonal_out():
    matrix = np.array([[100.0, 1, 2], [3, 100, 4], [5, 6, 100]])
    assert mean_kl(matrix) == 3.5
    assert mean_kl(matrix[:1, :1]) is None
