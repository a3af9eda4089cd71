"""The paper's formulas of radial flows in NumPy, and flows and points to test them on."""

import jax
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from arac.models.policies import RadialFlow

quick = settings(deadline=None, max_examples=40)
few = settings(deadline=None, max_examples=15)
DIMENSIONS = st.integers(1, 21)
COUNTS = st.integers(0, 6)
DISTANCES = [0.0, 1e-30, 1e-20, 1e-10, 1e-3, 1.0, 1e4, 1e8, 1e15]


def numbers(limit):
    return st.floats(-limit, limit, width=32)


@st.composite
def chains(draw, dimensions=DIMENSIONS, counts=COUNTS, limit=4.0):
    """Return flows with float64 NumPy leaves that float32 represents exactly, and five points for them."""
    dimension, count = draw(dimensions), draw(counts)
    centres = draw(arrays(np.float64, (count, dimension), elements=numbers(3)))
    raws = draw(arrays(np.float64, (count, 2), elements=numbers(limit)))
    points = draw(arrays(np.float64, (5, dimension), elements=numbers(10)))
    flows = tuple(
        RadialFlow(centre, np.asarray(alpha), np.asarray(reach))
        for centre, (alpha, reach) in zip(centres, raws, strict=True)
    )
    return flows, points


def single(dimensions=DIMENSIONS, limit=4.0):
    return chains(dimensions, st.just(1), limit).map(lambda drawn: (drawn[0][0], drawn[1]))


def cast(tree, dtype):
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), tree)


def parameters(flow):
    """Return the paper's z0, alpha and beta, with the floor that keeps both away from 0."""
    alpha = np.log1p(np.exp(flow.raw_alpha)) + 1e-6
    return flow.centre, alpha, np.log1p(np.exp(flow.raw_reach)) + 1e-6 - alpha


def paper_forward(flow, z):
    centre, alpha, beta = parameters(flow)
    r = np.linalg.norm(z - centre, axis=-1, keepdims=True)
    return z + beta / (alpha + r) * (z - centre)


def paper_log_det(flow, z):
    centre, alpha, beta = parameters(flow)
    r = np.linalg.norm(z - centre, axis=-1)
    h = 1 / (alpha + r)
    return (z.shape[-1] - 1) * np.log(1 + beta * h) + np.log(1 + alpha * beta / (alpha + r) ** 2)


def bisected_inverse(flow, y):
    """Invert a flow without the closed form: find the distance before it by bisection."""
    centre, alpha, beta = parameters(flow)
    goal = np.linalg.norm(y - centre, axis=-1, keepdims=True)
    low, high = np.zeros_like(goal), goal + alpha
    for _ in range(50):
        middle = (low + high) / 2
        short = middle + beta * middle / (alpha + middle) < goal
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return (y + beta / (alpha + low) * centre) / (1 + beta / (alpha + low))


def paper_log_density(x, mean, std, flows):
    """Return the density after the flows (Eq. 7) by bisection, the reference of the tests of policies and losses."""
    total = np.zeros(x.shape[:-1])
    for flow in reversed(flows):
        x = bisected_inverse(flow, x)
        total = total + paper_log_det(flow, x)
    standard = (x - mean) / std
    return (-0.5 * standard**2 - np.log(std) - 0.5 * np.log(2 * np.pi)).sum(-1) - total


def magnification(flows):
    """Return the largest factor by which the flows or their inverses can enlarge a rounding error."""
    result = 1.0
    for flow in flows:
        _, alpha, beta = parameters(flow)
        result *= max((alpha + beta) / alpha, alpha / (alpha + beta))
    return result


def rounding(flows, points, dtype):
    """Return a bound on the error of a round trip: a few roundings of the largest point on the way, magnified."""
    sizes = [np.linalg.norm(flow.centre) + abs(parameters(flow)[2]) for flow in flows]
    scale = 1 + np.linalg.norm(points, axis=-1).max() + sum(sizes)
    return 8 * (1 + len(flows)) * np.finfo(dtype).eps * scale * magnification(flows)


def directions(dimension, count=4):
    draws = np.random.default_rng(dimension).normal(size=(count, dimension))
    return draws / np.linalg.norm(draws, axis=-1, keepdims=True)
