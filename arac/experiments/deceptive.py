"""Tasks with a trap: how often each algorithm escapes it, and where its agents go."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from arac.agents.classes import load
from arac.algorithms.registry import find
from arac.envs import traps
from arac.envs.deceptive import DeceptivePoint, PointMaze
from arac.envs.tasks import full_name
from arac.errors import UserError
from arac.experiments.outputs import Table, so_far, write
from arac.experiments.planning import Size, planned, slug
from arac.experiments.playing import play_each
from arac.replay.episode import Episode
from arac.storage.run_folder import versions
from arac.sweeps.jobs import Job, run_name
from arac.sweeps.keeping import measured_at, only_measured
from arac.utils.atomic_io import write_durably
from arac.utils.plotting import pyplot

Box = tuple[float, float, float, float]  # left, bottom, right, top


@dataclass(frozen=True)
class Trap:
    """A task with a trap: its criterion of success, and its layout seen from above."""

    success: str  # the criterion as a sentence
    succeeded: Callable[[Episode], bool]
    bounds: Box
    walls: tuple[Box, ...] = ()
    goals: tuple[Box, ...] = ()


def _from_above(boxes: tuple[Any, ...]) -> tuple[Box, ...]:
    return tuple((x - dx, y - dy, x + dx, y + dy) for (x, y, _), (dx, dy, _) in boxes)


_MAZE = Trap(
    "the agent ends beyond both walls",
    lambda episode: bool(episode.observations[-1, 1] > PointMaze.PASSED),
    (-1, -1, 1, 1),
    goals=PointMaze.goals,
)
TRAPS = {
    "DeceptivePoint": Trap(
        "the agent ends in the far field",
        lambda episode: bool(episode.observations[-1, 0] < DeceptivePoint.FAR),
        (-1, -1, 1, 1),
        goals=DeceptivePoint.goals,
    ),
    "PointMaze": _MAZE,
    "PointMazeWide": _MAZE,
    "DeceptiveWall": Trap(
        f"the ball ends beyond the cup (x > {traps.WALL_PASSED:g})",
        lambda episode: bool(episode.observations[-1, 0] > traps.WALL_PASSED),
        (-5, -12, 30, 12),
        walls=_from_above(traps.WALL_BOXES),
        goals=((24, -1, 26, 1),),
    ),
    "AntTrap": Trap(
        f"the ant ends beyond the cup (x > {traps.ANT_PASSED:g})",
        lambda episode: bool(episode.observations[-1, 0] > traps.ANT_PASSED),
        (-5, -10, 20, 10),
        walls=_from_above(traps.ANT_BOXES),
    ),
}
# Small networks and a higher learning rate: a minute per run. Each algorithm gets those settings that it has.
SETTINGS: dict[str, Any] = {
    "hidden_size": 64, "batch_size": 128, "learning_rate": 1e-3, "warmup_steps": 1000, "eval_interval": 1000,
    "eval_episodes": 2, "replay_capacity": 100_000, "temperature": 0.05, "actor_coefficient": 2.0, "noise_hold": 64,
}  # fmt: skip
# The variants of those algorithms that are compared with other settings too.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "arac": {
        "ARAC": {},
        "ARAC, elites repelled too": {"ar_felt_by": "all"},
        "ARAC, lambda 0": {"ar_coefficient": 0.0},
        # Tests whether more noise has the same effect: no repulsion, and the library's default temperature.
        "ARAC, lambda 0, temperature 0.2": {"ar_coefficient": 0.0, "temperature": 0.2},
    },
    "sac": {"SAC": {"temperature": "auto"}},
}
FRESH_EPISODES = 10
FINENESS = 1 / 400  # tolerance of stored paths, as a share of the room's width
CELLS = 20  # along each side of the grid in which end points are counted


@dataclass(frozen=True)
class Outcome:
    """The result of one run."""

    env: str
    variant: str
    seed: int
    score: float  # the champion's mean return over fresh episodes
    success: float  # the share of these episodes in which it succeeded
    paths: list[np.ndarray]  # per trained agent: its positions over an episode without noise
    champion: int

    @property
    def found(self) -> bool:
        return self.success > 0.5

    @property
    def coverage(self) -> int:
        """The number of cells of a grid over the room in which the agents end."""
        left, bottom, right, top = TRAPS[self.env].bounds
        ends = np.array([path[-1] for path in self.paths])
        cells = np.floor((ends - (left, bottom)) / (right - left, top - bottom) * CELLS).clip(0, CELLS - 1)
        return len(np.unique(cells, axis=0))


def variants(size: Size) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the variants of the chosen algorithms by name, each with its algorithm and settings."""
    chosen = {}
    for algorithm in map(find, size.algos):
        known = {field.name for field in dataclasses.fields(algorithm.config)}
        common = {name: value for name, value in SETTINGS.items() if name in known}
        for name, settings in VARIANTS.get(algorithm.name, {algorithm.label: {}}).items():
            chosen[name] = algorithm.name, {**common, **settings}
    return chosen


def plan(size: Size) -> list[Job]:
    """Return a job for every variant of the algorithms on every task with every seed.

    Raises:
        UserError: if a task has no trap, or an algorithm does not exist.
    """
    for env in size.envs:
        if env not in TRAPS:
            raise UserError(f"{env} is no task with a trap; choose among {', '.join(TRAPS)}.")
    for algorithm in size.algos:
        find(algorithm)
    return [
        planned(size, algorithm, env, seed, slug(variant), settings)
        for seed in range(size.seeds)
        for env in size.envs
        for variant, (algorithm, settings) in variants(size).items()
    ]


def show(size: Size, parent: Path, out: Path) -> str:
    """Write table, numbers and pictures of the finished runs into `out`, and return the table."""
    kinds = {
        run_name(env, slug(variant), seed): (env, variant, seed)
        for env in size.envs
        for seed in range(size.seeds)
        for variant in variants(size)
    }
    finished = only_measured(list(kinds), parent, "outcome.json", {job.name: job.steps for job in plan(size)})
    outcomes = [outcome(*kinds[name], parent / name) for name in finished]
    rows, notes = as_table(outcomes, size)
    table = Table(rows, [*notes, *so_far(len(finished), len(kinds))])
    written = write(out, "deceptive", table, as_numbers(outcomes, size))
    for env in dict.fromkeys(outcome.env for outcome in outcomes):
        draw([outcome for outcome in outcomes if outcome.env == env], out / f"{env}.png")
    return written


def measure(folder: Path) -> None:
    """Write outcome.json: the champion's score over fresh episodes, and every member's path in the first of them."""
    agent, path = load(folder), folder / "outcome.json"
    if measured_at(path) == agent.state.env_steps:
        return
    [trap] = [trap for name, trap in TRAPS.items() if full_name(name) == agent.env.id]
    episodes = play_each(agent, FRESH_EPISODES)
    of_champion = episodes[agent.state.champion]
    found = {
        "env_steps": agent.state.env_steps,
        "champion": agent.state.champion,
        "score": float(np.mean([episode.total for episode in of_champion])),
        "success": float(np.mean([trap.succeeded(episode) for episode in of_champion])),
        "paths": [_as_drawn(first, trap.bounds).tolist() for first, *_ in episodes],
    }
    write_durably(path, (json.dumps(found) + "\n").encode())


def _as_drawn(episode: Episode, room: Box) -> np.ndarray:
    return simplified(episode.observations[:, :2].astype(np.float64), FINENESS * (room[2] - room[0])).round(3)


def simplified(path: np.ndarray, tolerance: float) -> np.ndarray:
    """Return the points of a path, including its ends, that suffice to draw it within a tolerance of its course.

    This is Douglas and Peucker's algorithm: the point of a stretch that is furthest from the straight line is kept,
    and both parts are simplified in the same way.
    """
    needed = np.zeros(len(path), bool)
    needed[[0, -1]] = True
    stretches = [(0, len(path) - 1)]
    while stretches:
        first, last = stretches.pop()
        way, between = path[last] - path[first], path[first + 1 : last] - path[first]
        along = np.clip(between @ way / max(way @ way, 1e-12), 0, 1)
        distance = np.linalg.norm(between - along[:, None] * way, axis=1)
        if len(between) and distance.max() > tolerance:
            middle = first + 1 + int(distance.argmax())
            needed[middle] = True
            stretches += [(first, middle), (middle, last)]
    return path[needed]


def outcome(env: str, variant: str, seed: int, folder: Path) -> Outcome:
    """Return the result that `measure` wrote into a run's folder."""
    found = json.loads((folder / "outcome.json").read_text())
    paths = [np.array(path) for path in found["paths"]]
    return Outcome(env, variant, seed, found["score"], found["success"], paths, found["champion"])


def as_table(outcomes: Sequence[Outcome], size: Size) -> Table:
    """Return the results as a table, one row per task and variant."""
    from scipy.stats import binomtest

    mean_return = "champion's return, mean over seeds"
    rows = [["task", "variant", "successful seeds", "95 % interval", mean_return, "members end in"]]
    for env in dict.fromkeys(outcome.env for outcome in outcomes):
        of_env = [outcome for outcome in outcomes if outcome.env == env]
        for variant in dict.fromkeys(outcome.variant for outcome in of_env):
            ours = [outcome for outcome in of_env if outcome.variant == variant]
            found = sum(outcome.found for outcome in ours)
            low, high = binomtest(found, len(ours)).proportion_ci(method="wilson")
            mean = np.mean([outcome.score for outcome in ours])
            cells = np.mean([outcome.coverage for outcome in ours])
            members = len(ours[0].paths)
            where = f"{cells:.1f} cells ({members} members)"
            rows.append([env, variant, f"{found} of {len(ours)}", f"{low:.0%} to {high:.0%}", f"{mean:.1f}", where])
    notes = [
        f"{size.steps:,} environment steps each. A seed is successful if its champion succeeds in more than half of "
        f"{FRESH_EPISODES} fresh episodes without noise. Intervals: Wilson. Cells: of a grid of {CELLS} by {CELLS} "
        "over the room, mean over seeds.",
        *(f"{env}: {TRAPS[env].success}." for env in dict.fromkeys(outcome.env for outcome in outcomes)),
    ]
    return Table(rows, notes)


def as_numbers(outcomes: Sequence[Outcome], size: Size) -> dict[str, Any]:
    """Return the results as a table for JSON, with the settings and versions behind them."""
    runs = [  # `system` is the variant; the key keeps the name that it had in the first version
        {
            "env": o.env, "system": o.variant, "seed": o.seed, "found": o.found, "success": o.success, "score": o.score,
            "coverage": o.coverage,
        }
        for o in outcomes
    ]  # fmt: skip
    return {"steps": size.steps, "systems": variants(size), "runs": runs, "versions": versions()}


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw where every agent of every run goes at the end of training: one panel per variant."""
    plt = pyplot()
    env = outcomes[0].env
    trap, names = TRAPS[env], list(dict.fromkeys(outcome.variant for outcome in outcomes))
    left, bottom, right, top = trap.bounds
    columns = min(len(names), 4)
    rows = -(-len(names) // columns)
    height = 3.0 * (top - bottom) / (right - left)
    figure, panels = plt.subplots(
        rows, columns, figsize=(3.2 * columns, (height + 0.5) * rows + 0.4), layout="constrained", squeeze=False
    )
    for axes in panels.flat[len(names) :]:
        axes.remove()
    for axes, variant in zip(panels.flat, names, strict=False):
        ours = [outcome for outcome in outcomes if outcome.variant == variant]
        for boxes, colour, alpha in ((trap.goals, "tab:green", 0.3), (walls_of(env), "black", 0.8)):
            for x0, y0, x1, y1 in boxes:
                axes.add_patch(plt.Rectangle((x0, y0), x1 - x0, y1 - y0, color=colour, alpha=alpha, linewidth=1))
        for outcome in ours:
            colour = "tab:green" if outcome.found else "tab:red"
            for member, positions in enumerate(outcome.paths):
                first = member == outcome.champion
                axes.plot(*positions.T, color=colour, linewidth=1.4 if first else 0.5, alpha=0.9 if first else 0.4)
                axes.plot(*positions[-1], marker="o", color=colour, markersize=4 if first else 2)
        found = sum(outcome.found for outcome in ours)
        axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal", xticks=(), yticks=())
        axes.set_title(f"{variant}: {found} of {len(ours)}", fontsize="medium")
    figure.suptitle(f"{full_name(env)}: where agents go; thick: the champion of a seed, green: it succeeds")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def walls_of(env: str) -> tuple[Box, ...]:
    """Return the walls of a task as boxes."""
    made = gymnasium.make(full_name(env)).unwrapped
    return TRAPS[env].walls or getattr(made, "walls", ())
