"""The growth of the cost with the population, with replay, and with workers."""

import statistics
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from arac import envs
from arac.agents.classes import ARAC
from arac.learning import sac_updates
from arac.learning.sac_updates import CriticLearner
from arac.models.critics import init_critic
from arac.models.policies import FlowPolicy
from arac.replay.buffer import replay_bytes
from arac.rollout.local_pool import LocalPool
from arac.rollout.rollouts import Rollouts
from arac.utils.progress import Progress
from benchmarks.speed.machine import by_turns, filled_replay
from benchmarks.speed.peers import NO_EVALUATION
from benchmarks.speed.turns import ours, processes_by_turns
from benchmarks.speed.updates import UPDATE_CONFIG

# Every member's episode has the same length here, so that a generation is the same work for all.
ENV, LIMIT = "HalfCheetah-v5", 100
MEMBERS = (1, 5, 10, 20)
STORED = (10_000, 100_000, 1_000_000)
EPISODES = 50


def with_members(rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the milliseconds per environment step of a whole run without evaluation, by population size."""
    tasks = {
        str(size): ours(
            ENV, "arac", stretch=LIMIT * max(MEMBERS), warmup=500, population_size=size, elites=min(size, 2),
            replay_capacity=100_000, max_episode_steps=LIMIT, **NO_EVALUATION,
        )
        for size in MEMBERS
    }  # fmt: skip
    turns = processes_by_turns(tasks, rounds)
    times = {name: statistics.median(turn.ms_per_step for turn in of) for name, of in turns.items()}
    for name, of in turns.items():
        peak = max(turn.peak_bytes for turn in of)
        yield _row("members", int(name), times[name], times["5"], peak)


def with_replay(rounds: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield the milliseconds per critic update on Humanoid's shapes, by number of transitions in replay."""
    spec, key = envs.check("Humanoid-v5"), jax.random.key(0)
    sizes = spec.observation_size, spec.action_size
    policy = FlowPolicy.init(key, *sizes, hidden=(256,), flows=3, sigma=0.6)
    critic = init_critic(key, "value", *sizes, (256, 256))
    learner = CriticLearner(critic, sac_updates.adam(UPDATE_CONFIG).init(critic.online))
    buffers = [filled_replay(*sizes, stored).view for stored in STORED]

    def loop(view: Any) -> Any:
        return lambda: sac_updates.critic_updates(UPDATE_CONFIG, learner, policy, jnp.float32(0.2), view, key, 0, count)

    times = by_turns([loop(view) for view in buffers], rounds)
    for stored, seconds in zip(STORED, times, strict=True):
        yield _row("replay", stored, 1e3 * seconds / count, 1e3 * times[0] / count, replay_bytes(stored, *sizes))


def with_workers(rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the milliseconds per environment step of an evaluation of 50 episodes, by number of workers."""
    agent = ARAC(ENV, max_episode_steps=5 * LIMIT)
    times: dict[int, list[float]] = {1: [], 2: []}
    pools = {workers: LocalPool(agent.env, workers) for workers in times}
    try:
        for number in range(rounds + 1):
            for workers, pool in pools.items():
                rollouts, began = Rollouts(pool, 0, Progress()), time.perf_counter()
                rollouts.evaluate(agent.state.population, number, EPISODES // agent.config.population_size)
                times[workers].append((time.perf_counter() - began) / (EPISODES * 5 * LIMIT))
    finally:
        for pool in pools.values():
            pool.close()
    medians = {workers: 1e3 * statistics.median(of[1:]) for workers, of in times.items()}  # the first starts workers
    for workers, median in medians.items():
        yield _row("workers", workers, median, medians[1], None)


def _row(what: str, size: int, ms: float, reference: float, peak: int | None) -> dict[str, Any]:
    return {"what": what, "size": size, "ms": ms, "ratio": ms / reference, "bytes": peak}
