"""The effect of repulsion on a population: the actions of members trained with and without it.

The paper shows two states through t-SNE. t-SNE can exaggerate differences, so numbers are added: the divergence between
every two members, the distance of their actions, and how often an action's nearest neighbour is the same member's.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from arac.agents.agent import Agent
from arac.agents.classes import load
from arac.algorithms.presets import paper_table, task_name
from arac.analysis.statistics import difference_interval, improvement_interval
from arac.errors import UserError
from arac.experiments import repulsion_figures
from arac.experiments.outputs import Table, so_far, write
from arac.experiments.planning import Size, planned, slug
from arac.experiments.playing import play_each
from arac.learning.losses import sampled_kl
from arac.models.stacked import take
from arac.population.diversity import mean_kl, pairwise_kl
from arac.storage import run_folder
from arac.storage.metrics import read_evaluations
from arac.storage.run_folder import versions
from arac.sweeps.jobs import Job, run_name
from arac.sweeps.keeping import measured_at, only_measured
from arac.utils.atomic_io import write_durably
from arac.utils.rng import stream_rng


class Variant(NamedTuple):
    """A way of training ARAC, and the variant without repulsion that it is compared with."""

    settings: dict[str, Any]
    baseline: str | None = None
    fixed: bool = False  # at the paper's temperature for the task
    seeds: int | None = None  # at most so many; None: all
    steps: int = 0  # only in runs of at least so many


FIXED = "lambda 0, fixed temperature"
VARIANTS = {
    "lambda 0": Variant({"ar_coefficient": 0.0}),
    "default": Variant({}, baseline="lambda 0"),
    # Adaptive temperatures need about 50,000 steps to settle: shorter runs cannot be compared with fixed ones.
    FIXED: Variant({"ar_coefficient": 0.0}, fixed=True, seeds=2, steps=100_000),
    "default, fixed temperature": Variant({}, baseline=FIXED, fixed=True, seeds=2, steps=100_000),
    "paper's letter": Variant({"preset": "paper-letter"}, baseline=FIXED, seeds=1),
}
SETTLED = 0.3  # share of a run's steps, after which members should be and stay apart
ACTIONS = 500  # of each agent in a state, as in the paper's figure
STATES, DRAWN = 32, 2  # states in which neighbours are counted; states that are drawn, as in the paper
# Minutes instead of hours: smaller networks, mini-batches and replay. The strategy is that of the paper's figure, whose
# task is Humanoid.
QUICK: dict[str, Any] = {
    "hidden_size": 128, "batch_size": 128, "warmup_steps": 5000, "eval_interval": 2500, "eval_episodes": 3,
    "replay_capacity": 100_000, "strategy": "reactive",
}  # fmt: skip
STATES_FOR_KL = 256


@dataclass(frozen=True, eq=False)
class Course:
    """The measurements at every evaluation after the warm-up."""

    steps: Float[np.ndarray, " evaluation"]
    kl: Float[np.ndarray, " evaluation"]  # mean over pairs of members
    entropy: Float[np.ndarray, " evaluation"]
    returns: Float[np.ndarray, " evaluation"]  # of the champion, in the episodes that selected it

    @property
    def settled(self) -> Any:
        """The mask of the evaluations after the first `SETTLED` of the steps."""
        return self.steps > SETTLED * self.steps[-1]


def course_of(folder: Path, warmup: int) -> Course:
    """Return the course of the run in a folder after its warm-up."""
    rows = [row for row in read_evaluations(folder) if row["env_steps"] > warmup]
    # Earlier versions recorded no other episodes of the champion. Both sides of a comparison have the same bias.
    columns = [
        [row["env_steps"], row["diversity"]["mean_kl"], row["entropy"], row["fitness"][row["champion"]]] for row in rows
    ]
    return Course(*np.array(columns, float).T)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The population of one run: its course of training, and how far apart its members are at the end."""

    env: str
    variant: str
    seed: int
    course: Course
    from_archived: float | None  # KL(elite || archived policy) of whole policies, the mean over the archive
    kl: Float[np.ndarray, "member member"]  # KL(row || column) over many states
    repelled_entropy: float | None  # mean entropy of all but the elites, less the elites', in the same states
    action_distance: float  # between actions without noise, the mean over pairs of members and many states
    own_neighbours: Float[np.ndarray, " state"]  # how often an action's nearest neighbour is the same member's
    points: Float[np.ndarray, "state member sample 2"]  # actions through t-SNE; no states where they are not drawn

    @property
    def mean_kl(self) -> float:
        value = mean_kl(self.kl)
        assert value is not None
        return value

    @property
    def least_kl(self) -> float:
        """The least mean divergence between members at any evaluation once the run has settled."""
        return float(self.course.kl[self.course.settled].min())

    @property
    def entropy(self) -> float:
        """The mean entropy once the run has settled."""
        return float(self.course.entropy[self.course.settled].mean())


def plan(size: Size) -> list[Job]:
    """Return a job for every variant on every task with every seed, or with as many as the variant has.

    Raises:
        UserError: if scikit-learn, which the figure needs in the end, is not installed.
    """
    if find_spec("sklearn") is None:
        raise UserError("The figure needs scikit-learn; install it with `pip install 'arac-rl[experiments]'`.")
    jobs = []
    for env, variant, seed in _kinds(size):
        settings, of_task = VARIANTS[variant].settings, paper_table().get(task_name(env), {})
        if VARIANTS[variant].fixed:
            settings = {**settings, "temperature": of_task.get("temperature", 0.2)}
        jobs.append(planned(size, "arac", env, seed, slug(variant), settings))
    return jobs


def _kinds(size: Size) -> list[tuple[str, str, int]]:
    """Return task, variant and seed of every run; variants with fewer seeds come last."""
    kinds = [
        (env, name, seed)
        for seed in range(size.seeds)
        for env in size.envs
        for name, variant in VARIANTS.items()
        if seed < (variant.seeds or size.seeds) and (size.steps or variant.steps) >= variant.steps
    ]
    return sorted(kinds, key=lambda kind: VARIANTS[kind[1]].seeds is not None)


def show(size: Size, parent: Path, out: Path) -> str:
    """Write table, numbers and pictures of the finished runs into `out`, and return the table."""
    kinds = {run_name(env, slug(variant), seed): (env, variant, seed) for env, variant, seed in _kinds(size)}
    finished = only_measured(list(kinds), parent, "outcome.json", {job.name: job.steps for job in plan(size)})
    outcomes = [outcome(*kinds[name], parent / name) for name in finished]
    rows, notes = as_table(outcomes)
    table = Table(rows, [*notes, *so_far(len(finished), len(kinds))])
    written = write(out, "repulsion", table, as_numbers(outcomes, size))
    drawn = [outcome for outcome in outcomes if not VARIANTS[outcome.variant].fixed]
    if first := [outcome for outcome in drawn if outcome.seed == 0]:
        repulsion_figures.draw(first, out / "repulsion.png")
    repulsion_figures.draw_courses(drawn, out / "repulsion-over-time.png")
    return written


def measure(folder: Path) -> None:
    """Write outcome.json: how far apart the members of a run are in states that they visit in fresh episodes."""
    agent, path = load(folder), folder / "outcome.json"
    if measured_at(path) == agent.state.env_steps:
        return
    visited = np.concatenate([episode.observations for [episode] in play_each(agent)])
    spec, seed, members = agent.env, agent.description.seed, agent.config.population_size
    rng = stream_rng(seed, "repulsion")
    states = rng.choice(visited, STATES, replace=len(visited) < STATES)
    several = rng.choice(visited, STATES_FOR_KL)
    noise = rng.standard_normal((STATES_FOR_KL, spec.action_size), np.float32)
    noises = rng.standard_normal((STATES, members, ACTIONS, spec.action_size), np.float32)
    actions = [sampled(agent, state, noise) for state, noise in zip(states, noises, strict=True)]
    drawn = actions[:DRAWN] if seed == 0 else []  # pictures are of the first seed
    found = {
        "env_steps": agent.state.env_steps,
        "from_archived": _from_archived(agent.state, several, noise),
        "entropies": entropies(agent.state.population, several, noise).tolist(),
        "elites": agent.state.elites.tolist(),
        "kl": np.asarray(pairwise_kl(agent.state.population, several, noise), np.float64).tolist(),
        "action_distance": action_distance(agent, several),
        "own_neighbours": [own_neighbours(of_state) for of_state in actions],
        "points": [embedded(of_state).astype(np.float64).round(1).tolist() for of_state in drawn],
    }
    write_durably(path, (json.dumps(found) + "\n").encode())


def outcome(env: str, variant: str, seed: int, folder: Path) -> Outcome:
    """Return the result that `measure` wrote into a run's folder."""
    found = json.loads((folder / "outcome.json").read_text())
    description, _ = run_folder.read(folder)
    return Outcome(
        env=env,
        variant=variant,
        seed=seed,
        course=course_of(folder, description.config.warmup_steps),
        from_archived=found["from_archived"],
        repelled_entropy=repelled_entropy(found["entropies"], found["elites"]) if "entropies" in found else None,
        kl=np.array(found["kl"]),
        action_distance=found["action_distance"],
        own_neighbours=np.array(found["own_neighbours"]),
        points=np.array(found["points"]),
    )


def sampled(agent: Agent, state: np.ndarray, noise: np.ndarray) -> Float[np.ndarray, "member sample action"]:
    """Return sampled actions of every member in one state."""
    repeated = np.broadcast_to(state, (noise.shape[1], len(state)))
    return np.asarray(jax.vmap(lambda policy, noise: policy.act(repeated, noise))(agent.state.population, noise))


def action_distance(agent: Agent, states: np.ndarray) -> float:
    """Return the mean distance between the actions without noise of two members, over pairs and states."""
    actions = np.asarray(jax.vmap(lambda policy: policy.mode(states))(agent.state.population))
    return float(np.mean([np.linalg.norm(one - other, axis=-1) for one, other in combinations(actions, 2)]))


def entropies(population: Any, states: Any, noise: Any) -> Float[np.ndarray, " member"]:
    """Return each member's mean entropy in the given states, in nats."""
    log_probs = jax.jit(jax.vmap(lambda policy: policy.sample(states, noise)[1].mean()))(population)
    return -np.asarray(log_probs, np.float64)


def repelled_entropy(entropies: Sequence[float], elites: Sequence[int]) -> float | None:
    """Return the mean entropy of all members but the elites, less that of the elites; None if all are elites."""
    others = np.delete(np.asarray(entropies), elites)
    return float(others.mean() - np.take(entropies, elites).mean()) if len(others) else None


def own_neighbours(actions: Float[np.ndarray, "member sample action"]) -> float:
    """Return the share of actions whose nearest other action is of the same member.

    It is about 1 / members where the agents act alike, and 1 where their actions are separate.
    """
    from scipy.spatial import KDTree

    members, samples, size = actions.shape
    flat = actions.reshape(-1, size).astype(np.float64)
    owner = np.repeat(np.arange(members), samples)
    _, nearest = KDTree(flat).query(flat, k=2)
    other = np.where(nearest[:, 0] == np.arange(len(flat)), nearest[:, 1], nearest[:, 0])
    return float((owner[other] == owner).mean())


def _from_archived(state: Any, observation: Any, noise: Any) -> float | None:
    """Return the mean KL(elite || archived policy); None if the archive is empty."""
    archive, elites = state.archive, take(state.population, state.elites)
    if archive.size == 0:
        return None
    archived = take(archive.policies, np.arange(archive.size))

    def row(elite: Any) -> Any:
        return jax.vmap(lambda other: sampled_kl(elite, other, observation, noise))(archived)

    return float(jax.jit(jax.vmap(row))(elites).mean())


def as_table(outcomes: Sequence[Outcome]) -> Table:
    """Return the results as a table, one row per task and variant."""
    head = [
        "task", "ARAC with", "KL between members at the end", "least KL after 30 %", "entropy after 30 %",
        "less that of lambda 0", "repelled less elites", "distance of actions", "nearest action is of the same member",
        "KL from archived policies", "champion's return", "better than lambda 0",
    ]  # fmt: skip
    rows = [head]
    for env in dict.fromkeys(outcome.env for outcome in outcomes):
        of_env = [outcome for outcome in outcomes if outcome.env == env]
        for variant in dict.fromkeys(outcome.variant for outcome in of_env):
            ours = [outcome for outcome in of_env if outcome.variant == variant]
            baseline = [outcome for outcome in of_env if outcome.variant == VARIANTS[variant].baseline]
            cells = [
                _all([outcome.mean_kl for outcome in ours], ".2f"),
                _all([outcome.least_kl for outcome in ours], ".2f"),
                _all([outcome.entropy for outcome in ours], ".2f"),
                _entropy_difference(ours, baseline),
                _all([outcome.repelled_entropy for outcome in ours if outcome.repelled_entropy is not None], ".2f"),
                _all([outcome.action_distance for outcome in ours], ".2f"),
                _all([float(outcome.own_neighbours.mean()) for outcome in ours], ".0%"),
                _all([outcome.from_archived for outcome in ours if outcome.from_archived is not None], ".2f"),
                _all([outcome.course.returns[-1] for outcome in ours], ",.0f"),
                _improvement(ours, baseline),
            ]
            rows.append([env, variant, *cells])
    members = len(outcomes[0].kl)
    note = (
        "Means over seeds, each seed's own in brackets; divergences in nats. KL between members: over pairs, at the "
        f"end on {STATES_FOR_KL} states that these members visit; the least at any evaluation after "
        "30 % of the steps. Entropy: the mean over these evaluations, in nats; less that of lambda 0 with such a "
        "temperature (the paper's letter has a fixed one), with the 95 % interval of the difference (Welch's); and of "
        "the members that are not elites less that of the elites, at the end in the same states. Distance of actions: "
        "without noise, on the same states. "
        f"Neighbours: over {STATES} states with {ACTIONS} actions of each of {members} members, in "
        f"the space of actions; {100 / members:.0f} % is what members that act alike would have. From archived "
        "policies: of the elites. Better than lambda 0: the probability that a run's champion ends with a higher "
        "return, with its 95 % interval."
    )
    return Table(rows, [note])


def _improvement(ours: Sequence[Outcome], others: Sequence[Outcome]) -> str:
    if not others:
        return "-"
    scores, baseline = ({"": np.array([one.course.returns[-1] for one in runs])} for runs in (ours, others))
    found = improvement_interval(scores, baseline)
    if np.isnan(found.low):
        return f"{found.value:.0%}"
    return f"{found.value:.0%} ({found.low:.0%} to {found.high:.0%})"


def _entropy_difference(ours: Sequence[Outcome], others: Sequence[Outcome]) -> str:
    if not others:
        return "-"
    found = difference_interval([one.entropy for one in ours], [one.entropy for one in others])
    if np.isnan(found.low):
        return f"{found.value:+.2f}"
    return f"{found.value:+.2f} ({found.low:+.2f} to {found.high:+.2f})"


def _all(values: list[float], form: str) -> str:
    return f"{np.mean(values):{form}} ({', '.join(f'{value:{form}}' for value in values)})" if values else "-"


def as_numbers(outcomes: Sequence[Outcome], size: Size) -> dict[str, Any]:
    """Return the results as a table for JSON, with the settings and versions behind them."""
    runs = [
        {
            "env": o.env, "variant": o.variant, "seed": o.seed, "mean_kl": o.mean_kl, "kl": o.kl.tolist(),
            "least_kl": o.least_kl, "entropy": o.entropy, "repelled_entropy": o.repelled_entropy,
            "action_distance": o.action_distance,
            "own_neighbours": float(o.own_neighbours.mean()), "from_archived": o.from_archived,
            "champion_return": float(o.course.returns[-1]),
            "course": {name: getattr(o.course, name).tolist() for name in ("steps", "kl", "entropy", "returns")},
        }
        for o in outcomes
    ]  # fmt: skip
    variants = {name: variant._asdict() for name, variant in VARIANTS.items()}
    return {"steps": size.steps, "settings": size.settings, "variants": variants, "runs": runs, "versions": versions()}


def embedded(actions: Float[np.ndarray, "member sample action"]) -> Float[np.ndarray, "member sample 2"]:
    """Return all members' actions in the plane, through one t-SNE with a fixed seed."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    members, samples, size = actions.shape
    tsne = TSNE(init="pca" if size > 1 else "random", random_state=0)
    with threadpool_limits(1):  # beside other work, threads that wait for each other take many times as long
        points = tsne.fit_transform(actions.reshape(-1, size))
    return np.asarray(points).reshape(members, samples, 2)
