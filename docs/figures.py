"""Draw the figures of docs/explained.md with the library's flows, archive, betas and loss: `make figures`."""

import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from arac.learning.losses import TargetPolicies, attraction_repulsion_loss
from arac.models.policies import FlowPolicy, gaussian
from arac.models.policies import radial_flow as radial
from arac.models.policies.flow_policy import pre_tanh_log_prob
from arac.models.policies.gaussian import Gaussian
from arac.models.policies.radial_flow import RadialFlow
from arac.population.archive import Archive, betas, two_means
from arac.utils import plotting

LOW, HIGH, PLAIN = "#d1711f", "#2b6cb0", "#9aa0a6"
EDGE = 2.6  # half of the edge of the drawn plane
WIDTH = 0.8  # standard deviation of the base
TEMPERATURE, SLOPE, LAMBDA = 0.2, 0.15, 0.4  # of the losses that train an elite


def flow(centre, alpha, beta):
    """Return a radial flow with the paper's parameters."""
    return RadialFlow(jnp.array(centre), _raw(alpha), _raw(alpha + beta))


def _raw(value):
    return jnp.log(jnp.expm1(value))  # the library stores the argument of softplus


def density(flows, mean=(0.0, 0.0)):
    """Return a grid's axis and the exact density on the grid, by the flows' inverse."""
    axis = np.linspace(-EDGE, EDGE, 201)
    points = jnp.asarray(np.stack(np.meshgrid(axis, axis), -1), jnp.float32)
    mean = jnp.array(mean)
    return axis, np.exp(pre_tanh_log_prob(points, mean, jnp.full(2, np.log(WIDTH)), flows))


def show(axes, flows, title, mean=(0.0, 0.0)):
    axis, values = density(flows, mean)
    axes.contourf(axis, axis, values, levels=12, cmap="Blues")
    axes.set(title=title, xlim=(-EDGE, EDGE), ylim=(-EDGE, EDGE), xticks=[], yticks=[], aspect="equal")


def draw_flows(plt):
    """Draw a Gaussian, two single flows and three flows in a row."""
    out, pull = flow((0.7, 0.0), 0.4, 1.2), flow((0.7, 0.0), 1.6, -0.9)
    three = (out, flow((-1.1, 0.8), 0.4, 0.7), flow((-0.9, -1.3), 1.5, -0.6))
    figure, panels = plt.subplots(1, 4, figsize=(11, 3.1), layout="constrained")
    for axes, flows, title in zip(
        panels,
        [(), (out,), (pull,), three],
        [
            "the base: a Gaussian",
            "one flow, beta > 0: pushed out",
            "one flow, beta < 0: drawn in",
            "three flows in a row",
        ],
        strict=True,
    ):
        show(axes, flows, title)
        for one in flows:
            axes.plot(*one.centre, "x", color=LOW, markersize=7, markeredgewidth=2)
    return figure


def draw_archive(plt):
    """Draw the policies that the archive has at the end of a run with rising fitness, among all evaluated ones."""
    rng, members, evaluations = np.random.default_rng(0), 5, 60
    archive, seen = Archive.empty({"born": jnp.zeros(())}, 20), []
    for number in range(evaluations):
        fitness = 3000 / (1 + np.exp(-(number - 25) / 7)) * rng.uniform(0.55, 1.05, members) + rng.normal(
            60, 40, members
        )
        archive = archive.add({"born": jnp.full(members, float(number))}, fitness, 0, rng)
        seen += [(number, value) for value in fitness]
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    axes.scatter(*zip(*seen, strict=True), s=9, color=PLAIN, alpha=0.6, label="every policy that was evaluated")
    born = np.asarray(archive.policies["born"])
    for niche, colour, name in zip(two_means(archive.fitness), (LOW, HIGH), ("low", "high"), strict=True):
        label = f"kept at the end: the {name} niche ({len(niche)})"
        axes.scatter(born[niche], archive.fitness[niche], s=46, color=colour, label=label)
        axes.axhline(archive.fitness[niche].mean(), color=colour, linewidth=0.8, linestyle="--")
    axes.set(xlabel="evaluation", ylabel="fitness", title="An archive of 20 after 60 evaluations of five agents")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    return figure


def draw_betas(plt):
    """Draw the coefficient of each sampled policy by its fitness."""
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    fitness = np.linspace(0, 1, 101)
    drawn = np.array([0.0, 0.18, 0.55, 0.8, 1.0])
    for strategy, colour in (("proactive", HIGH), ("reactive", LOW)):
        axes.plot(fitness, betas(fitness, strategy), color=colour, label=strategy)
        axes.plot(drawn, betas(drawn, strategy), "o", color=colour)
    axes.axhspan(0, 1.1, color="#fdecdf", zorder=0)
    axes.axhspan(-1.1, 0, color="#e3eefa", zorder=0)
    axes.text(0.02, -0.95, "below 0: towards that policy")
    axes.text(0.98, 0.95, "above 0: away from it", ha="right", va="center")
    axes.set(xlabel="fitness, from the worst (0) to the best (1) of the drawn policies", ylabel="beta")
    axes.set(xlim=(-0.02, 1.02), ylim=(-1.1, 1.1))
    axes.legend(frameon=False, loc="center right", bbox_to_anchor=(1, 0.68))
    return figure


def draw_attraction_and_repulsion(plt):
    """Draw a policy after attraction to an archived one, and after repulsion from it."""
    archived = (flow((-0.5, 0.3), 0.5, 0.8), flow((1.1, -0.6), 1.0, -0.5))
    keys = jax.random.split(jax.random.key(3), 2)
    start = tuple(RadialFlow.init(key, 2) for key in keys)
    figure, panels = plt.subplots(1, 4, figsize=(11, 3.3), layout="constrained")
    axis, outline = density(archived)
    for axes, title, (flows, mean) in (
        (panels[0], "the archived policy", (archived, (0.0, 0.0))),
        (panels[1], "lambda = 0", trained(start, archived, 0.0)),
        (panels[2], "beta = -1: towards it", trained(start, archived, -1.0)),
        (panels[3], "beta = 1: away from it", trained(start, archived, 1.0)),
    ):
        show(axes, flows, title, mean)
        axes.contour(axis, axis, outline, levels=[0.4 * outline.max()], colors=LOW, linewidths=1.2, linestyles="--")
    return figure


@jax.jit
def trained(flows, archived, beta):
    """Return flows and mean after 1,500 steps on SAC's loss, with a wide optimum in the middle, and the AR loss."""
    others = TargetPolicies(
        jax.tree.map(lambda leaf: leaf[None], FlowPolicy(at((0.0, 0.0)), archived)), jnp.array([beta])
    )
    optimiser, states = optax.adam(0.01), jnp.zeros((256, 1))

    def loss(learned, noise):
        flows, mean = learned
        z = mean + WIDTH * noise
        x, log_det = radial.forward_log_det(flows, z)
        log_pi = gaussian.log_density(z, mean, jnp.full(2, np.log(WIDTH))) - log_det
        options = {"divergence": "bounded", "base": "whole", "kl_clip": None}
        force, _ = attraction_repulsion_loss(FlowPolicy(at(mean), flows), others, states, noise, **options)
        return (TEMPERATURE * log_pi + SLOPE * (x**2).sum(-1)).mean() + LAMBDA * force

    def step(carry, key):
        learned, moments = carry
        gradient = jax.grad(loss)(learned, jax.random.normal(key, (256, 2)))
        updates, moments = optimiser.update(gradient, moments)
        return (optax.apply_updates(learned, updates), moments), None

    start = flows, jnp.zeros(2)
    (learned, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), jax.random.split(jax.random.key(0), 1500))
    return learned


def at(mean):
    """Return a base that is the same Gaussian in every state."""
    zeros = jax.tree.map(jnp.zeros_like, Gaussian.init(jax.random.key(0), (1, 2), WIDTH))
    return Gaussian(replace(zeros.network, biases=(jnp.asarray(mean),)), WIDTH)


FIGURES = {
    "flows": draw_flows,
    "archive": draw_archive,
    "betas": draw_betas,
    "attraction_and_repulsion": draw_attraction_and_repulsion,
}


def main(folder):
    plt = plotting.pyplot()
    for name, draw in FIGURES.items():
        figure = draw(plt)
        figure.savefig(folder / f"{name}.png", dpi=150)
        plt.close(figure)
        print(folder / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images")
