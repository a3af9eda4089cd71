"""Radial flows against the paper's formulas in float64, automatic differentiation and bisection."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from paper_flows import (
    DISTANCES,
    bisected_inverse,
    cast,
    chains,
    directions,
    few,
    magnification,
    numbers,
    paper_forward,
    paper_log_det,
    parameters,
    quick,
    rounding,
    single,
)

from arac.models.policies import RadialFlow
from arac.models.policies import radial_flow as radial


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(drawn=single())
@quick
def test_inverse_undoes_one_flow_both_ways(dtype, drawn):
    flow, points = drawn
    exact, flow, points = flow, cast(flow, dtype), points.astype(dtype)
    there, back = flow.inverse(flow.forward(points)), flow.forward(flow.inverse(points))
    assert there.dtype == back.dtype == dtype
    bound = rounding([exact], points, dtype)
    assert np.linalg.norm(there - points, axis=-1).max() <= bound
    assert np.linalg.norm(back - points, axis=-1).max() <= bound


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(drawn=chains())
@quick
def test_inverse_undoes_a_chain_both_ways_with_the_same_log_det(dtype, drawn):
    exact, points = drawn
    flows, points = cast(exact, dtype), points.astype(dtype)
    bound = rounding(exact, points, dtype)
    soft_update, log_det = radial.forward_log_det(flows, points)
    there, inverse_log_det = radial.inverse_log_det(flows, soft_update)
    back = radial.forward(flows, radial.inverse_log_det(flows, points)[0])
    assert np.linalg.norm(there - points, axis=-1).max() <= bound
    assert np.linalg.norm(back - points, axis=-1).max() <= bound
    # The log-determinant changes with the point by at most d / alpha for each flow.
    steepness = 1 + 2 * points.shape[-1] * sum(1 / parameters(flow)[1] for flow in exact)
    np.testing.assert_allclose(inverse_log_det, log_det, rtol=0, atol=bound * steepness)
    np.testing.assert_array_equal(soft_update, radial.forward(flows, points))


@given(drawn=single(), distance=st.sampled_from(DISTANCES))
@quick
def test_float32_flow_is_the_papers_formula_near_and_far(drawn, distance):
    flow, points = drawn
    far = (flow.centre + distance * directions(points.shape[-1])).astype(np.float32)
    narrow = cast(flow, np.float32)
    for z in (points.astype(np.float32), far):
        wide = z.astype(np.float64)
        scale = 1 + np.abs(wide).max() + np.abs(flow.centre).max() + abs(parameters(flow)[2])
        np.testing.assert_allclose(narrow.forward(z), paper_forward(flow, wide), rtol=0, atol=1e-6 * scale)
        np.testing.assert_allclose(narrow.log_det(z), paper_log_det(flow, wide), rtol=0, atol=2e-6 * z.shape[-1])


@given(drawn=chains())
@quick
def test_chain_applies_the_first_flow_first_and_adds_log_dets(drawn):
    flows, points = drawn
    z, total = points, 0.0
    for flow in flows:
        z, total = paper_forward(flow, z), total + paper_log_det(flow, z)
    soft_update, log_det = radial.forward_log_det(flows, points)
    bound = rounding(flows, points, np.float64)
    steepness = 1 + 2 * points.shape[-1] * sum(1 / parameters(flow)[1] for flow in flows)
    np.testing.assert_allclose(soft_update, z, rtol=0, atol=bound)
    np.testing.assert_allclose(log_det, np.broadcast_to(total, log_det.shape), rtol=0, atol=bound * steepness)


@given(drawn=single())
@quick
def test_closed_form_inverse_is_the_root_that_bisection_finds(drawn):
    flow, points = drawn
    np.testing.assert_allclose(
        flow.inverse(points), bisected_inverse(flow, points), rtol=0, atol=rounding([flow], points, np.float64)
    )


@given(raws=arrays(np.float32, 2, elements=numbers(4)))
@quick
def test_inverse_keeps_every_digit_close_to_the_centre(raws):
    flow = RadialFlow(np.zeros(3, np.float32), *(np.asarray(raw) for raw in raws))
    y = (np.logspace(-6, 3, 10)[:, None] * directions(3, 1)).astype(np.float32)
    expected = bisected_inverse(cast(flow, np.float64), y.astype(np.float64))
    np.testing.assert_allclose(flow.inverse(y), expected, rtol=1e-6)


@jax.jit
def log_dets(flows, z):
    """Return the log-determinants of the flows and of their inverse, each with that of the Jacobian."""
    y, stated = radial.forward_log_det(flows, z)
    _, stated_back = radial.inverse_log_det(flows, y)
    jacobian = jax.jacfwd(lambda z: radial.forward(flows, z))(z)
    jacobian_back = jax.jacfwd(lambda y: radial.inverse_log_det(flows, y)[0])(y)
    return (stated, jnp.linalg.slogdet(jacobian)), (-stated_back, jnp.linalg.slogdet(jacobian_back))


# Long chains get gentler flows: the determinant of a Jacobian with condition 1e14 is inaccurate even in float64.
@pytest.mark.parametrize(
    ("dimension", "count", "limit"),
    [(1, 1, 4.0), (2, 1, 4.0), (7, 1, 4.0), (21, 1, 4.0), (2, 0, 4.0), (1, 3, 2.0), (3, 6, 1.0), (17, 4, 1.0)],
)
@given(data=st.data())
@few
def test_log_det_is_that_of_the_jacobian(dimension, count, limit, data):
    flows, points = data.draw(chains(st.just(dimension), st.just(count), limit))
    with jax.enable_x64(True):
        for stated, (sign, measured) in log_dets(flows, points[0]):
            assert stated.dtype == jnp.float64
            assert sign == 1
            np.testing.assert_allclose(stated, measured, rtol=0, atol=1e-12 * dimension * magnification(flows))


@jax.jit
def values_and_gradients(flow, z):
    """Return forward, inverse and log-determinant at z, with their gradients by the flow's parameters and by z."""
    weights = jnp.cos(jnp.arange(z.size, dtype=z.dtype)).reshape(z.shape)
    return [
        jax.value_and_grad(function, argnums=(0, 1))(flow, z)
        for function in (
            lambda flow, z: (weights * flow.forward(z)).sum(),
            lambda flow, z: (weights * flow.inverse(z)).sum(),
            lambda flow, z: flow.log_det(z).sum(),
        )
    ]


@pytest.mark.parametrize("dimension", [1, 21])
@given(data=st.data())
@few
def test_values_and_gradients_are_finite_at_the_centre_and_far_away(dimension, data):
    flow, _ = data.draw(single(st.just(dimension)))
    flow = cast(flow, np.float32)
    for distance in DISTANCES:
        z = (flow.centre + distance * directions(dimension)).astype(np.float32)
        for leaf in jax.tree.leaves(values_and_gradients(flow, z)):
            assert leaf.dtype == jnp.float32
            assert np.isfinite(leaf).all(), distance


@pytest.mark.parametrize("raw_alpha", [-100.0, 0.0, 100.0])
@pytest.mark.parametrize("raw_reach", [-100.0, 0.0, 100.0])
def test_flow_driven_to_the_edge_of_invertibility_stays_finite(raw_alpha, raw_reach):
    flow = cast(RadialFlow(np.linspace(-1, 1, 21), raw_alpha, raw_reach), np.float32)
    for distance in DISTANCES:
        z = (flow.centre + distance * directions(21)).astype(np.float32)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(values_and_gradients(flow, z))), distance


@jax.jit
def slopes(flow, z):
    return jax.jacrev(flow.forward)(z), jax.jacrev(flow.inverse)(z)


@pytest.mark.parametrize("dimension", [1, 21])
def test_at_the_centre_the_flow_scales_by_reach_over_alpha(dimension):
    flow = cast(RadialFlow(np.linspace(-3, 3, dimension), 1.3, -0.7), np.float32)
    _, alpha, beta = parameters(cast(flow, np.float64))
    slope = (alpha + beta) / alpha
    (_, (by_flow, _)), _, (log_det, _) = values_and_gradients(flow, np.tile(flow.centre, (4, 1)))
    eye = np.eye(dimension)
    there, back = slopes(flow, flow.centre)
    np.testing.assert_array_equal(flow.forward(flow.centre), flow.centre)
    np.testing.assert_array_equal(flow.inverse(flow.centre), flow.centre)
    np.testing.assert_allclose(there, slope * eye, rtol=0, atol=1e-6)
    np.testing.assert_allclose(back, eye / slope, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(log_det, 4 * dimension * np.log(slope), rtol=2e-6)
    weights = np.cos(np.arange(4 * dimension)).reshape(4, dimension).sum(0)
    np.testing.assert_allclose(by_flow.centre, (1 - slope) * weights, rtol=0, atol=3e-6)


@jax.jit
def summed_gradients(flow, z):
    def sums(flow):
        return jnp.sin(flow.forward(z)).sum(), jnp.sin(flow.inverse(z)).sum(), flow.log_det(z).sum()

    return jax.jacrev(sums)(flow)


@given(drawn=single(st.just(3), limit=2.0))
@few
def test_gradients_by_the_parameters_are_central_differences_of_the_papers_formula(drawn):
    flow, _ = drawn
    step = 1e-5
    points = flow.centre + directions(3) * np.linspace(0.3, 4, 4)[:, None]

    def reference(flow):
        soft_update, back = paper_forward(flow, points), bisected_inverse(flow, points)
        return np.array([np.sin(soft_update).sum(), np.sin(back).sum(), paper_log_det(flow, points).sum()])

    with jax.enable_x64(True):
        gradient = summed_gradients(flow, points)
    for i in range(5):
        change = step * np.eye(5)[i]
        up, down = (
            RadialFlow(flow.centre + s * change[:3], flow.raw_alpha + s * change[3], flow.raw_reach + s * change[4])
            for s in (1, -1)
        )
        expected = (reference(up) - reference(down)) / (2 * step)
        stated = [np.concatenate([g.centre, [g.raw_alpha, g.raw_reach]])[i] for g in gradient]
        np.testing.assert_allclose(stated, expected, rtol=1e-5, atol=1e-6)


def test_flow_starts_close_to_the_identity():
    @jax.jit
    def start(keys, z):
        flows = jax.vmap(lambda key: RadialFlow.init(key, 6))(keys)
        return flows, *jax.vmap(lambda flow: (flow.forward(z), flow.log_det(z)))(flows)

    z = 3 * np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    flows, soft_update, log_det = start(jax.random.split(jax.random.key(0), 300), z)
    assert np.linalg.norm(soft_update - z, axis=-1).max() < 0.06
    assert np.abs(log_det).max() < 6 * 0.06
    assert np.abs(flows.alpha - 1).max() < 0.04
    assert np.abs(flows.centre).max() < 0.1 * 5.5
    assert np.std(flows.centre) == pytest.approx(0.1, rel=0.1)


def test_flows_start_apart():
    flows = [RadialFlow.init(key, 2) for key in jax.random.split(jax.random.key(0), 2)]
    assert np.abs(flows[0].centre - flows[1].centre).min() > 0
    assert flows[0].raw_alpha != flows[1].raw_alpha
    assert flows[0].raw_alpha != flows[0].raw_reach


@given(raw_alpha=numbers(1e4), raw_reach=numbers(1e4))
@quick
def test_beta_never_falls_below_minus_alpha(raw_alpha, raw_reach):
    flow = cast(RadialFlow(np.zeros(2), raw_alpha, raw_reach), np.float32)
    assert flow.alpha > 0
    assert flow.reach > 0
    assert flow.beta >= -flow.alpha
    assert flow.alpha == pytest.approx(np.logaddexp(raw_alpha, 0), rel=1e-6, abs=2e-6)
    assert flow.reach == pytest.approx(np.logaddexp(raw_reach, 0), rel=1e-6, abs=2e-6)
    assert flow.beta == pytest.approx(flow.reach - flow.alpha)


@given(drawn=single(limit=8.0))
@quick
def test_points_on_a_ray_keep_their_order(drawn):
    flow, _ = drawn
    radii = np.array([0, 1e-3, 0.1, 1, 3, 10, 100])[:, None]
    direction = directions(flow.centre.size, 1)
    soft_update = np.linalg.norm(flow.forward(flow.centre + radii * direction) - flow.centre, axis=-1)
    assert (np.diff(soft_update) > 0).all()


def test_batch_axes_are_kept_and_no_flows_are_the_identity():
    z = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    flow = cast(RadialFlow(np.ones(4), 0.5, -0.5), np.float32)
    assert flow.log_det(z).shape == (2, 3)
    np.testing.assert_array_equal(flow.forward(z)[1, 2], flow.forward(z[1, 2]))
    soft_update, log_det = radial.forward_log_det((), z)
    np.testing.assert_array_equal(soft_update, z)
    np.testing.assert_array_equal(log_det, np.zeros((2, 3)))
