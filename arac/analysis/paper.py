"""The paper's table of returns, how it was made, and where it contradicts itself or other sources."""

from dataclasses import dataclass
from typing import NamedTuple

from arac.algorithms.presets import default_steps

SEEDS = 5
COLUMNS = ("arac", "cem_td3", "cerl", "erl", "sac_nf", "sac", "td3")  # algorithms in the order of the paper's table
CAVEAT = (
    "The paper's tasks were the v2 tasks of an older simulator that no longer installs, and its runs had 5 seeds and 1 "
    "million steps (2 million on HumanoidRllab, 600,000 on SparseHumanoid): compare rankings, not returns."
)


class Value(NamedTuple):
    """A return from the paper: mean and standard deviation over seeds."""

    mean: float
    std: float


@dataclass(frozen=True)
class Erratum:
    """A doubt about some of the paper's values."""

    task: str
    algorithms: tuple[str, ...]
    sentence: str


# Mean and standard deviation of the maximum average return over 5 seeds, from the appendix; in the order of COLUMNS.
_ROWS: dict[str, tuple[tuple[float, float], ...]] = {
    "Ant": ((6044, 216), (4239, 1048), (1639, 564), (1442, 819), (4912, 954), (4370, 173), (4372, 900)),
    "HalfCheetah": ((10264, 271), (10659, 1473), (5703, 831), (6746, 295), (8429, 818), (11896, 574), (9543, 978)),
    "Hopper": ((3587, 65), (3655, 82), (2970, 341), (1149, 3), (3538, 108), (2794, 729), (3564, 114)),
    "Humanoid": ((5965, 51), (212, 1), (4756, 454), (551, 60), (5506, 147), (5504, 116), (71, 10)),
    "HumanoidStandup": (
        (175_000, 38_000), (29_000, 4_000), (117_000, 8_000), (129_000, 4_000), (116_000, 9_000), (149_000, 7_000),
        (54_000, 24_000),
    ),
    "HumanoidRllab": ((14234, 7251), (1334, 551), (3340, 3340), (57, 17), (5531, 4435), (1963, 1384), (286, 151)),
    "Walker2d": ((4704, 261), (4710, 320), (4386, 615), (1107, 60), (5196, 527), (3783, 366), (4682, 539)),
    "SparseHumanoid": ((816, 20), (0, 0), (1.32, 2.64), (8.65, 15.90), (547, 268), (88, 159), (0, 0)),
}  # fmt: skip

TABLE = {
    task: {name: Value(*value) for name, value in zip(COLUMNS, values, strict=True)} for task, values in _ROWS.items()
}

ERRATA = (
    Erratum("Walker2d", ("arac",), "ARAC has 4,704 in the tables of returns, but 4,764 in the one against other work."),
    Erratum("Walker2d", ("cerl",), "The appendix prints 4,3860 for CERL; the main table has 4,386, used here."),
    Erratum("Hopper", ("arac",), "ARAC has 3,587 in the tables of returns, but 3,588 in the one against other work."),
    Erratum("Humanoid", ("arac",), "ARAC has 5,965 in the tables of returns, but 5,939 in the one against other work."),
    Erratum(
        "Humanoid", ("cem_td3",),
        "CEM-TD3's 212 ± 1 looks like a policy that does not move: the public code cuts the bound of the actions, 0.4, "
        "down to the whole number 0.",
    ),
    Erratum("Humanoid", ("td3",), "TD3 has 71; other public results are about 5,000."),
    Erratum(
        "HumanoidStandup", ("arac",),
        "ARAC has 175k in the tables of returns, but 163,884 in the one against other work.",
    ),
    Erratum(
        "HumanoidStandup", ("erl",), "ERL has 129k in the appendix, used here, and 1.29e4 in the main table."
    ),
    Erratum(
        "HumanoidRllab", ("arac",),
        "ARAC has 14,234 in the tables of returns, but 4,117 in the one against other work.",
    ),
    Erratum("HumanoidRllab", ("cerl",), "CERL's deviation, 3,340, is printed the same as its mean."),
    Erratum(
        "SparseHumanoid", ("arac", "sac_nf", "sac"),
        "The text calls ARAC the only method above zero; the table has 547 for SAC-NF and 88 for SAC.",
    ),
    *(
        Erratum(task, ("td3",), "TD3's mean is the one that TD3's authors printed for the v1 task.")
        for task in ("Ant", "Hopper", "Walker2d")
    ),
)  # fmt: skip


def value(task: str | None, algorithm: str) -> Value | None:
    """Return the paper's value for a task, by its preset's name, and an algorithm; None if there is none."""
    return TABLE.get(task or "", {}).get(algorithm)


def errata(task: str | None, algorithm: str | None = None) -> list[Erratum]:
    """Return the doubts about a task's values, or about one algorithm's value."""
    return [one for one in ERRATA if one.task == task and (algorithm is None or algorithm in one.algorithms)]


def steps(task: str) -> int:
    """Return the environment steps of the paper's runs on a task."""
    return default_steps(task)
