"""Published returns that are drawn beside learning curves."""

from typing import NamedTuple

from arac.analysis import paper
from arac.analysis.curves import Curve
from arac.analysis.grouping import Group, Variant
from arac.analysis.summary import paper_value


class Reference(NamedTuple):
    """Published returns of an algorithm on a task."""

    name: str
    variant: Variant | None  # the one whose colour they have
    steps: tuple[int, ...]
    returns: tuple[float, ...]
    stds: tuple[float | None, ...]  # over seeds, where they are published


PUBLIC_SAC = "Public SAC"
PUBLIC_SAC_SOURCE = "ten seeds on Gymnasium's v4 tasks, from the files of single seeds that SimbaV2's authors publish"
# Mean and standard deviation by environment steps; the v5 tasks differ from v4 but for HalfCheetah.
_PUBLIC_SAC: dict[str, dict[int, tuple[float, float | None]]] = {
    "Ant": {100_000: (747, None), 300_000: (3532, None), 1_000_000: (5734, 639)},
    "HalfCheetah": {100_000: (6156, 700), 300_000: (8593, None), 1_000_000: (11321, 1051)},
    "Hopper": {100_000: (1103, 368), 300_000: (2160, None), 1_000_000: (2787, 823)},
    "Humanoid": {100_000: (632, 170), 300_000: (3015, None), 1_000_000: (4826, 1593)},
    "Walker2d": {100_000: (690, None), 300_000: (2470, None), 1_000_000: (4536, 469)},
}


def public_sac(task: str | None) -> Reference | None:
    """Return the public returns of SAC on a task of the paper; None if there are none."""
    if task not in _PUBLIC_SAC:
        return None
    returns, stds = zip(*_PUBLIC_SAC[task].values(), strict=True)
    return Reference(PUBLIC_SAC, None, tuple(_PUBLIC_SAC[task]), returns, stds)


def beside(groups: list[Group], curves: list[Curve]) -> list[Reference]:
    """Return the references of a task that lie within its learning curves.

    Args:
        groups: the task's groups of runs.
        curves: their learning curves.

    Returns:
        The public returns of SAC, and the paper's maxima at the end of its runs, of the algorithms that are shown.
    """
    last = max((curve.steps[-1] for curve in curves), default=0)
    public = public_sac(groups[0].paper_task) if groups else None
    found = {PUBLIC_SAC: public} if public else {}
    for group in groups:
        if group.paper_task and (value := paper_value(group)):
            name, steps = f"{group.variant.label}, paper's maximum", paper.steps(group.paper_task)
            found.setdefault(name, Reference(name, group.variant, (steps,), (value.mean,), (value.std,)))
    return [cut for one in found.values() if (cut := _until(one, last)).steps]


def _until(reference: Reference, last: float) -> Reference:
    count = sum(step <= last for step in reference.steps)
    return reference._replace(
        steps=reference.steps[:count], returns=reference.returns[:count], stds=reference.stds[:count]
    )
