"""The paper's bandit: one state, actions in the plane, an expert to imitate and a policy to stay away from.

It shows which shapes a policy can take: radial flows bend around the repulsive policy, a Gaussian cannot. Each policy
is trained with the library's own attraction-repulsion loss, and for comparison without it: the weight of that loss
fades, so that the end of training is imitation alone. docs/experiments.md explains the choices that the paper leaves
open.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import rich.progress
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from arac.experiments.outputs import Table, write
from arac.experiments.planning import Size
from arac.learning.losses import Base, Divergence, TargetPolicies, attraction_repulsion_loss
from arac.models.policies import FlowPolicy, gaussian
from arac.models.policies import radial_flow as radial
from arac.models.policies.flow_policy import pre_tanh_log_prob
from arac.models.stacked import take
from arac.storage.run_folder import versions
from arac.sweeps.jobs import Job
from arac.utils.plotting import pyplot
from arac.utils.rng import stream_key

# The expert is a crescent around the repulsive policy, whose centre is where training starts.
EXPERT_RADIUS, EXPERT_STD = 2.6, 0.6
EXPERT_CENTRES = np.array([(math.cos(turn), math.sin(turn)) for turn in np.linspace(0, math.pi, 5)]) * EXPERT_RADIUS
REPULSIVE_STD = 1.0
REGION = 1.5  # radius around the repulsive policy's centre with two thirds of its actions
REPULSION = 10.0  # the weight at step t is 10 / (t + 1)
SIDE = 6.0  # the plane is drawn and integrated from -SIDE to SIDE
BATCH, LEARNING_RATE = 128, 0.02
SMALLEST_MODE = 0.15  # peaks closer than about twice this count as one


@dataclass(frozen=True)
class Contender:
    """A kind of policy, and the repulsion that acts on it.

    The paper's repulsion acts on the flows, so that it has no effect on a policy with a fixed Gaussian and no flows;
    `base` can make it act on the Gaussian.
    """

    flows: int
    sigma: float | None  # None: learned
    base: Base = "own"
    divergence: Divergence = "kl"


CONTENDERS = {
    "Gaussian, learned variance": Contender(0, None, "gaussian"),
    **{f"{n} flow{'s' * (n != 1)}": Contender(n, 1.0) for n in range(5)},
    "Gaussian, ARAC's default": Contender(0, None, "whole", "bounded"),
    "4 flows, ARAC's default": Contender(4, 1.0, "whole", "bounded"),
}


class Numbers(NamedTuple):
    """The measurements of a policy's density."""

    kl: float  # KL(policy || expert), in nats
    repulsive_mass: float  # within REGION of the repulsive policy's centre
    modes: int  # separate peaks
    complexity: float  # KL(policy || the Gaussian with its moments): 0 for a Gaussian, whatever its form


class Course(NamedTuple):
    """The measurements of a contender at each time and for each seed, trained with repulsion and without."""

    repelled: list[list[Numbers]]
    free: list[list[Numbers]]


def plan(size: Size) -> list[Job]:
    """Return no jobs: `show` trains the policies itself, in seconds."""
    return []


def show(size: Size, parent: Path, out: Path) -> str:
    """Train all contenders, write table, numbers and picture into `out`, and return the table."""
    assert size.steps is not None
    times = sorted({0, *(size.steps // part for part in (60, 20, 10, 3)), size.steps})
    densities: dict[str, list[list[np.ndarray]]] = {}
    courses: dict[str, Course] = {}
    for name, contender in rich.progress.track(CONTENDERS.items(), "training", len(CONTENDERS), transient=True):
        over_time = train(contender, size.seeds, times)
        repelled, free = (
            [[density(take(take(at_time, kind), seed)) for seed in range(size.seeds)] for at_time in over_time]
            for kind in range(2)
        )
        densities[name] = repelled
        courses[name] = Course(*([[measure(one) for one in seeds] for seeds in of] for of in (repelled, free)))
    table = write(out, "didactic", as_table(courses, times, size.seeds), as_numbers(courses, times))
    draw(densities, courses, times, out / "didactic.png")
    return table


def train(
    contender: Contender,
    seeds: int,
    times: Sequence[int],
    *,
    repulsions: tuple[float, ...] = (REPULSION, 0.0),
    l1: float = 0.0,
) -> list[FlowPolicy]:
    """Train a contender, one policy for each repulsion and seed.

    Args:
        contender: the kind of policy.
        seeds: number of seeds.
        times: the steps at which policies are returned; the first is the start of training.
        repulsions: weights of repulsion at the first step.
        l1: weight of the flows' size in the loss.

    Returns:
        The policies at each time, stacked by repulsion, then by seed.
    """
    keys = jax.vmap(jax.random.fold_in, (None, 0))(stream_key(0, "didactic"), jnp.arange(seeds))
    policies = jax.vmap(lambda _: jax.vmap(partial(_beginning, contender))(keys))(jnp.array(repulsions))
    optimiser = optax.adam(LEARNING_RATE)
    slope = jax.grad(partial(loss, contender, l1=l1))

    def step(time: Array, repulsion: Array, key: Array, learner: Any) -> Any:
        policy, moments = learner
        gradient = slope(policy, repulsion / (time + 1), jax.random.fold_in(key, time))
        update, moments = optimiser.update(gradient, moments)
        return optax.apply_updates(policy, update), moments

    over_seeds = jax.vmap(step, (None, None, 0, 0))
    over_all = jax.vmap(over_seeds, (None, 0, None, 0))

    @jax.jit
    def between(first: int, last: int, learners: Any) -> Any:
        weights = jnp.array(repulsions)
        return jax.lax.fori_loop(first, last, lambda time, now: over_all(time, weights, keys, now), learners)

    learners = policies, jax.vmap(jax.vmap(optimiser.init))(policies)
    over_time = [policies]
    for first, last in pairwise(times):
        learners = between(first, last, learners)
        over_time.append(learners[0])
    return over_time


def loss(
    contender: Contender, policy: FlowPolicy, weight: Array, key: jax.Array, *, l1: float = 0.0
) -> Float[Array, ""]:
    """Return KL(policy || expert) from samples, plus the weighted AR term, plus the flows' size times `l1`."""
    state = jnp.zeros((BATCH, 1))
    noise = jax.random.normal(key, (BATCH, 2))
    mean, log_std = policy.base(state)
    z = mean + jnp.exp(log_std) * noise
    x, log_det = radial.forward_log_det(policy.flows, z)
    imitation = (gaussian.log_density(z, mean, log_std) - log_det - expert_log_density(x)).mean()
    repelled = TargetPolicies(jax.tree.map(lambda leaf: leaf[None], repulsive()), weight[None])
    repulsion, _ = attraction_repulsion_loss(
        policy, repelled, state, noise, divergence=contender.divergence, base=contender.base, kl_clip=None
    )
    size = sum(jnp.abs(flow.centre).sum() + jnp.abs(flow.alpha) + jnp.abs(flow.beta) for flow in policy.flows)
    return imitation + repulsion + l1 * size


def expert_log_density(x: Float[Array, "*batch 2"]) -> Float[Array, "*batch"]:
    """Return the expert's log-density: a mixture of Gaussians on a semicircle."""
    log_std = jnp.full(2, math.log(EXPERT_STD))
    parts = [gaussian.log_density(x, jnp.asarray(centre), log_std) for centre in EXPERT_CENTRES]
    return logsumexp(jnp.stack(parts), axis=0) - math.log(len(parts))


def repulsive() -> FlowPolicy:
    """Return the policy that repels the others: a Gaussian around the origin."""
    return _beginning(Contender(0, REPULSIVE_STD), jax.random.key(0))


def _beginning(contender: Contender, key: jax.Array) -> FlowPolicy:
    """Return the initial policy: a standard normal around the origin, with flows near the identity."""
    policy = FlowPolicy.init(key, 1, 2, hidden=(), flows=contender.flows, sigma=contender.sigma)
    return replace(policy, base=jax.tree.map(jnp.zeros_like, policy.base))


def grid(points: int = 241) -> tuple[Float[np.ndarray, "row column 2"], float]:
    """Return the points of a grid over the plane as the paper draws it, and the area of a cell."""
    side = np.linspace(-SIDE, SIDE, points)
    return np.stack(np.meshgrid(side, side), -1), float(side[1] - side[0]) ** 2


def density(policy: FlowPolicy) -> Float[np.ndarray, "row column"]:
    """Return a policy's density on the grid, before tanh: the bandit's actions are not squashed."""
    mean, log_std = policy.base(jnp.zeros(1))
    return np.exp(np.asarray(pre_tanh_log_prob(jnp.asarray(grid()[0]), mean, log_std, policy.flows), np.float64))


def expert_density() -> Float[np.ndarray, "row column"]:
    """Return the expert's density on the grid."""
    return np.exp(np.asarray(expert_log_density(jnp.asarray(grid()[0])), np.float64))


def measure(of_policy: Float[np.ndarray, "row column"]) -> Numbers:
    """Measure a density by sums over the grid."""
    points, cell = grid()
    mass = of_policy / of_policy.sum()
    log = np.log(np.maximum(mass / cell, 1e-300))
    expert = np.log(expert_density())
    near = np.linalg.norm(points, axis=-1) < REGION
    flat = points.reshape(-1, 2)
    covariance = np.cov(flat, rowvar=False, aweights=mass.ravel(), ddof=0)
    gaussian_entropy = 0.5 * math.log(np.linalg.det(2 * math.pi * math.e * covariance))
    return Numbers(
        kl=float((mass * (log - expert)).sum()),
        repulsive_mass=float(mass[near].sum()),
        modes=count_modes(of_policy),
        complexity=float(gaussian_entropy + (mass * log).sum()),
    )


def count_modes(of_policy: Float[np.ndarray, "row column"]) -> int:
    """Return the number of modes: the largest number of separate regions above any level.

    Regions whose peak is less than a tenth above the level do not count, and negligible levels are not tried. The
    density is smoothed first, because a ridge thinner than the grid's cells would break into many regions.
    """
    from scipy.ndimage import gaussian_filter, label, maximum

    smooth = gaussian_filter(of_policy, SMALLEST_MODE / (2 * SIDE / (len(of_policy) - 1)))
    most = 0
    for level in smooth.max() * np.linspace(0.05, 0.9, 35):
        islands, count = label(smooth > level)
        most = max(most, int((np.atleast_1d(maximum(smooth, islands, range(1, count + 1))) >= level / 0.9).sum()))
    return most


def as_table(courses: dict[str, Course], times: Sequence[int], seeds: int) -> Table:
    """Return the results as a table, one row per policy."""
    without, early = "without repulsion", f"in the repulsive region at step {times[1]:,}"
    head = ["policy", "KL to the expert, nats", without, early, without, "at the end", "modes", "complexity, nats"]
    rows = [head]
    for name, course in courses.items():
        last, free = _medians(course.repelled[-1]), _medians(course.free[-1])
        soon, soon_free = _medians(course.repelled[1]), _medians(course.free[1])
        divergences = [one.kl for one in course.repelled[-1]]
        spread = f"{min(divergences):.2f} to {max(divergences):.2f}"
        masses = [f"{one.repulsive_mass:.1%}" for one in (soon, soon_free, last)]
        rows.append(
            [name, f"{last.kl:.2f} ({spread})", f"{free.kl:.2f}", *masses, f"{last.modes:g}", f"{last.complexity:.2f}"]
        )
    expert, start = measure(expert_density()), next(iter(courses.values())).repelled[0][0]
    found = [f"{expert.repulsive_mass:.1%}", f"{expert.modes}", f"{expert.complexity:.2f}"]
    rows.append(["the expert itself", "0", "", "", "", *found])
    note = (
        f"Medians over {seeds} seeds after {times[-1]:,} steps, the KL with its range. At the start "
        f"{start.repulsive_mass:.1%} of the actions are in the repulsive region. Complexity: the divergence from the "
        "Gaussian with the same mean and covariance."
    )
    return Table(rows, [note])


def _medians(seeds: Sequence[Numbers]) -> Numbers:
    return Numbers(*np.median(np.array(seeds, float), 0))


def as_numbers(courses: dict[str, Course], times: Sequence[int]) -> dict[str, Any]:
    """Return the results as a table for JSON, with the versions behind them."""
    policies = {
        name: {
            kind: [
                {"step": time, "seeds": [one._asdict() for one in seeds]}
                for time, seeds in zip(times, over_time, strict=True)
            ]
            for kind, over_time in course._asdict().items()
        }
        for name, course in courses.items()
    }
    return {"policies": policies, "versions": versions()}


def draw(
    densities: dict[str, list[list[np.ndarray]]], courses: dict[str, Course], times: Sequence[int], path: Path
) -> None:
    """Draw a row per policy and a column per time, for the seed with the median divergence at the end."""
    plt = pyplot()
    points, _ = grid()
    x, y = points[..., 0], points[..., 1]
    expert, avoided = expert_density(), density(repulsive())
    side = 2.1
    figure, rows = plt.subplots(
        len(densities), len(times), figsize=(side * len(times), side * len(densities) + 0.6), layout="constrained",
        sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    for row, (name, over_time) in zip(rows, densities.items(), strict=True):
        course = courses[name].repelled
        seed = int(np.argsort([one.kl for one in course[-1]])[len(course[-1]) // 2])
        for axes, time, of_time, at_time in zip(row, times, over_time, course, strict=True):
            top = np.quantile(of_time[seed], 0.998)  # a sharp ridge should not make everything else invisible
            axes.imshow(of_time[seed], extent=(-SIDE, SIDE, -SIDE, SIDE), origin="lower", cmap="Greens", vmax=top)
            axes.contour(x, y, expert, levels=3, colors="tab:blue", linewidths=0.7)
            axes.contour(x, y, avoided, levels=3, colors="tab:red", linewidths=0.7)
            axes.text(-5.7, -5.5, f"KL {at_time[seed].kl:.2f}", fontsize="small")
            axes.set(xlim=(-SIDE, SIDE), ylim=(-SIDE, SIDE), xticks=(), yticks=())
            if axes in rows[0]:
                axes.set_title(f"step {time:,}", fontsize="medium")
        row[0].set_ylabel(name, fontsize="medium")
    figure.suptitle("Policies (green) that imitate an expert (blue) and are repelled by another policy (red)")
    figure.savefig(path, dpi=90)
    plt.close(figure)
