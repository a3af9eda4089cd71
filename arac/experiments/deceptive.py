"""How often each system finds the optimum of the deceptive task, and where its agents go."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import rich.progress

from arac.envs import deceptive
from arac.envs.tasks import full_name
from arac.experiments.outputs import write
from arac.experiments.planning import Size, planned, slug
from arac.experiments.playing import play_each
from arac.plotting import pyplot
from arac.runs import versions
from arac.sweeps.jobs import Job, run_name
from arac.systems import load

ENV = "DeceptivePoint"
# Small networks and a higher learning rate: seconds per run. The same for all, as far as a system has the setting.
SETTINGS: dict[str, Any] = {
    "hidden_size": 64, "batch_size": 128, "learning_rate": 1e-3, "warmup_steps": 1000, "eval_interval": 1000,
    "eval_episodes": 2, "replay_capacity": 100_000,
}  # fmt: skip
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "ARAC, lambda 1": ("arac", {"temperature": 0.05, "actor_coefficient": 2.0, "ar_coefficient": 1.0}),
    "ARAC, lambda 0": ("arac", {"temperature": 0.05, "actor_coefficient": 2.0, "ar_coefficient": 0.0}),
    "SAC-NF": ("sac_nf", {"temperature": 0.05}),
    "SAC": ("sac", {}),
}
# More than the trap can pay in a whole episode: who has that was on the other side.
FOUND = deceptive.NEAR_REWARD * deceptive.HORIZON
FRESH_EPISODES = 10


@dataclass(frozen=True)
class Outcome:
    """What became of one run."""

    system: str
    seed: int
    score: float  # of the champion, over fresh episodes
    paths: list[np.ndarray]  # of every agent at the end, without noise: positions over an episode
    champion: int

    @property
    def found(self) -> bool:
        return self.score > FOUND


def plan(size: Size) -> list[Job]:
    """Every system with every seed."""
    return [
        planned(replace(size, settings=SETTINGS), algorithm, ENV, seed, slug(system), settings)
        for seed in range(size.seeds)
        for system, (algorithm, settings) in SYSTEMS.items()
    ]


def show(size: Size, parent: Path, out: Path) -> str:
    """Writes table, numbers and picture of finished runs into `out`; the table."""
    assert size.steps is not None
    systems = [(system, seed) for seed in range(size.seeds) for system in SYSTEMS]
    outcomes = [
        outcome(system, seed, parent / run_name(ENV, slug(system), seed))
        for system, seed in rich.progress.track(systems, "measuring", transient=True)
    ]
    table = as_table(outcomes, size.steps)
    write(out, "deceptive", table, as_numbers(outcomes, size.steps))
    draw(outcomes, out / "deceptive.png")
    return table


def outcome(system: str, seed: int, folder: Path) -> Outcome:
    agent = load(folder)
    return Outcome(
        system=system,
        seed=seed,
        score=agent.evaluate(FRESH_EPISODES).mean,
        paths=[episode.observations for episode in play_each(agent)],
        champion=agent.state.champion,
    )


def as_table(outcomes: Sequence[Outcome], steps: int) -> str:
    from scipy.stats import binomtest

    lines = [
        "| system | optimum found | 95 % interval | champion's return, mean over seeds |",
        "| --- | --- | --- | --- |",
    ]
    for system in SYSTEMS:
        ours = [outcome for outcome in outcomes if outcome.system == system]
        found = sum(outcome.found for outcome in ours)
        low, high = binomtest(found, len(ours)).proportion_ci(method="wilson")
        mean = np.mean([outcome.score for outcome in ours])
        lines.append(f"| {system} | {found} of {len(ours)} | {low:.0%} to {high:.0%} | {mean:.1f} |")
    best = deceptive.HORIZON * deceptive.FAR_REWARD
    lines += [
        "",
        f"{full_name(ENV)}, {steps:,} environment steps each. Found: the champion's mean return over {FRESH_EPISODES} "
        f"fresh episodes is above {FOUND:g}, the most that the trap can pay; no policy can have more than {best:g}.",
    ]
    return "\n".join(lines) + "\n"


def as_numbers(outcomes: Sequence[Outcome], steps: int) -> dict[str, Any]:
    runs = [{"system": o.system, "seed": o.seed, "found": o.found, "score": o.score} for o in outcomes]
    return {"steps": steps, "settings": SETTINGS, "systems": SYSTEMS, "runs": runs, "versions": versions()}


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """Where every agent of every run walks at the end of training: one panel per system."""
    plt = pyplot()
    figure, panels = plt.subplots(1, len(SYSTEMS), figsize=(3.2 * len(SYSTEMS), 4.2), layout="constrained", sharey=True)
    for axes, system in zip(panels, SYSTEMS, strict=True):
        ours = [outcome for outcome in outcomes if outcome.system == system]
        axes.axvspan(-1, deceptive.FAR, color="tab:green", alpha=0.25, linewidth=0)
        axes.axvspan(deceptive.NEAR, 1, color="tab:orange", alpha=0.25, linewidth=0)
        for outcome in ours:
            colour = "tab:green" if outcome.found else "tab:red"
            for member, positions in enumerate(outcome.paths):
                first = member == outcome.champion
                axes.plot(*positions.T, color=colour, linewidth=1.6 if first else 0.6, alpha=0.9 if first else 0.5)
                axes.plot(*positions[-1], marker="o", color=colour, markersize=4 if first else 2)
        axes.plot(0, 0, marker="+", color="black", markersize=9)
        found = sum(outcome.found for outcome in ours)
        axes.set(xlim=(-1, 1), ylim=(-1, 1), aspect="equal", title=f"{system}: {found} of {len(ours)}")
        axes.set_xticks([-1, deceptive.FAR, 0, deceptive.NEAR, 1], ["", "far\npays 1", "start", "near\npays 0.2", ""])
        axes.set_yticks([])
    figure.suptitle("Where the agents go after training; thick: the champion of a seed, green: it found the optimum")
    figure.savefig(path, dpi=130)
    plt.close(figure)
