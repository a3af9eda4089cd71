"""One episode as a pure function of (environment, policy, seed): what a worker runs, here or anywhere."""

import math
import traceback
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from arac import streams
from arac.errors import EnvironmentFailure

Acting: TypeAlias = Literal["random", "explore", "mode"]


class Task(NamedTuple):
    """What to run. Two runs of the same task give the same episode, on whatever worker."""

    policy: Any  # with NumPy leaves
    acting: Acting
    seed: int
    stream: str
    counters: tuple[int, ...]  # member, generation, number of the episode
    record: bool  # whether the transitions are wanted, or only return and length

    def __str__(self) -> str:
        """Which episode it is, for messages."""
        names = zip(("member", "generation", "episode"), self.counters, strict=False)
        return f"{self.stream} episode ({', '.join(f'{name} {n}' for name, n in names)}, seed {self.seed})"


@dataclass(frozen=True, eq=False)
class Episode:
    """A whole episode. Without a record the three arrays are empty."""

    observations: np.ndarray  # (steps + 1, obs), float32
    actions: np.ndarray  # (steps, action), in [-1, 1]
    rewards: np.ndarray  # (steps,)
    terminated: bool  # else it was cut off by its time limit
    total: float  # the undiscounted return
    steps: int

    def __len__(self) -> int:
        return self.steps


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
    rng = streams.rng(task.seed, task.stream, *task.counters)
    shape = env.observation_space.shape
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    observations, actions, rewards = [_checked(observation, shape, "an observation", env, task, 0)], [], []
    terminated = truncated = False
    while not (terminated or truncated):
        action = _choose(task, observations[-1], rng, len(low))
        stretched = low + (action + 1) * 0.5 * (high - low)
        observation, reward, terminated, truncated, _ = env.step(stretched.astype(env.action_space.dtype))
        actions.append(action)
        observations.append(_checked(observation, shape, "an observation", env, task, len(actions)))
        rewards.append(float(_checked(reward, (), "a reward", env, task, len(actions))))
    kept = slice(None) if task.record else slice(0)
    return Episode(
        observations=np.array(observations[kept], np.float32),
        actions=np.array(actions[kept], np.float32),
        rewards=np.array(rewards[kept], np.float32),
        terminated=bool(terminated),
        total=math.fsum(rewards),
        steps=len(rewards),
    )


def _choose(task: Task, observation: np.ndarray, rng: np.random.Generator, size: int) -> np.ndarray:
    if task.acting == "random":
        return rng.uniform(-1, 1, size).astype(np.float32)
    if task.acting == "explore":
        return task.policy.act(observation, rng.standard_normal(size, np.float32))
    return task.policy.mode(observation)


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
