"""The learning curve of a run, as a picture and in the terminal."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from arac.storage import metrics
from arac.utils.plotting import pyplot

_LEVELS = "▁▂▃▄▅▆▇█"  # eighths of a character, from below


def draw(folder: Path, title: str) -> Path:
    """Draw each member's fitness over environment steps, the champion's on top, to curve.png; return its path."""
    plt = pyplot()
    rows = metrics.read_evaluations(folder)
    steps = [row["env_steps"] for row in rows]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    members = len(rows[0]["fitness"])
    for member in range(members if members > 1 else 0):
        label = "each member" if member == 0 else None
        axes.plot(steps, [row["fitness"][member] for row in rows], color="0.7", linewidth=1, marker=".", label=label)
    best = [row["champion_return"] for row in rows]
    spread = [row["champion_return_std"] for row in rows]
    axes.fill_between(
        steps,
        [mean - std for mean, std in zip(best, spread, strict=True)],
        [mean + std for mean, std in zip(best, spread, strict=True)],
        color="tab:blue",
        alpha=0.2,
        linewidth=0,
    )
    axes.plot(steps, best, color="tab:blue", linewidth=2, marker=".", label="champion (± std over its episodes)")
    axes.set_title(title, fontsize="medium")
    axes.set(xlabel="environment steps", ylabel="return per episode, without noise")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    path = folder / "curve.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def in_terminal(steps: Sequence[int], returns: Sequence[float], *, width: int = 72, height: int = 10) -> str:
    """Draw a curve with characters: returns over environment steps, with the numbers at both axes' ends.

    Args:
        steps: environment steps of each evaluation, in increasing order.
        returns: return of each evaluation.
        width: columns of the drawing, labels included.
        height: rows of the curve itself.

    Returns:
        The drawing: `height` rows, and the axis below them.
    """
    labels = [f"{max(returns):,.0f}", f"{min(returns):,.0f}"]
    margin = max(map(len, labels))
    columns = max(width - margin - 2, 10)
    low, span = min(returns), max(returns) - min(returns)
    rows = [[" "] * columns for _ in range(height)]
    for column, value in enumerate(np.interp(np.linspace(steps[0], steps[-1], columns), steps, returns)):
        level = (value - low) / span * height if span else 0.0  # in rows from below
        row = min(math.floor(level), height - 1)
        rows[height - 1 - row][column] = _LEVELS[min(math.floor((level - row) * len(_LEVELS)), len(_LEVELS) - 1)]
        for below in range(row):
            rows[height - 1 - below][column] = _LEVELS[-1]
    heads = [labels[0].rjust(margin), *[" " * margin] * (height - 2), labels[1].rjust(margin)]
    first, last = f"{steps[0]:,}", f"{steps[-1]:,} steps"
    return "\n".join(
        [
            *(f"{head} ┤{''.join(row)}" for head, row in zip(heads, rows, strict=True)),
            f"{' ' * margin} └{'─' * columns}",
            f"{' ' * margin}  {first}{last.rjust(columns - len(first))}",
        ]
    )
