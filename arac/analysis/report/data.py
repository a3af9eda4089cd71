"""The data that the page's scripts draw, as plain lists and numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from arac.algorithms.registry import Look
from arac.analysis import figures, tables
from arac.analysis.curves import WINDOW, Band, Curve
from arac.analysis.grouping import Study, Variant
from arac.analysis.references import Reference
from arac.analysis.summary import THRESHOLDS, Comparison
from arac.storage.run_records import Record

_NOTE = (
    "Each run counts with its evaluation nearest to the last step that all finished runs of its task have reached, or "
    "all runs where none is finished ({at}). {left_out}"
    "Normalised: 0 is the worst run of a task among those shown, 1 the best; tasks with runs all alike are left out."
)


def collect(
    study: Study,
    curves: figures.Curves,
    comparisons: Sequence[Comparison],
    index: Mapping[Variant, int],
    looks: Mapping[Variant, Look],
) -> dict[str, Any]:
    """Return all data of the page, with each variant as its number in `index`."""
    tasks = [task for task in study.tasks if any(of == task for of, _ in curves)]
    return {
        "window": WINDOW,
        "thresholds": THRESHOLDS.tolist(),
        "variants": [
            {"label": str(variant), "name": variant.label, "settings": variant.settings, "mark": looks[variant].marker}
            for variant in index
        ],
        "tasks": [
            {
                "name": task,
                "curves": _curves(study, curves, task, index),
                "references": [_reference(one, index) for one in figures.references_on(task, study, curves)],
            }
            for task in tasks
        ],
        "comparisons": [_comparison(one, index) for one in comparisons],
        "runs": [
            _run(record, index[group.variant], f"{group.task} · {group.variant} · seed {record.seed}")
            for group in study.groups
            for record in group.measured
        ],
    }


def _curves(study: Study, curves: figures.Curves, task: str, index: Mapping[Variant, int]) -> list[dict[str, Any]]:
    return [
        _curve(curves[task, group.variant], group.measured, index[group.variant])
        for group in study.on(task)
        if (task, group.variant) in curves
    ]


def _curve(curve: Curve, records: Sequence[Record], variant: int) -> dict[str, Any]:
    return {
        "variant": variant,
        "steps": curve.steps.tolist(),
        "count": curve.count.tolist(),
        "total": len(records),
        "smoothed": curve.smoothed,
        "mean": _band(curve.mean),
        "paper": _band(curve.paper),
        "robust": _band(curve.robust),
        "runs": [{"seed": record.seed, "x": record.steps.tolist(), "y": record.returns.tolist()} for record in records],
    }


def _reference(one: Reference, index: Mapping[Variant, int]) -> dict[str, Any]:
    known = [(place, std) for place, std in enumerate(one.stds) if std is not None]
    low: list[float | None] = [None] * len(one.stds)
    high = list(low)
    for place, std in known:
        low[place], high[place] = one.returns[place] - std, one.returns[place] + std
    variant = None if one.variant is None else index[one.variant]
    return {"name": one.name, "variant": variant, "x": one.steps, "y": one.returns, "low": low, "high": high}


def _band(band: Band) -> dict[str, list[float]]:
    return {name: line.tolist() for name, line in zip(Band._fields, band, strict=True)}


def _comparison(one: Comparison, index: Mapping[Variant, int]) -> dict[str, Any]:
    at = ", ".join(f"{task} at {steps:,}" for task, steps in one.at.items())
    left_out = "".join(f"{tables.left_out(task, one.at[task], runs)} " for task, runs in one.left_out.items())
    return {
        "scope": one.scope,
        "tasks": one.tasks,
        "note": _NOTE.format(at=at, left_out=left_out),
        "interquartile": [
            {"variant": index[variant], "tasks": one.tasks_of[variant], **value._asdict()}
            for variant, value in one.interquartile.items()
        ],
        "improvement": [
            {"variant": index[variant], "over": {index[other]: value._asdict() for other, value in over.items()}}
            for variant, over in one.improvement.items()
        ],
        "profile": [{"variant": index[variant], "values": line.tolist()} for variant, line in one.profile.items()],
    }


def _run(record: Record, variant: int, name: str) -> dict[str, Any]:
    return {"name": name, "variant": variant, **record.series()}
