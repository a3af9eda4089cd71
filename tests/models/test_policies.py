"""Policies against quadrature, SciPy, samples and plain NumPy."""

from itertools import pairwise

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from paper_flows import cast, chains, numbers, paper_forward, paper_log_density
from scipy import integrate, stats

from arac.models.mlp import MLP
from arac.models.policies import DeterministicPolicy, FlowPolicy, Gaussian, RadialFlow, gaussian
from arac.models.policies.flow_policy import log_tanh_slope, pre_tanh_log_prob
from arac.models.policies.gaussian import LOG_STD_RANGE

quick = settings(deadline=None, max_examples=40)
OBSERVATION = np.array([0.3, -0.8, 1.1])
# A contraction, an expansion and a strong contraction, all near the samples: far from the identity.
FLOWS = (
    RadialFlow(np.array([0.4, -0.3]), np.asarray(1.0), np.asarray(-0.5)),
    RadialFlow(np.array([-0.5, 0.2]), np.asarray(-0.5), np.asarray(1.0)),
    RadialFlow(np.array([0.1, 0.6]), np.asarray(2.0), np.asarray(-0.5)),
)
POLICIES = [(flows, sigma) for flows in (0, 1, 3) for sigma in (0.5, None)]


def random_mlp(rng, sizes):
    shapes = list(pairwise(sizes))
    weights = tuple(rng.normal(size=shape) / np.sqrt(shape[0]) for shape in shapes)
    return MLP(weights, tuple(0.3 * rng.normal(size=shape[1]) for shape in shapes))


def looped_mlp(network, x):
    """Compute a forward pass one unit at a time."""
    layers = list(zip(network.weights, network.biases, strict=True))
    values = [float(value) for value in x]
    for number, (weight, bias) in enumerate(layers):
        values = [sum(v * w for v, w in zip(values, weight[:, j], strict=True)) + bias[j] for j in range(len(bias))]
        if number < len(layers) - 1:
            values = [max(value, 0.0) for value in values]
    return np.array(values)


def make_policy(flows, sigma, action_size=2, seed=0):
    """Return a policy with float64 NumPy leaves; a learned sigma is around 0.5."""
    heads = action_size if sigma is not None else 2 * action_size
    network = random_mlp(np.random.default_rng(seed), (3, 8, heads))
    if sigma is None:
        network.biases[-1][action_size:] = np.log(0.5)
        network.weights[-1][:, action_size:] *= 0.3
    return FlowPolicy(Gaussian(network, sigma), flows)


def base_of(policy, observation=OBSERVATION):
    """Return mean and standard deviation, from the network written out."""
    output = looped_mlp(policy.base.network, observation)
    if policy.base.sigma is not None:
        return output, np.full_like(output, policy.base.sigma)
    mean, log_std = np.split(output, 2)
    return mean, np.exp(np.clip(log_std, -20, 2))


def midpoints(low, high, count):
    """Return the midpoints of a square grid, and the area of a cell."""
    step = (high - low) / count
    axis = low + step * (np.arange(count) + 0.5)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2), step**2


def action_density(policy, count=800):
    """Return actions on a grid over (-1, 1)^2, and the probability of each cell."""
    actions, area = midpoints(-1, 1, count)
    return actions, np.exp(policy.log_prob(OBSERVATION, actions)) * area


@pytest.mark.parametrize(("flows", "sigma"), POLICIES)
def test_density_before_tanh_integrates_to_one(flows, sigma):
    policy = make_policy(FLOWS[:flows], sigma)
    x, area = midpoints(-8, 8, 700)
    density = np.exp(pre_tanh_log_prob(x, *policy.base(OBSERVATION), policy.flows))
    assert density.sum() * area == pytest.approx(1, abs=1e-4)
    if flows:
        plain = np.exp(pre_tanh_log_prob(x, *policy.base(OBSERVATION), ()))
        assert np.abs(density - plain).sum() * area > 0.3


@pytest.mark.parametrize(("flows", "sigma"), POLICIES)
def test_density_of_actions_integrates_to_one(flows, sigma):
    _, probability = action_density(make_policy(FLOWS[:flows], sigma))
    assert probability.sum() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("flows", "sigma"), POLICIES)
def test_samples_follow_the_density(flows, sigma):
    policy = make_policy(FLOWS[:flows], sigma)
    noise = np.random.default_rng(1).normal(size=(100_000, 2))
    samples, _ = policy.sample(OBSERVATION, noise)
    actions, probability = action_density(policy)
    for statistic in (
        lambda a: a[:, 0],
        lambda a: a[:, 0] * a[:, 1],
        lambda a: np.cos(5 * a[:, 0] - 2 * a[:, 1]),
        lambda a: a[:, 1] > 0.3,
        lambda a: np.linalg.norm(np.arctanh(a) - FLOWS[0].centre, axis=-1) < 0.3,
    ):
        values = statistic(samples)
        expected = (statistic(actions) * probability).sum()
        assert values.mean() == pytest.approx(expected, abs=5 * values.std() / np.sqrt(len(values)) + 2e-4)


@given(drawn=chains(limit=2.0), learned=st.booleans(), seed=st.integers(0, 2**32 - 1))
@quick
def test_sample_is_the_paper_written_out_and_agrees_with_log_prob(drawn, learned, seed):
    flows, points = drawn
    size = points.shape[-1]
    policy = make_policy(flows, None if learned else 0.4, size, seed)
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(4, size))
    mean, std = base_of(policy)
    x = mean + std * noise
    for flow in flows:
        x = paper_forward(flow, x)
    log_slope = -2 * np.log(np.cosh(x)).sum(-1)
    expected = paper_log_density(x, mean, std, flows) - log_slope

    action, log_prob = policy.sample(OBSERVATION, noise)
    np.testing.assert_allclose(action, np.tanh(x), rtol=0, atol=1e-8)
    np.testing.assert_allclose(log_prob, expected, rtol=0, atol=1e-5)
    inside = np.abs(x).max(-1) < 5
    stated = policy.log_prob(OBSERVATION, action)
    np.testing.assert_allclose(stated[inside], log_prob[inside], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("flows", "sigma"), POLICIES)
def test_float32_sample_agrees_with_log_prob_of_its_action(flows, sigma):
    policy = cast(make_policy(FLOWS[:flows], sigma), np.float32)
    noise = np.random.default_rng(2).normal(size=(2000, 2)).astype(np.float32)
    action, log_prob = policy.sample(OBSERVATION.astype(np.float32), noise)
    assert action.dtype == log_prob.dtype == np.float32
    inside = np.abs(action).max(-1) < 0.95
    assert inside.sum() > 1000
    stated = policy.log_prob(OBSERVATION.astype(np.float32), action)
    # atanh magnifies the rounding of an action by up to 10 here, and the contraction of the flows by as much again.
    np.testing.assert_allclose(stated[inside], log_prob[inside], rtol=0, atol=3e-4)


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 21))
@quick
def test_without_flows_the_density_is_a_squashed_normal(seed, size):
    policy = make_policy((), None, size, seed)
    action = np.random.default_rng(seed).uniform(-0.999, 0.999, (5, size))
    mean, std = base_of(policy)
    expected = stats.norm.logpdf(np.arctanh(action), mean, std) - np.log1p(-(action**2))
    np.testing.assert_allclose(policy.log_prob(OBSERVATION, action), expected.sum(-1), rtol=1e-9, atol=1e-9)


def test_log_prob_is_finite_on_the_border_and_read_as_just_inside_it():
    policy = cast(make_policy(FLOWS, 0.5), np.float32)
    observation = OBSERVATION.astype(np.float32)
    border = np.array([[1, 1], [-1, 1], [0.2, -1]], np.float32)
    inside = np.clip(border, -1 + 2.0**-22, 1 - 2.0**-22)
    assert np.isfinite(policy.log_prob(observation, border)).all()
    np.testing.assert_array_equal(policy.log_prob(observation, border), policy.log_prob(observation, inside))
    jitted = jax.jit(lambda policy, action: policy.log_prob(observation, action))
    assert np.isfinite(jitted(policy, border)).all()


def test_log_tanh_slope_is_exact_near_and_far():
    x = np.concatenate([np.linspace(-50, 50, 2001), [1e-8, -1e-8]])
    expected = -2 * np.log(np.cosh(x))
    np.testing.assert_allclose(log_tanh_slope(x), expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(log_tanh_slope(x.astype(np.float32)), expected, rtol=3e-7, atol=3e-7)
    near = np.linspace(-3, 3, 101)
    np.testing.assert_allclose(log_tanh_slope(near), np.log(1 - np.tanh(near) ** 2), rtol=0, atol=1e-12)


def test_log_tanh_slope_has_finite_gradients_far_away():
    x = np.array([-1e4, -50, -1, 0, 1, 50, 1e4], np.float32)
    gradient = jax.vmap(jax.grad(log_tanh_slope))(x)
    np.testing.assert_allclose(gradient, -2 * np.tanh(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("flows", "sigma"), POLICIES)
def test_mode_is_the_action_without_noise_and_act_that_of_sample(flows, sigma):
    policy = make_policy(FLOWS[:flows], sigma)
    rng = np.random.default_rng(0)
    observation, noise = rng.normal(size=(6, 5, 3)), rng.normal(size=(6, 5, 2))
    mode, action = policy.mode(observation), policy.act(observation, noise)
    np.testing.assert_array_equal(mode, policy.act(observation, np.zeros_like(noise)))
    np.testing.assert_array_equal(action, policy.sample(observation, noise)[0])
    assert policy.sample(observation, noise)[1].shape == (6, 5)
    assert np.abs(action - mode).min() > 0
    x, _ = base_of(policy, observation[1, 2])
    for flow in policy.flows:
        x = paper_forward(flow, x)
    np.testing.assert_allclose(mode[1, 2], np.tanh(x), rtol=1e-12)


@pytest.mark.parametrize(("flows", "sigma"), [(3, 0.5), (3, None), (0, None)])
def test_numpy_and_jax_leaves_give_the_same_numbers(flows, sigma):
    policy = cast(make_policy(FLOWS[:flows], sigma), np.float32)
    rng = np.random.default_rng(3)
    observation, noise = (rng.normal(size=(64, n)).astype(np.float32) for n in (3, 2))

    def everything(policy, observation, noise, action):
        mean, log_std = policy.base(observation)
        mode, act = policy.mode(observation), policy.act(observation, noise)
        return mean, log_std, mode, act, policy.sample(observation, noise), policy.log_prob(observation, action)

    action = 0.9 * policy.mode(observation)
    plain = everything(policy, observation, noise, action)
    jitted = jax.jit(everything)(policy, observation, noise, action)
    for ours, theirs in zip(jax.tree.leaves(plain), jax.tree.leaves(jitted), strict=True):
        assert isinstance(ours, np.ndarray)
        assert ours.dtype == theirs.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


def test_learned_log_std_is_clamped_and_a_fixed_one_is_constant():
    network = random_mlp(np.random.default_rng(0), (3, 8, 8))
    network.biases[-1][4:] = [-1000, -19, 1.5, 1000]
    network.weights[-1][:, 4:] = 0
    mean, log_std = Gaussian(network, None)(OBSERVATION)
    assert LOG_STD_RANGE == (-20, 2)
    np.testing.assert_allclose(log_std, [-20, -19, 1.5, 2])
    np.testing.assert_allclose(mean, looped_mlp(network, OBSERVATION)[:4])
    mean, log_std = Gaussian(network, 0.3)(OBSERVATION)
    np.testing.assert_allclose(mean, looped_mlp(network, OBSERVATION))
    np.testing.assert_allclose(log_std, np.full(8, np.log(0.3)))


@pytest.mark.parametrize(("sigma", "heads"), [(0.2, 4), (None, 8)])
def test_flow_policy_starts_with_the_asked_sizes_and_near_a_plain_gaussian(sigma, heads):
    policy = FlowPolicy.init(jax.random.key(0), 3, 4, hidden=(16, 5), flows=3, sigma=sigma)
    assert [weight.shape for weight in policy.base.network.weights] == [(3, 16), (16, 5), (5, heads)]
    assert [flow.centre.shape for flow in policy.flows] == [(4,)] * 3
    assert len({float(flow.raw_alpha) for flow in policy.flows}) == 3
    policy = cast(policy, np.float64)
    mean, _ = base_of(policy)
    np.testing.assert_allclose(policy.mode(OBSERVATION), np.tanh(mean), rtol=0, atol=3 * 0.05)


@given(seed=st.integers(0, 2**32 - 1), exploration=st.floats(0.01, 2))
@quick
def test_deterministic_policy_adds_scaled_noise_clips_and_has_the_density_of_the_noise(seed, exploration):
    rng = np.random.default_rng(seed)
    network = random_mlp(rng, (3, 8, 4))
    policy = DeterministicPolicy(network, exploration)
    noise = rng.normal(size=(50, 4))
    mode = np.tanh(looped_mlp(network, OBSERVATION))
    noisy = mode + exploration * noise
    np.testing.assert_allclose(policy.mode(OBSERVATION), mode, rtol=0, atol=1e-14)
    np.testing.assert_allclose(policy.act(OBSERVATION, noise), np.clip(noisy, -1, 1), rtol=0, atol=1e-14)
    action, log_prob = policy.sample(OBSERVATION, noise)
    np.testing.assert_array_equal(action, policy.act(OBSERVATION, noise))
    expected = stats.norm.logpdf(action, mode, exploration).sum(-1)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(log_prob, policy.log_prob(OBSERVATION, action))


def test_deterministic_policy_stays_in_range_and_without_noise_has_no_density():
    policy = DeterministicPolicy.init(jax.random.key(0), 3, 2, hidden=(16,), exploration=0.0)
    observation = 1e6 * np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    mode = np.asarray(policy.mode(observation))
    assert np.abs(mode).max() <= 1
    np.testing.assert_array_equal(policy.act(observation, np.ones_like(mode)), mode)
    with pytest.raises(ValueError, match="exploration"):
        policy.log_prob(observation, mode)
    with pytest.raises(ValueError, match="exploration"):
        policy.sample(observation, np.ones_like(mode))


@given(parameters=arrays(np.float64, (4, 3), elements=numbers(2)))
@quick
def test_gaussian_kl_is_the_integral(parameters):
    mean, log_std, other_mean, other_log_std = parameters
    z = np.linspace(-10, 10, 4001)[:, None]
    x = mean + np.exp(log_std) * z
    log_p, log_q = stats.norm.logpdf(x, mean, np.exp(log_std)), stats.norm.logpdf(x, other_mean, np.exp(other_log_std))
    expected = integrate.trapezoid(np.exp(log_p) * (log_p - log_q), x, axis=0).sum()
    assert gaussian.kl(mean, log_std, other_mean, other_log_std) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(parameters=arrays(np.float64, (3, 5), elements=numbers(3)))
@quick
def test_gaussian_log_density_is_scipys(parameters):
    z, mean, log_std = parameters
    expected = stats.norm.logpdf(z, mean, np.exp(log_std)).sum()
    assert gaussian.log_density(z, mean, log_std) == pytest.approx(expected, rel=1e-11, abs=1e-11)


@given(seed=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(1, 9), min_size=2, max_size=5))
@quick
def test_mlp_is_the_forward_pass_written_out(seed, sizes):
    rng = np.random.default_rng(seed)
    network = random_mlp(rng, sizes)
    x = rng.normal(size=(2, 3, sizes[0]))
    output = network(x)
    assert output.shape == (2, 3, sizes[-1])
    for index in np.ndindex(2, 3):
        np.testing.assert_allclose(output[index], looped_mlp(network, x[index]), rtol=1e-10, atol=1e-12)


def test_mlp_starts_uniform_within_one_over_root_fan_in():
    network = jax.jit(lambda key: MLP.init(key, (64, 300, 300, 300)))(jax.random.key(0))
    assert [weight.shape for weight in network.weights] == [(64, 300), (300, 300), (300, 300)]
    for weight, bias, fan_in in zip(network.weights, network.biases, (64, 300, 300), strict=True):
        assert bias.shape == (300,)
        for leaf in (weight, bias):
            scaled = np.ravel(leaf) * fan_in**0.5
            assert np.abs(scaled).max() <= 1 + 1e-6
            assert stats.kstest(scaled, stats.uniform(-1, 2).cdf).pvalue > 1e-3
    assert not np.isin(network.weights[1], network.weights[2]).all()
    assert not np.isin(network.biases[1], network.biases[2]).all()
    assert not np.isin(network.biases[1], network.weights[1]).all()


def test_a_numpy_action_meets_jax_parameters_under_tracing():
    policy = FlowPolicy.init(jax.random.key(0), 3, 2, hidden=(8,), flows=1, sigma=0.5)
    observation, action = np.zeros(3, np.float32), np.full(2, 0.1, np.float32)
    gradient = jax.jit(jax.grad(lambda p: p.log_prob(observation, action)))(policy)
    assert np.isfinite(gradient.flows[0].centre).all()
