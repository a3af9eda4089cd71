"""A forecast of the time that a series of runs takes on this machine, from earlier runs and short trials."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import rich.progress

from arac import envs
from arac.agents.classes import AGENTS
from arac.algorithms import presets
from arac.algorithms.base import Context
from arac.algorithms.registry import find
from arac.envs import EnvSpec
from arac.replay.episode import Episode
from arac.rollout.episode import EpisodeRequest
from arac.rollout.local_pool import LocalPool
from arac.rollout.rollouts import Rollouts
from arac.storage.metrics import Spent, pace
from arac.sweeps.jobs import Job, steps_of, variant_of
from arac.sweeps.status import together
from arac.utils.processes import cores
from arac.utils.progress import Progress

_EPISODE = 10  # steps of a synthetic episode: short, because populations play many
_GENERATIONS = 3  # the first fills replay, the second compiles everything, the third is timed
_PLAYED = 0.5  # least seconds of real episodes


class Forecast(NamedTuple):
    """The work that a series of runs has left, and the time that it takes."""

    runs: int  # not finished
    steps: int  # left in these runs
    seconds: float
    processes: int

    def __str__(self) -> str:
        runs = f"{self.runs} run{'s' * (self.runs != 1)}"
        return f"{runs}, {self.steps:,} environment steps: about {_span(self.seconds)}, {self.processes} at a time"


def forecast(jobs: Sequence[Job], parent: Path, processes: int) -> Forecast:
    """Return the work left, at the pace of existing runs or, where a kind has none, of short trials.

    Args:
        jobs: the wanted runs.
        parent: the parent of the run folders.
        processes: number of runs at a time.
    """
    left = {job.name: max(job.steps - steps_of(parent / job.name), 0) for job in jobs}
    waiting = [job for job in jobs if left[job.name]]
    paces: dict[str, float] = {}
    for job in waiting:
        like_it = (Spent.of(parent / other.name / "timings.jsonl") for other in jobs if other.kind == job.kind)
        if known := pace(like_it):
            paces[job.kind] = known
    paces |= trials([job for job in waiting if job.kind not in paces])
    seconds = together([left[job.name] * paces[job.kind] for job in waiting], processes)
    return Forecast(len(waiting), sum(left.values()), seconds, max(min(processes, len(waiting)), 1))


def trials(jobs: Sequence[Job]) -> dict[str, float]:
    """Return the seconds per environment step of each kind of job on one core, evaluations included.

    Each algorithm is tried only on its tasks with the fewest and the most observations, since most of a trial is
    compilation; the time of updates on its other tasks is interpolated.
    """
    paces: dict[str, float] = {}
    with _one_core():
        specs = {job.env: envs.check(job.env) for job in jobs}
        playing = {env: _playing(spec) for env, spec in specs.items()}
        variants = [list(ours) for _, ours in groupby(sorted(jobs, key=variant_of), variant_of)]
        for ours in rich.progress.track(variants, "timing each variant", transient=True):
            by_size = {specs[job.env].observation_size: job for job in ours}
            tried = {size: trial(by_size[size]) for size in {min(by_size), max(by_size)}}
            for job in ours:
                size, longest = specs[job.env].observation_size, specs[job.env].max_episode_steps
                updates = np.interp(size, sorted(tried), [tried[at].seconds for at in sorted(tried)])
                evaluated = tried[min(tried)].evaluated * longest  # an upper bound: episodes may end early
                paces[job.kind] = float(updates) + playing[job.env] * (1 + evaluated)
    return paces


class Trial(NamedTuple):
    seconds: float  # of updates, per environment step
    evaluated: float  # episodes, per environment step


def trial(job: Job) -> Trial:
    """Time a few generations that learn from synthetic episodes."""
    wanted = presets.configured(find(job.algorithm).config, job.env, job.settings)[0]
    small = {"warmup_steps": 0, "eval_interval": 0, "replay_capacity": 10_000, "workers": 0}
    agent = AGENTS[job.algorithm](job.env, **{**job.settings, **small})
    progress, pool = Progress(), _MadeUp(agent.env)
    rollouts = Rollouts(pool, 0, progress)
    context = Context(agent.config, agent.env, 0, 10**9, agent.replay, rollouts, progress)
    state = agent.state
    for _ in range(_GENERATIONS):
        before, began = state.env_steps, time.perf_counter()
        state, _ = agent.algorithm.generation(context, state)
    steps = state.env_steps - before
    return Trial(
        seconds=(time.perf_counter() - began) / steps,
        evaluated=pool.evaluated / _GENERATIONS / (wanted.eval_interval or steps),
    )


def _playing(spec: EnvSpec) -> float:
    """Return the seconds per step of real episodes with random actions."""
    steps = 0
    with LocalPool(spec, 0, None) as pool:
        began = time.perf_counter()
        while (spent := time.perf_counter() - began) < _PLAYED or steps == 0:
            [episode] = pool.run([EpisodeRequest(None, "random", 0, "trial", (0, 0, steps), False)], Progress())
            steps += len(episode)
        return spent / steps


class _MadeUp:
    """A pool without an environment: it returns an episode of random numbers at no cost."""

    def __init__(self, env: EnvSpec) -> None:
        rng = np.random.default_rng(0)
        self.evaluated = 0  # episodes of evaluations so far
        self._episode = Episode(
            observations=rng.standard_normal((_EPISODE + 1, env.observation_size), np.float32),
            actions=rng.uniform(-1, 1, (_EPISODE, env.action_size)).astype(np.float32),
            rewards=rng.standard_normal(_EPISODE, np.float32),
            terminated=True,
            total=0.0,
            steps=_EPISODE,
        )

    def run(self, requests: list[EpisodeRequest], progress: Progress) -> list[Episode]:
        self.evaluated += sum(request.stream in ("evaluate", "confirm") for request in requests)
        return [self._episode] * len(requests)


@contextmanager
def _one_core() -> Iterator[None]:
    """Restrict this process to one core within the context, as each run of a series is."""
    before = cores()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, before[:1])
    try:
        yield
    finally:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, before)


def _span(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} seconds"
