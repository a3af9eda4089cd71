"""The losses and update steps against quadrature, plain NumPy and central differences, in float64."""

from functools import partial

import jax
import numpy as np
import pytest
from paper_flows import cast, paper_forward, paper_log_density, paper_log_det
from scipy import stats

from arac.learning.forces import COEFFICIENT_STEP, ForceConfig, Forces
from arac.learning.losses import (
    TargetPolicies,
    actor_loss,
    attraction_repulsion_loss,
    critic_loss,
    gaussian_kl,
    q_loss,
    sampled_kl,
    temperature_loss,
    twin_target,
    value_loss,
    value_target,
)
from arac.learning.sac_updates import (
    ActorLearner,
    CriticLearner,
    Temperatures,
    UpdateConfig,
    actor_step,
    adam,
    critic_step,
    population_step,
)
from arac.models.critics import QAndValue, TwinCritic, TwinQ, ValueCritic, init_critic, soft_update
from arac.models.mlp import MLP
from arac.models.policies import FlowPolicy, Gaussian, RadialFlow
from arac.population.diversity import mean_kl, pairwise_kl
from arac.replay.buffer import Batch

OBSERVATIONS, ACTIONS, BATCH = 3, 2, 8
DISCOUNT, TEMPERATURE = 0.9, 0.3
ADAM_EPSILON = 1e-8
RULES = UpdateConfig(discount=DISCOUNT, tau=0.1, learning_rate=0.01, batch_size=BATCH)


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def random_mlp(rng, sizes, *lead):
    shapes = [(sizes[i], sizes[i + 1]) for i in range(len(sizes) - 1)]
    weights = tuple(rng.normal(size=(*lead, *shape)) / np.sqrt(shape[0]) for shape in shapes)
    return MLP(weights, tuple(0.3 * rng.normal(size=(*lead, shape[1])) for shape in shapes))


def random_policy(seed, flows=2, sigma=None):
    """Return a policy far from a Gaussian, each of whose flows has another centre near the mean."""
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
    """Return critics whose targets differ from the networks that they follow."""
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
    """Return the gradient of `loss(tree)`, one parameter at a time, as one flat array."""
    leaves, structure = jax.tree.flatten(tree)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def at(values):
        parts = [part.reshape(leaf.shape) for part, leaf in zip(np.split(values, ends), leaves, strict=True)]
        return loss(jax.tree.unflatten(structure, parts))

    start = flat(tree)
    return np.array([(at(start + d) - at(start - d)) / (2 * step) for d in step * np.eye(start.size)])


# The losses in plain NumPy.


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


def numpy_soft_value(q, policy, observation, noise, temperature=TEMPERATURE):
    action, log_prob = numpy_sample(policy, observation, noise)
    return numpy_min_q(q, observation, action) - temperature * log_prob


def numpy_q_loss(q, target, batch):
    return sum(np.mean((value - target) ** 2) for value in numpy_twin_q(q, batch.observation, batch.action))


def numpy_target(bootstrap, batch):
    return np.array(
        [r if end else r + DISCOUNT * v for r, end, v in zip(batch.reward, batch.terminal, bootstrap, strict=True)]
    )


def numpy_actor_loss(policy, q, observation, noise, temperature=TEMPERATURE):
    return -numpy_soft_value(q, policy, observation, noise, temperature).mean()


def numpy_kl(policy, other, observation, noise, base):
    x, log_pi = numpy_before_tanh(policy, observation, noise)
    other_base = numpy_base(policy if base == "shared" else other, observation)
    return np.mean(log_pi - paper_log_density(x, *other_base, other.flows))


# Divergences by quadrature.


def normal_points(count):
    """Return evenly spread standard normal noise, so that a mean over it is nearly the integral."""
    uniform = stats.qmc.Sobol(ACTIONS, seed=0).random(count)
    return stats.norm.ppf(uniform)


def quadrature_kl(policy, other, observation, base="own"):
    """Return the integral of p log(p / q) before tanh, for one observation."""
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
    """Return each observation with `count` noise samples."""
    noise = normal_points(count)
    return np.repeat(observations, count, 0), np.tile(noise, (len(observations), 1))


@pytest.mark.parametrize("base", ["shared", "own"])
@pytest.mark.parametrize("sigma", [0.4, None])
def test_sampled_kl_is_the_integral(base, sigma):
    policy, other = random_policy(1, 1, sigma), random_policy(2, 2, sigma)
    observations = np.random.default_rng(0).normal(size=(2, OBSERVATIONS))
    expected = np.mean([quadrature_kl(policy, other, o, base) for o in observations])
    stated = jax.jit(partial(sampled_kl, base=base))(policy, other, *observed(observations, 2**13))
    assert expected > 0.1
    assert stated == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("base", ["shared", "own"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_sampled_kl_of_a_policy_with_itself_is_zero(base, dtype, tolerance):
    policy, batch, noise = cast((random_policy(1, 4), random_batch(0).observation, random_noise(1)), dtype)
    assert abs(jax.jit(partial(sampled_kl, base=base))(policy, policy, batch, noise)) < tolerance


@pytest.mark.parametrize("sigma", [0.4, None])
def test_gaussian_kl_is_the_closed_form_of_the_bases(sigma):
    policy, other, observation = random_policy(1, 2, sigma), random_policy(2, 2, sigma), random_batch(0).observation
    (mean, std), (other_mean, other_std) = numpy_base(policy, observation), numpy_base(other, observation)
    terms = np.log(other_std / std) + (std**2 + (mean - other_mean) ** 2) / (2 * other_std**2) - 0.5
    stated = jax.jit(gaussian_kl)(policy, other, observation)
    assert stated == pytest.approx(terms.sum(-1).mean(), rel=1e-12)


def test_sampled_kl_is_that_of_policies_on_their_own_bases():
    policy, other = random_policy(1), random_policy(2)
    observation, noise = random_batch(0).observation, random_noise(0)
    expected = numpy_kl(policy, other, observation, noise, "own")
    assert jax.jit(sampled_kl)(policy, other, observation, noise) == pytest.approx(expected, rel=1e-10)


@partial(jax.jit, static_argnames=("base", "divergence"))
def attraction_repulsion(policy, targets, observation, noise, kl_clip=None, *, base="shared", divergence="kl"):
    """Return the loss, the distances, and the gradients by the policy and by the others."""

    def loss(policy, policies):
        return attraction_repulsion_loss(
            policy,
            TargetPolicies(policies, targets.weights),
            observation,
            noise,
            divergence=divergence,
            base=base,
            kl_clip=kl_clip,
        )

    (value, distances), gradients = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(policy, targets.policies)
    return value, distances, *gradients


def archive_problem(weights):
    policies = stack([random_policy(seed) for seed in range(10, 10 + len(weights))])
    return random_policy(1), TargetPolicies(policies, np.array(weights)), random_batch(0).observation, random_noise(0)


def member(policies, i):
    return jax.tree.map(lambda leaf: leaf[i], policies)


@pytest.mark.parametrize("base", ["shared", "own"])
def test_attraction_repulsion_is_minus_the_weighted_divergences_and_only_flows_feel_it(base):
    weights = [0.7, -0.4, 0.2]
    policy, archived, observation, noise = archive_problem(weights)
    value, (kl, _), gradient, by_archived = attraction_repulsion(policy, archived, observation, noise, base=base)

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
    value, (kl, _), gradient, by_archived = attraction_repulsion(policy, archived, observation, noise, base="gaussian")

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
        archived = TargetPolicies(jax.tree.map(lambda leaf: leaf[None], other), weight[None])

        def loss(policy):
            return attraction_repulsion_loss(
                policy, archived, observation, noise, divergence="kl", base=base, kl_clip=None
            )[0]

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


def test_kl_clip_stops_repulsion_and_attraction_beyond_it_alike():
    policy, archived, observation, noise = archive_problem([0.5, 0.5, -0.5, -0.5])
    _, (kl, _), *_ = attraction_repulsion(policy, archived, observation, noise)
    near_one, near_two, far_one, far_two = np.argsort(kl)
    order = np.array([near_one, far_one, near_two, far_two])
    archived = TargetPolicies(jax.tree.map(lambda leaf: leaf[order], archived.policies), archived.weights)
    kl = np.asarray(kl)[order]
    clip = (kl[2] + kl[1]) / 2
    assert max(kl[0], kl[2]) < clip < min(kl[1], kl[3])

    value, distances, gradient, _ = attraction_repulsion(policy, archived, observation, noise, clip)
    near = TargetPolicies(archived.policies, archived.weights * [1, 0, 1, 0])
    _, _, expected, _ = attraction_repulsion(policy, near, observation, noise)
    assert value == pytest.approx(-0.5 * (kl[0] - kl[2]), rel=1e-9)
    np.testing.assert_allclose(distances.kl, kl, rtol=1e-12)
    np.testing.assert_array_equal(distances.pull, [1, 0, 1, 0])
    np.testing.assert_allclose(flat(gradient), flat(expected), rtol=1e-9, atol=1e-12)
    _, _, unclipped, _ = attraction_repulsion(policy, archived, observation, noise)
    assert np.abs(flat(gradient) - flat(unclipped)).max() > 1e-3


def test_every_policy_beyond_the_clip_leaves_no_gradient():
    policy, archived, observation, noise = archive_problem([0.5, 0.5, -0.5])
    value, (kl, _), gradient, _ = attraction_repulsion(policy, archived, observation, noise, 1e-3)
    assert kl.min() > 1e-3
    assert value == pytest.approx(-0.5e-3)
    assert not flat(gradient).any()


# The bounded divergence: KL(pi || (pi + pi') / 2) with log pi held still.


def numpy_ratio(policy, other, observation, noise, base, start=None):
    """Return log pi(x) - log pi'(x) for each state, with log pi that of `start`, if it is given."""
    x, log_pi = numpy_before_tanh(policy, observation, noise)
    if start is not None:
        _, log_pi = numpy_before_tanh(start, observation, noise)
    other_base = numpy_base(policy if base == "shared" else other, observation)
    return log_pi - paper_log_density(x, *other_base, other.flows)


@pytest.mark.parametrize("base", ["whole", "own", "shared"])
def test_the_bounded_loss_and_its_gradient_agree_with_numpy_with_log_pi_held_still(base):
    weights = [0.7, -0.4, 0.2]
    policy, targets, observation, noise = archive_problem(weights)
    value, distances, gradient, by_others = attraction_repulsion(
        policy, targets, observation, noise, base=base, divergence="bounded"
    )
    others = [member(targets.policies, i) for i in range(3)]

    def reference(moving):
        ratios = [numpy_ratio(moving, other, observation, noise, base, policy) for other in others]
        return -np.dot(weights, [np.mean(np.log(2) - np.log1p(np.exp(-ratio))) for ratio in ratios])

    ratios = np.array([numpy_ratio(policy, other, observation, noise, base) for other in others])
    assert value == pytest.approx(reference(policy), rel=1e-10)
    np.testing.assert_allclose(distances.kl, ratios.mean(1), rtol=1e-10)
    np.testing.assert_allclose(distances.pull, np.minimum(2 / (1 + np.exp(ratios)), 1).mean(1), rtol=1e-10)
    assert not flat(by_others).any()
    if base == "whole":
        expected = central_differences(reference, policy, 1e-5)
        np.testing.assert_allclose(flat(gradient), expected, rtol=1e-5, atol=1e-8)
        assert np.abs(flat(gradient.base)).max() > 1e-2
    else:
        expected = central_differences(lambda flows: reference(FlowPolicy(policy.base, flows)), policy.flows, 1e-5)
        np.testing.assert_allclose(flat(gradient.flows), expected, rtol=1e-5, atol=1e-8)
        assert not flat(gradient.base).any()


def test_the_bounded_divergence_is_that_from_the_mixture_of_both():
    policy, other = random_policy(1, 1, 0.4), random_policy(2, 2, 0.4)
    observation = np.random.default_rng(0).normal(size=OBSERVATIONS)
    count, reach = 300, 6.0
    step = 2 * reach / count
    axis = step * (np.arange(count) + 0.5) - reach
    mean, std = numpy_base(policy, observation)
    x = mean + np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    log_p = paper_log_density(x, mean, std, policy.flows)
    log_q = paper_log_density(x, *numpy_base(other, observation), other.flows)
    expected = (np.exp(log_p) * (log_p - np.logaddexp(log_p, log_q) + np.log(2))).sum() * step**2
    targets = TargetPolicies(jax.tree.map(lambda leaf: leaf[None], other), np.ones(1))
    value, *_ = attraction_repulsion(
        policy, targets, *observed(observation[None], 2**13), base="own", divergence="bounded"
    )
    assert -value == pytest.approx(expected, rel=2e-3)
    assert 0.05 < expected < np.log(2)


def moved_base(policy, distance):
    biases = (*policy.base.network.biases[:-1], policy.base.network.biases[-1] + distance)
    return FlowPolicy(Gaussian(MLP(policy.base.network.weights, biases), policy.base.sigma), policy.flows)


@pytest.mark.parametrize("distance", [0.0, 3.0, 30.0, 300.0])
def test_the_bounded_force_is_largest_at_contact_and_fades_with_the_distance(distance):
    policy, observation, noise = random_policy(1, 2, 0.4), random_batch(0).observation, random_noise(0)
    others = jax.tree.map(lambda leaf: leaf[None], moved_base(policy, distance))
    value, distances, gradient, _ = attraction_repulsion(
        policy, TargetPolicies(others, np.ones(1)), observation, noise, base="whole", divergence="bounded"
    )
    assert -value <= np.log(2)
    if distance == 0:
        assert value == pytest.approx(0, abs=1e-12)
        assert distances.pull == pytest.approx(1)
        assert np.abs(flat(gradient)).max() > 0.1
    if distance >= 30:
        assert -value == pytest.approx(np.log(2))
        assert distances.pull == pytest.approx(0, abs=1e-12)
        assert np.abs(flat(gradient)).max() < 1e-9


@pytest.mark.parametrize(("divergence", "clip"), [("bounded", None), ("kl", 1.0), ("kl", None)])
@pytest.mark.parametrize("base", ["whole", "own", "shared", "gaussian"])
def test_attraction_is_repulsion_with_the_other_sign(base, divergence, clip):
    policy, targets, observation, noise = archive_problem([0.5, 0.3, 0.2])
    pulled = TargetPolicies(targets.policies, -targets.weights)
    options = {"base": base, "divergence": divergence}
    value, _, gradient, _ = attraction_repulsion(policy, targets, observation, noise, clip, **options)
    opposite, _, attracted, _ = attraction_repulsion(policy, pulled, observation, noise, clip, **options)
    assert value == -opposite
    np.testing.assert_array_equal(flat(gradient), -flat(attracted))


def test_the_bounded_loss_has_no_force_on_the_entropy_where_the_other_policy_is_flat():
    """If log pi' does not depend on x, KL contracts the policy and the bounded loss does not."""
    policy, observation, noise = random_policy(1, 2, 0.4), random_batch(0).observation, random_noise(0)
    wide = FlowPolicy(Gaussian(policy.base.network, 1e9), ())
    targets = TargetPolicies(jax.tree.map(lambda leaf: leaf[None], wide), np.ones(1))
    _, _, contracting, _ = attraction_repulsion(policy, targets, observation, noise, base="own")
    _, _, neutral, _ = attraction_repulsion(policy, targets, observation, noise, base="own", divergence="bounded")
    assert np.abs(flat(contracting)).max() > 0.1
    assert np.abs(flat(neutral)).max() < 1e-9


@pytest.mark.parametrize("base", ["shared", "own", "gaussian"])
def test_empty_slots_contribute_nothing(base):
    policy, archived, observation, noise = archive_problem([0.0, -0.8, 0.0])
    value, (kl, _), gradient, _ = attraction_repulsion(policy, archived, observation, noise, base=base)
    assert value == pytest.approx(0.8 * float(kl[1]), rel=1e-12)
    filler = random_policy(99)
    refilled = TargetPolicies(stack([filler, member(archived.policies, 1), filler]), archived.weights)
    value_refilled, _, gradient_refilled, _ = attraction_repulsion(policy, refilled, observation, noise, base=base)
    assert value_refilled == value
    np.testing.assert_array_equal(flat(gradient_refilled), flat(gradient))
    empty = TargetPolicies(archived.policies, np.zeros(3))
    value, _, gradient, _ = attraction_repulsion(policy, empty, observation, noise, base=base)
    assert value == 0
    assert not flat(gradient).any()


def test_the_loss_is_linear_in_the_weights():
    policy, archived, observation, noise = archive_problem([0.5, -0.3, 0.1])
    value, (kl, _), gradient, _ = attraction_repulsion(policy, archived, observation, noise)
    scaled = TargetPolicies(archived.policies, 2.5 * archived.weights)
    value_scaled, (kl_scaled, _), gradient_scaled, _ = attraction_repulsion(policy, scaled, observation, noise)
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
    """Return the loss as a function of `online`, with targets and samples from `critic`."""
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
    """After bias correction, Adam's first step is the gradient divided by its size."""
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


def test_actor_step_is_one_step_of_adam_on_the_actor_loss():
    policy, observation, noise = random_policy(1), random_batch(0).observation, random_noise(0)
    critic = random_critic(0, "value")
    learner = ActorLearner(policy, adam(RULES).init(policy))
    after, metrics = jax.jit(actor_step, static_argnums=0)(RULES, learner, critic, TEMPERATURE, observation, noise)
    gradient = central_differences(lambda moving: numpy_actor_loss(moving, critic.q, observation, noise), policy, 1e-5)
    np.testing.assert_allclose(flat(after.policy), adam_first_step(flat(policy), gradient), rtol=0, atol=1e-7)
    assert metrics.loss == pytest.approx(numpy_actor_loss(policy, critic.q, observation, noise), rel=1e-10)
    assert metrics.log_prob == pytest.approx(numpy_sample(policy, observation, noise)[1].mean(), rel=1e-10)


MEMBERS, ELITES, PARTNERS, COMPARED = 3, [2, 0], [1, 2, 0], 2 * BATCH // 4


def one_step(update_config, forces, members=None, temperature=TEMPERATURE):
    """Return the problem and the result of `population_step` on it."""
    policies = members or [random_policy(seed) for seed in range(MEMBERS)]
    rng = np.random.default_rng(0)
    observation, noise = (
        rng.normal(size=(MEMBERS, 2 * BATCH, OBSERVATIONS)),
        rng.normal(size=(MEMBERS, 2 * BATCH, ACTIONS)),
    )
    critic, population = random_critic(0, "value"), stack(policies)
    learners = ActorLearner(population, jax.vmap(adam(update_config).init)(population))
    after = jax.jit(population_step, static_argnums=0)(
        update_config, learners, critic, temperature, forces, np.array(PARTNERS), observation, noise
    )
    return (policies, critic, observation, noise), after


@pytest.mark.parametrize("source", ["nothing", "members", "archive", "both"])
def test_population_step_is_one_step_of_adam_on_all_losses(source):
    update_config = RULES._replace(forces=ForceConfig(base="whole"))
    weights, coefficients = np.array([[0.7, -0.4], [0.1, 0.3]]), np.array([0.5, 2.0, 3.0])
    archived = [[random_policy(10 + 2 * row + slot) for slot in range(2)] for row in range(2)]
    repelled = {"members": [0, 1, 2], "both": [1]}.get(source, [])  # "both" spares the elites
    forces = Forces(
        np.log(coefficients),
        np.array(repelled, int),
        np.array(ELITES),
        TargetPolicies(stack([stack(row) for row in archived]), weights) if source in ("archive", "both") else None,
    )
    (policies, critic, observation, noise), (learners, _, after, (metrics, measured)) = one_step(
        update_config, None if source == "nothing" else forces
    )

    def reference(moving, number):
        total = numpy_actor_loss(moving, critic.q, observation[number], noise[number])
        of_member = observation[number][:COMPARED], noise[number][:COMPARED]
        others = []
        if number in repelled:
            others.append((1.0, policies[PARTNERS[number]]))
        if source in ("archive", "both") and number in ELITES:
            row = ELITES.index(number)
            others.extend(zip(weights[row], archived[row], strict=True))
        for weight, other in others:
            ratio = numpy_ratio(moving, other, *of_member, "whole", policies[number])
            total -= coefficients[number] * weight * np.mean(np.log(2) - np.log1p(np.exp(-ratio)))
        return total

    for number, policy in enumerate(policies):
        gradient = central_differences(lambda moving, n=number: reference(moving, n), policy, 1e-5)
        moved_to = flat(member(learners.policy, number))
        np.testing.assert_allclose(moved_to, adam_first_step(flat(policy), gradient), rtol=0, atol=1e-6)
    losses = [numpy_actor_loss(p, critic.q, o, n) for p, o, n in zip(policies, observation, noise, strict=True)]
    np.testing.assert_allclose(metrics.loss, losses, rtol=1e-10)
    assert (after is None, measured is None) == ((True, True) if source == "nothing" else (False, False))
    if source != "nothing":
        np.testing.assert_array_equal(after.log_coefficient, np.log(coefficients), "it is adapted to a target alone")


def test_adaptive_temperatures_weigh_each_members_entropy_and_follow_it_to_minus_the_number_of_actions():
    log_temperatures = np.array([-3.0, -1.0, 0.5])
    adaptive = Temperatures(log_temperatures, jax.vmap(adam(RULES).init)(log_temperatures))
    (policies, critic, observation, noise), (learners, after, _, (metrics, _)) = one_step(RULES, None, None, adaptive)
    for number, policy in enumerate(policies):
        of_member = observation[number], noise[number]

        def reference(moving, of_member=of_member, log_temperature=log_temperatures[number]):
            return numpy_actor_loss(moving, critic.q, *of_member, temperature=np.exp(log_temperature))

        assert metrics.loss[number] == pytest.approx(reference(policy), rel=1e-10)
        expected = adam_first_step(flat(policy), central_differences(reference, policy, 1e-5))
        np.testing.assert_allclose(flat(member(learners.policy, number)), expected, rtol=0, atol=1e-6)
        missing = numpy_sample(policy, *of_member)[1].mean() - ACTIONS  # the target less the entropy
        change = after.log[number] - log_temperatures[number]
        assert change == pytest.approx(RULES.learning_rate * np.sign(missing), rel=1e-5)


@pytest.mark.parametrize("ratio", [0.01, 0.5, 2.0, 100.0])
def test_lambda_rises_below_the_target_and_falls_beyond_it_in_bounded_steps(ratio):
    repelled = [0, 2]
    forces = Forces(np.zeros(MEMBERS), np.array(repelled), np.array(ELITES), None)
    (policies, _, observation, noise), _ = one_step(RULES, None)
    kl = np.array([
        numpy_ratio(policies[i], policies[PARTNERS[i]], observation[i][:COMPARED], noise[i][:COMPARED], "own").mean()
        for i in range(MEMBERS)
    ])  # fmt: skip
    update_config = RULES._replace(forces=ForceConfig(target=float(kl[0] / ratio)))
    _, (_, _, after, (_, measured)) = one_step(update_config, forces)
    np.testing.assert_allclose(measured.living.kl[:, 0], kl[repelled], rtol=1e-10)
    expected = COEFFICIENT_STEP * np.clip(1 - kl / update_config.forces.target, -1, 1)
    np.testing.assert_allclose(after.log_coefficient[np.array(repelled)], expected[repelled], rtol=1e-9)
    assert after.log_coefficient[1] == 0, "nobody repels it"
    assert np.sign(after.log_coefficient[0]) == (1 if ratio < 1 else -1)


def test_lambda_follows_repelled_archived_policies_where_members_do_not_repel():
    weights = np.array([[0.7, -0.4], [-0.1, 0.0]])
    targets = TargetPolicies(
        stack([stack([random_policy(10), random_policy(11)]), stack([random_policy(12)] * 2)]), weights
    )
    update_config = RULES._replace(forces=ForceConfig(target=1e9))
    forces = Forces(np.zeros(MEMBERS), np.array([], int), np.array(ELITES), targets)
    _, (_, _, after, _) = one_step(update_config, forces)
    # Only the first elite, member 2, is repelled by anything.
    np.testing.assert_allclose(after.log_coefficient, [0, 0, COEFFICIENT_STEP], rtol=1e-6)


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
    after = soft_update(target, online, tau)
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
