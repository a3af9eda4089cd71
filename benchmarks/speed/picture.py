"""The figure of the measurements: a panel for each part."""

from pathlib import Path
from typing import Any

from arac.utils.plotting import pyplot

NAMES = {"arac": "ours", "sbx": "SBX", "stable_baselines3": "Stable-Baselines3"}
COLOURS = {"arac": "tab:blue", "sbx": "tab:orange", "stable_baselines3": "tab:green"}


def draw(results: dict[str, Any], path: Path) -> None:
    plt = pyplot()
    panels = {
        "updates": _updates, "profile": _profile,
        "peers": _peers, "growth": _growth,
        "phases": _phases, "start": _start,
    }  # fmt: skip
    figure, axes = plt.subplots(3, 2, figsize=(13, 13), layout="constrained")
    for panel, (name, drawn) in zip(axes.flat, panels.items(), strict=True):
        if name in results:
            drawn(panel, results[name]["rows"])
        else:
            panel.text(
                0.5, 0.5, f"not measured: python -m benchmarks.speed {name}", ha="center", transform=panel.transAxes
            )
            panel.set_axis_off()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _updates(axes: Any, rows: list[dict[str, Any]]) -> None:
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    kinds = list(dict.fromkeys(row["update"] for row in rows))
    for place, kind in enumerate(kinds):
        ratios = [next(row["ratio"] for row in rows if (row["task"], row["update"]) == (task, kind)) for task in tasks]
        axes.bar([x + 0.27 * (place - 1) for x in range(len(tasks))], ratios, width=0.25, label=kind)
    axes.axhline(0.85, color="0.5", linewidth=1, linestyle="--")
    axes.set_xticks(range(len(tasks)), tasks, rotation=30, ha="right")
    axes.set(ylim=(0, 1.2), ylabel="products alone / whole update", title="Updates against the machine's limit")
    axes.legend(frameon=False, ncols=3, loc="upper center")


def _peers(axes: Any, rows: list[dict[str, Any]]) -> None:
    groups = list(dict.fromkeys((row["task"], row["what"]) for row in rows))
    seen = set()
    for place, group in enumerate(groups):
        ours = [row for row in rows if (row["task"], row["what"]) == group]
        for number, row in enumerate(ours):
            label = None if row["library"] in seen else NAMES[row["library"]]
            seen.add(row["library"])
            x = place + 0.27 * (number - (len(ours) - 1) / 2)
            axes.bar(x, row["ms_per_step"], width=0.25, color=COLOURS[row["library"]], label=label)
            axes.text(x, row["ms_per_step"], f"{row['ms_per_step']:.1f}", ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(groups)), [f"{what}\n{task}" for task, what in groups], fontsize=8)
    highest = max(row["ms_per_step"] for row in rows)
    axes.set(ylim=(0, 1.2 * highest), ylabel="ms per environment step", title="Whole runs; lower is better")
    axes.legend(frameon=False, ncols=3, loc="upper left")


def _growth(axes: Any, rows: list[dict[str, Any]]) -> None:
    labels = {
        "members": "members: a whole run, relative to 5",
        "replay": "transitions in replay: a critic update",
        "workers": "workers: an evaluation",
    }
    ticks: dict[str, float] = {}
    for what, label in labels.items():
        ours = [row for row in rows if row["what"] == what]
        places = [len(ticks) + number for number in range(len(ours))]
        ticks |= {f"{row['size']:,}\n{what}": place for row, place in zip(ours, places, strict=True)}
        axes.plot(places, [row["ratio"] for row in ours], marker="o", label=label)
    axes.axhline(1.25, color="0.5", linewidth=1, linestyle="--")
    axes.set_xticks(list(ticks.values()), list(ticks), fontsize=8)
    axes.set(ylim=(0, None), ylabel="time, relative", title="Growth of the cost")
    axes.legend(frameon=False, fontsize=8)


def _profile(axes: Any, rows: list[dict[str, Any]]) -> None:
    _stacked(axes, {f"{row['task']}: {row['update']}": row["shares"] for row in rows})
    axes.set(title="Time of an update by operation")


def _phases(axes: Any, rows: list[dict[str, Any]]) -> None:
    _stacked(axes, {row["task"]: row["shares"] for row in rows})
    axes.set(title="Time of a run of ARAC by phase")


def _stacked(axes: Any, bars: dict[str, dict[str, float]]) -> None:
    left = [0.0] * len(bars)
    for number, name in enumerate(next(iter(bars.values()))):
        widths = [100 * shares[name] for shares in bars.values()]
        axes.barh(list(bars), widths, left=left, label=name, color=f"C{number}")
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set(xlabel="percent of the time", xlim=(0, 100))
    axes.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.14), fontsize=8)


def _start(axes: Any, rows: list[dict[str, Any]]) -> None:
    bars = axes.barh([f"start {row['start']}" for row in rows], [row["seconds"] for row in rows], color="tab:blue")
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.margins(x=0.1)
    axes.invert_yaxis()
    axes.set(xlabel="seconds", title="From the command to the first environment step")
