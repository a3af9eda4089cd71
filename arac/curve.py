"""The learning curve of a run as a picture."""

from pathlib import Path

from arac import metrics
from arac.plotting import pyplot


def draw(folder: Path, title: str) -> Path:
    """Writes curve.png into a run folder: every agent's fitness over environment steps, the champion's on top."""
    plt = pyplot()
    rows = metrics.read_evaluations(folder)
    steps = [row["env_steps"] for row in rows]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    members = len(rows[0]["fitness"])
    for member in range(members if members > 1 else 0):
        label = "each agent" if member == 0 else None
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
