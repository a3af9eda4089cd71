"""The learning curves as PNG and PDF: as measured, as the paper draws them, and robust, with a panel for each task."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from math import ceil
from pathlib import Path
from typing import Any, Literal

import numpy as np

from arac.algorithms.registry import ALGORITHMS, Look
from arac.analysis.curves import WINDOW, Band, Curve
from arac.analysis.grouping import Study, Variant
from arac.analysis.references import PUBLIC_SAC, Reference, beside
from arac.analysis.statistics import LEAST_RUNS
from arac.utils.plotting import pyplot

# The looks of variants, and of algorithms that define none.
_OTHERS = (
    Look("#7a4a21", "#d9a877", "*"),
    Look("#4a3aa7", "#a9a0ff", "<"),
    Look("#b3266f", "#ff8fc3", ">"),
    Look("#3b6b12", "#a9d86e", "p"),
    Look("#1f6f7a", "#7fdbe6", "h"),
    Look("#8a6d00", "#e0cf6a", "d"),
)
STYLES = {
    "mean": "mean ± one standard deviation over seeds, as measured",
    "paper": "mean ± one standard deviation over seeds, Savitzky-Golay window 7",
    "robust": f"interquartile mean, with 95 % interval from {LEAST_RUNS} seeds on, as measured",
}
_PUBLIC = "0.35"
_MARKS = {True: "x", False: "*"}  # public returns, and the paper's maximum
_LETTERS = 13  # letters of a legend per inch
_LONGEST = 48  # letters of a label: more do not fit below one panel
_ROUGH = f"not smoothed, under {WINDOW} evaluations: "
Curves = Mapping[tuple[str, Variant], Curve]


def looks(variants: Iterable[Variant]) -> dict[Variant, Look]:
    """Return the look of each algorithm, and the next free one for a variant with settings."""
    free, found = cycle(_OTHERS), {}
    for variant in variants:
        look = ALGORITHMS[variant.algorithm].look
        found[variant] = look if look and not variant.settings else next(free)
    return found


def references_on(task: str, study: Study, curves: Curves) -> list[Reference]:
    """Return the published returns that belong beside a task's curves."""
    return beside(study.on(task), [curve for (of, _), curve in curves.items() if of == task])


def draw(study: Study, curves: Curves, out: Path) -> None:
    """Write curves_mean, curves_paper and curves_robust, as .png and .pdf; `curves` are by task and variant."""
    plt = pyplot()
    tasks = [task for task in study.tasks if any(of == task for of, _ in curves)]
    if not tasks:
        return
    seen = looks(study.variants)
    columns = {1: 1, 2: 2, 4: 2}.get(len(tasks), 3 if len(tasks) <= 6 else 4)
    handles = [_handle(seen[one], str(one)) for one in study.variants if any(of == one for _, of in curves)]
    published = {task: references_on(task, study, curves) for task in tasks}
    kinds = {one.variant is None for shown in published.values() for one in shown}
    handles += [_reference_handle(public) for public in sorted(kinds, reverse=True)]
    longest = max(len(handle.get_label()) for handle in handles)
    beside = max(min(len(handles), 4, int(_LETTERS * 4.4 * columns / (longest + 8))), 1)  # 8: line, mark and gap
    size = (4.4 * columns, 3.3 * ceil(len(tasks) / columns) + 0.7 + 0.22 * ceil(len(handles) / beside))
    for style, words in STYLES.items():
        figure, panels = plt.subplots(
            ceil(len(tasks) / columns), columns, figsize=size, layout="constrained", squeeze=False
        )
        for axes, task in zip(panels.flat, tasks, strict=False):
            _panel(axes, task, {variant: one for (of, variant), one in curves.items() if of == task}, style, seen)
            _mark(axes, published[task], seen)
        for axes in panels.flat[len(tasks) :]:
            axes.set_axis_off()
        figure.suptitle(f"Return of the champion: {words}", fontsize="medium")
        figure.legend(handles=handles, loc="outside lower center", ncols=beside, frameon=False)
        figure.savefig(out / f"curves_{style}.png", dpi=150)
        figure.savefig(out / f"curves_{style}.pdf", metadata={"CreationDate": None})
        plt.close(figure)


def _panel(axes: Any, task: str, curves: Mapping[Variant, Curve], style: str, seen: Mapping[Variant, Look]) -> None:
    rough = []
    for variant, curve in curves.items():
        look = seen[variant]
        band: Band = getattr(curve, style)
        every = ceil(len(curve.steps) / 12)
        marks = {"marker": look.marker, "markersize": 4, "markevery": every}
        axes.fill_between(curve.steps, band.low, band.high, color=look.light, alpha=0.15, linewidth=0)
        axes.plot(curve.steps, band.value, color=look.light, linewidth=1, linestyle=":", alpha=0.8)
        full = np.where(curve.count == len(curve.runs), band.value, np.nan)
        axes.plot(curve.steps, full, color=look.light, linewidth=1.8, **marks)
        if not curve.smoothed:
            rough.append(str(variant))
    axes.set_title(_plain(task), fontsize="medium", loc="left")
    if rough and style == "paper":
        which = "all" if len(rough) == len(curves) else ", ".join(rough)
        text = axes.text(0.01, 0.99, _ROUGH + _plain(which), fontsize=7, va="top", transform=axes.transAxes)
        text.set_in_layout(False)
    axes.set(xlabel="environment steps", ylabel="return")
    axes.xaxis.set_major_formatter(_short)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _mark(axes: Any, references: Sequence[Reference], seen: Mapping[Variant, Look]) -> None:
    for one in references:
        color = _PUBLIC if one.variant is None else seen[one.variant].light
        spread = [std or 0.0 for std in one.stds]
        axes.errorbar(
            one.steps, one.returns, spread, fmt=_MARKS[one.variant is None], color=color, markersize=7, linewidth=0.8
        )


def _plain(text: str) -> str:
    """Escape dollars, between which Matplotlib reads formulas, and shorten text that would leave a panel no room."""
    return (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…").replace("$", r"\$")


def _short(steps: float, _place: int | None = None) -> str:
    return f"{steps / 1e6:g}M" if abs(steps) >= 1e6 else f"{steps / 1e3:g}k" if steps else "0"


def _reference_handle(public: bool) -> Any:
    label = f"{PUBLIC_SAC}, v4" if public else "paper's maximum"
    return _handle(Look(_PUBLIC if public else "black", "", _MARKS[public]), label, linestyle="")


def _handle(look: Look, label: str, linestyle: Literal["-", ""] = "-") -> Any:
    from matplotlib.lines import Line2D

    return Line2D(
        [],
        [],
        color=look.light,
        marker=look.marker,
        markersize=5,
        linewidth=1.8,
        linestyle=linestyle,
        label=_plain(label),
    )
