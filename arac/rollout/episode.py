"""One episode as a pure function of (environment, policy, seed): what a worker runs, here or anywhere."""

import math
import traceback
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import numpy as np

from arac.errors import EnvironmentFailure
from arac.replay.episode import Acting, Episode
from arac.utils.rng import stream_rng

# Of the Ornstein-Uhlenbeck process behind `drift`, as in DDPG and ERL.
_DRIFT_THETA, _DRIFT_SIGMA = 0.15, 0.2
_HOLD_EXPONENT = 1.5  # of the zeta distribution of the steps for which noise is held


class Task(NamedTuple):
    """What to run. Two runs of the same task give the same episode, on whatever worker."""

    policy: Any  # with NumPy leaves
    acting: Acting
    seed: int
    stream: str
    counters: tuple[int, ...]  # member, generation, number of the episode
    record: bool  # whether the transitions are wanted, or only return and length
    reset_seed: int | None = None  # what the environment is reset with, where it should not be drawn
    noise_hold: int = 1  # the longest time that a draw of noise is held, in steps

    def __str__(self) -> str:
        """Which episode it is, for messages."""
        names = zip(("member", "generation", "episode"), self.counters, strict=False)
        return f"{self.stream} episode ({', '.join(f'{name} {n}' for name, n in names)}, seed {self.seed})"


class Failure(NamedTuple):
    """What comes back instead of an episode."""

    text: str
    explained: bool  # else it is a traceback


def played(env: Any, low: np.ndarray, high: np.ndarray, task: Task) -> Episode | Failure:
    """The episode of `run`, or what went wrong in a form that crosses processes."""
    try:
        return run(env, low, high, task)
    except EnvironmentFailure as failure:
        return Failure(str(failure), explained=True)
    except (Exception, SystemExit):
        return Failure(traceback.format_exc(), explained=False)


def run(env: Any, low: np.ndarray, high: np.ndarray, task: Task) -> Episode:
    """Plays one episode to its end.

    Args:
        env: a Gymnasium environment with flat observations and a time limit.
        low: the lower bounds of its actions; the policy's [-1, 1] is stretched to them.
        high: the upper bounds.
        task: what to play.

    Raises:
        EnvironmentFailure: if an observation or a reward is not finite, or has a wrong shape.
    """
    steps = by_steps(env, low, high, task)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def by_steps(env: Any, low: np.ndarray, high: np.ndarray, task: Task) -> Generator[list[float], None, Episode]:
    """The same, for who wants to look in between: gives the rewards so far after the reset and after each step."""
    rng = stream_rng(task.seed, task.stream, *task.counters)
    shape = env.observation_space.shape
    drawn = int(rng.integers(2**31))
    observation, _ = env.reset(seed=drawn if task.reset_seed is None else task.reset_seed)
    observations, actions = [_checked(observation, shape, "an observation", env, task, 0)], []
    rewards: list[float] = []
    terminated = truncated = False
    noises = _noises(task.acting, len(low), task.noise_hold, rng)
    yield rewards
    while not (terminated or truncated):
        noise = next(noises)
        action = _choose(task, observations[-1], noise)
        observation, reward, terminated, truncated, _ = env.step(
            rescale_action(action, low, high, env.action_space.dtype)
        )
        actions.append(action)
        observations.append(_checked(observation, shape, "an observation", env, task, len(actions)))
        rewards.append(float(_checked(reward, (), "a reward", env, task, len(actions))))
        yield rewards
    kept = slice(None) if task.record else slice(0)
    return Episode(
        observations=np.array(observations[kept], np.float32),
        actions=np.array(actions[kept], np.float32),
        rewards=np.array(rewards[kept], np.float32),
        terminated=bool(terminated),
        total=math.fsum(rewards),
        steps=len(rewards),
    )


def rescale_action(action: np.ndarray, low: np.ndarray, high: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """An action in [-1, 1], or a batch of them, in the environment's units."""
    return np.asarray(low + (action + 1) * 0.5 * (high - low)).astype(dtype)


def _noises(acting: Acting, size: int, hold: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield what to act with at each step; every draw lasts for a number of steps from a cut-off zeta distribution."""
    noise = np.zeros(size, np.float32)
    while True:
        noise = _next_noise(acting, noise, rng)
        for _ in range(1 if hold == 1 or acting == "mode" else min(int(rng.zipf(_HOLD_EXPONENT)), hold)):
            yield noise


def _next_noise(acting: Acting, noise: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What the policy, or in its place chance, acts with at the next step."""
    if acting == "random":
        return rng.uniform(-1, 1, noise.shape).astype(np.float32)
    if acting == "explore":
        return rng.standard_normal(noise.shape, np.float32)
    if acting == "drift":
        drawn = rng.standard_normal(noise.shape, np.float32)
        return np.float32(1 - _DRIFT_THETA) * noise + np.float32(_DRIFT_SIGMA) * drawn
    return noise


def _choose(task: Task, observation: np.ndarray, noise: np.ndarray) -> np.ndarray:
    if task.acting == "random":
        return noise
    return task.policy.mode(observation) if task.acting == "mode" else task.policy.act(observation, noise)


def _checked(value: Any, shape: tuple[int, ...], name: str, env: Any, task: Task, step: int) -> np.ndarray:
    array = np.array(value, np.float32)  # a copy: some environments reuse theirs
    if array.shape != shape:
        wrong = f"has shape {array.shape} instead of {shape}"
    elif not np.isfinite(array).all():
        wrong = "is not finite"
    else:
        return array
    who = env.spec.id if env.spec else type(env.unwrapped).__name__
    raise EnvironmentFailure(f"{who} gave {name} that {wrong} at step {step} of the {task}.")
