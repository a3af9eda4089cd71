"""Figures of the divergence between members."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from arac.algorithms.arac import ARACConfig
from arac.population.diversity import mean_kl
from arac.utils.plotting import pyplot

if TYPE_CHECKING:
    from arac.experiments.repulsion import Outcome

_LEAST_SHOWN = 0.01  # nats: the dark end of the matrices' colours


def draw_courses(outcomes: "Sequence[Outcome]", path: Path) -> None:
    """Draw divergence, entropy and return over training time: a row per task, a thin line per seed."""
    plt = pyplot()
    envs = list(dict.fromkeys(outcome.env for outcome in outcomes))
    figure, rows = plt.subplots(
        len(envs), 3, figsize=(12, 3.2 * len(envs)), layout="constrained", squeeze=False, sharex="row"
    )
    for row, env in zip(rows, envs, strict=True):
        of_env = [outcome for outcome in outcomes if outcome.env == env]
        for variant, colour in zip(dict.fromkeys(o.variant for o in of_env), plt.cm.tab10.colors, strict=False):
            ours = [outcome.course for outcome in of_env if outcome.variant == variant]
            for axes, name in zip(row, ("kl", "entropy", "returns"), strict=True):
                for course in ours:
                    axes.plot(course.steps, getattr(course, name), color=colour, linewidth=0.6, alpha=0.5)
                if len({len(course.steps) for course in ours}) == 1:
                    mean = np.mean([getattr(course, name) for course in ours], 0)
                    axes.plot(ours[0].steps, mean, color=colour, linewidth=2, label=variant)
        row[0].set(yscale="log", ylabel=env)
        row[0].axhline(ARACConfig.ar_target, color="black", linestyle=":", linewidth=1)
    for axes, title in zip(
        rows[0],
        ("KL between members, nats (dotted: the target)", "entropy, nats", "champion's return"),
        strict=True,
    ):
        axes.set_title(title, fontsize="medium")
    for axes in rows[-1]:
        axes.set_xlabel("environment steps")
    rows[0][0].legend(fontsize="small")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw(outcomes: "Sequence[Outcome]", path: Path) -> None:
    """Draw a row per outcome: each state through one t-SNE for all members, and the matrix of divergences."""
    plt = pyplot()
    drawn = len(outcomes[0].points)
    columns = drawn + 1
    figure, rows = plt.subplots(
        len(outcomes), columns, figsize=(4 * columns, 3.7 * len(outcomes)), layout="constrained", squeeze=False
    )
    top = max(outcome.kl.max() for outcome in outcomes)
    for row, outcome in zip(rows, outcomes, strict=True):
        for state, axes in enumerate(row[:drawn]):
            own = outcome.own_neighbours[state]
            for member, points in enumerate(outcome.points[state]):
                axes.scatter(*points.T, s=4, linewidths=0, label=f"member {member}")
            axes.set(xticks=(), yticks=(), title=f"state {state + 1}: {own:.0%} nearest to the same member")
        row[0].set_ylabel(f"{outcome.env}, {outcome.variant}", fontsize="large")
        _matrix(row[-1], outcome.kl, top)
    rows[0][0].legend(markerscale=3, fontsize="small")
    actions = f"{outcomes[0].points.shape[2]} actions of each member in {drawn} states (t-SNE)"
    figure.suptitle(f"{actions}, the share whose nearest action is of the same member, and the divergence")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _matrix(axes: Any, kl: Float[np.ndarray, "member member"], top: float) -> None:
    from matplotlib.colors import LogNorm

    scale = LogNorm(_LEAST_SHOWN, max(top, 10 * _LEAST_SHOWN), clip=True)
    axes.imshow(np.maximum(kl, _LEAST_SHOWN), cmap="viridis", norm=scale)
    for (row, column), value in np.ndenumerate(kl):
        colour = "white" if scale(value) < 0.5 else "black"
        axes.text(column, row, f"{max(value, 0):.{2 if value < 10 else 0}f}", ha="center", va="center", color=colour)
    mean = mean_kl(kl)
    axes.set(xticks=range(len(kl)), yticks=range(len(kl)), title=f"KL(row ‖ column), nats: mean {mean:.2f}")
