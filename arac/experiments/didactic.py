"""The paper's bandit: one state, actions in the plane, an expert to imitate and a policy to stay away from.

What it shows is which shapes a policy can take: radial flows bend around the repulsive policy, a Gaussian cannot.
Each policy is trained with the library's own attraction-repulsion loss. What the paper leaves open is settled in
docs/deviations.md.
"""

import json
import math
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

from arac import streams
from arac.experiments.sweep import Job, Size
from arac.losses import Archived, Base, attraction_repulsion_loss
from arac.policies import FlowPolicy, gaussian
from arac.policies import flows as radial
from arac.policies.flow_policy import pre_tanh_log_prob
from arac.population import take
from arac.runs import versions

# The expert: a crescent around the repulsive policy, which stands where training starts.
EXPERT_RADIUS, EXPERT_STD = 2.6, 0.6
EXPERT_CENTRES = np.array([(math.cos(turn), math.sin(turn)) for turn in np.linspace(0, math.pi, 5)]) * EXPERT_RADIUS
REPULSIVE_STD = 1.0
REGION = 1.5  # within this distance of its centre are two thirds of the repulsive policy's actions
REPULSION = 10.0  # beta_t = 10 / (t + 1)
BATCH, LEARNING_RATE = 128, 0.02
_STATE = jnp.zeros((1, 1))


@dataclass(frozen=True)
class Contender:
    """A kind of policy. Attraction and repulsion act on its flows, or on its Gaussian where `base` says so."""

    flows: int
    sigma: float | None  # None: learned
    base: Base = "own"


CONTENDERS = {
    "Gaussian, learned variance": Contender(0, None, "gaussian"),
    **{f"{n} flow{'s' * (n != 1)}": Contender(n, 1.0) for n in range(5)},
}


class Numbers(NamedTuple):
    """What the density of a policy looks like."""

    kl: float  # KL(policy || expert), in nats
    repulsive_mass: float  # within REGION of the repulsive policy's centre
    modes: int  # peaks of at least a twentieth of the highest
    complexity: float  # KL(policy || the Gaussian with its moments): 0 for a Gaussian, whatever its form


def plan(size: Size) -> list[Job]:
    """No runs: it trains by itself, in seconds."""
    return []


def show(size: Size, parent: Path, out: Path) -> str:
    """Trains all contenders, writes table, numbers and picture into `out`; the table."""
    assert size.steps is not None
    times = sorted({0, *(size.steps // part for part in (100, 30, 10, 3)), size.steps})
    trained = {
        name: train(contender, size.seeds, times)
        for name, contender in rich.progress.track(CONTENDERS.items(), "training", len(CONTENDERS), transient=True)
    }
    densities = {
        name: [[density(take(at_time, seed)) for seed in range(size.seeds)] for at_time in over_time]
        for name, over_time in trained.items()
    }
    numbers = {name: [[measure(one) for one in seeds] for seeds in times] for name, times in densities.items()}
    out.mkdir(parents=True, exist_ok=True)
    table = as_table(numbers, size)
    (out / "didactic.md").write_text(table)
    (out / "didactic.json").write_text(json.dumps(as_numbers(numbers, times), indent=1) + "\n")
    draw(densities, numbers, times, out / "didactic.png")
    return table


def train(contender: Contender, seeds: int, times: list[int], l1: float = 0.0) -> list[FlowPolicy]:
    """The policies of all seeds, stacked, at each of the times; the first is the beginning."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(streams.key(0, "didactic"), jnp.arange(seeds))
    policies = jax.vmap(partial(_beginning, contender))(keys)
    optimiser = optax.adam(LEARNING_RATE)
    slope = jax.grad(partial(loss, contender.base, l1=l1))

    def step(time: Array, carried: Any) -> Any:
        policy, moments, key = carried
        update, moments = optimiser.update(slope(policy, time, jax.random.fold_in(key, time)), moments)
        return optax.apply_updates(policy, update), moments, key

    @jax.jit
    def between(first: int, last: int, carried: Any) -> Any:
        return jax.lax.fori_loop(first, last, lambda time, carried: jax.vmap(partial(step, time))(carried), carried)

    carried = policies, jax.vmap(optimiser.init)(policies), keys
    over_time = [policies]
    for first, last in pairwise(times):
        carried = between(first, last, carried)
        over_time.append(carried[0])
    return over_time


def loss(base: Base, policy: FlowPolicy, time: Array, key: jax.Array, *, l1: float = 0.0) -> Float[Array, ""]:
    """KL(policy || expert) by samples, the AR term with its fading weight, and the flows' size times `l1`."""
    state = jnp.broadcast_to(_STATE, (BATCH, 1))
    noise = jax.random.normal(key, (BATCH, 2))
    mean, log_std = policy.base(state)
    z = mean + jnp.exp(log_std) * noise
    x, log_det = radial.forward_log_det(policy.flows, z)
    imitation = (gaussian.log_density(z, mean, log_std) - log_det - expert_log_density(x)).mean()
    repelled = Archived(jax.tree.map(lambda leaf: leaf[None], repulsive()), jnp.array([REPULSION]) / (time + 1))
    repulsion, _ = attraction_repulsion_loss(policy, repelled, state, noise, base=base, kl_clip=None)
    size = sum(jnp.abs(flow.centre).sum() + jnp.abs(flow.alpha) + jnp.abs(flow.beta) for flow in policy.flows)
    return imitation + repulsion + l1 * size


def expert_log_density(x: Float[Array, "*batch 2"]) -> Float[Array, "*batch"]:
    """A mixture of Gaussians on half a circle."""
    log_std = jnp.full(2, math.log(EXPERT_STD))
    parts = [gaussian.log_density(x, jnp.asarray(centre), log_std) for centre in EXPERT_CENTRES]
    return logsumexp(jnp.stack(parts), axis=0) - math.log(len(parts))


def repulsive() -> FlowPolicy:
    return _beginning(Contender(0, REPULSIVE_STD), jax.random.key(0))


def _beginning(contender: Contender, key: jax.Array) -> FlowPolicy:
    """A standard normal around the origin, with flows near the identity."""
    policy = FlowPolicy.init(key, 1, 2, hidden=(), flows=contender.flows, sigma=contender.sigma)
    return replace(policy, base=jax.tree.map(jnp.zeros_like, policy.base))


def grid(points: int = 241) -> tuple[Float[np.ndarray, "row column 2"], float]:
    """The plane as the paper draws it, and the area of a cell."""
    side = np.linspace(-6, 6, points)
    return np.stack(np.meshgrid(side, side), -1), float(side[1] - side[0]) ** 2


def density(policy: FlowPolicy) -> Float[np.ndarray, "row column"]:
    """On the grid, before tanh: the bandit's actions are not squashed."""
    mean, log_std = policy.base(_STATE[0])
    return np.exp(np.asarray(pre_tanh_log_prob(jnp.asarray(grid()[0]), mean, log_std, policy.flows), np.float64))


def expert_density() -> Float[np.ndarray, "row column"]:
    return np.exp(np.asarray(expert_log_density(jnp.asarray(grid()[0])), np.float64))


def measure(of_policy: Float[np.ndarray, "row column"]) -> Numbers:
    """By sums over the grid."""
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
    """Cells that are higher than all around them, and not negligible."""
    from scipy.ndimage import maximum_filter

    return int(((maximum_filter(of_policy, 3) == of_policy) & (of_policy > of_policy.max() / 20)).sum())


def as_table(numbers: dict[str, list[list[Numbers]]], size: Size) -> str:
    lines = [
        "| policy | KL to the expert, nats | mass in the repulsive region | modes | complexity, nats |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, times in numbers.items():
        kl, mass, modes, complexity = np.median(np.array(times[-1], float), 0)
        spread = f"{min(one.kl for one in times[-1]):.2f} to {max(one.kl for one in times[-1]):.2f}"
        lines.append(f"| {name} | {kl:.2f} ({spread}) | {mass:.1%} | {modes:g} | {complexity:.2f} |")
    expert = measure(expert_density())
    first = next(iter(numbers.values()))[0][0]
    lines += [
        f"| *the expert itself* | 0 | {expert.repulsive_mass:.1%} | {expert.modes} | {expert.complexity:.2f} |",
        "",
        f"Medians over {size.seeds} seeds after {size.steps:,} steps, the KL with its range. At the start "
        f"{first.repulsive_mass:.1%} of the actions are in the repulsive region. Complexity: the divergence from the "
        "Gaussian with the same mean and covariance.",
    ]
    return "\n".join(lines) + "\n"


def as_numbers(numbers: dict[str, list[list[Numbers]]], times: list[int]) -> dict[str, Any]:
    policies = {
        name: [
            {"step": time, "seeds": [one._asdict() for one in seeds]}
            for time, seeds in zip(times, over_time, strict=True)
        ]
        for name, over_time in numbers.items()
    }
    return {"policies": policies, "versions": versions()}


def draw(
    densities: dict[str, list[list[np.ndarray]]], numbers: dict[str, list[list[Numbers]]], times: list[int], path: Path
) -> None:
    """A row per policy and a column per time, of the seed with the median divergence at the end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    points, _ = grid()
    x, y = points[..., 0], points[..., 1]
    expert, avoided = expert_density(), density(repulsive())
    side = 2.1
    figure, rows = plt.subplots(
        len(densities), len(times), figsize=(side * len(times), side * len(densities) + 0.6), layout="constrained",
        sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    for row, (name, over_time) in zip(rows, densities.items(), strict=True):
        last = [one.kl for one in numbers[name][-1]]
        seed = int(np.argsort(last)[len(last) // 2])
        for axes, time, of_time, at_time in zip(row, times, over_time, numbers[name], strict=True):
            top = np.quantile(of_time[seed], 0.998)  # a sharp ridge should not make all else invisible
            axes.imshow(of_time[seed], extent=(-6, 6, -6, 6), origin="lower", cmap="Greens", vmax=top)
            axes.contour(x, y, expert, levels=3, colors="tab:blue", linewidths=0.7)
            axes.contour(x, y, avoided, levels=3, colors="tab:red", linewidths=0.7)
            axes.text(-5.7, -5.5, f"KL {at_time[seed].kl:.2f}", fontsize="small")
            axes.set(xlim=(-6, 6), ylim=(-6, 6), xticks=(), yticks=())
            if axes in rows[0]:
                axes.set_title(f"step {time:,}", fontsize="medium")
        row[0].set_ylabel(name, fontsize="medium")
    figure.suptitle("Policies (green) that imitate an expert (blue) and are repelled by another policy (red)")
    figure.savefig(path, dpi=90)
    plt.close(figure)
