"""Environments and policies that worker processes can import, and episodes with recognisable numbers."""

import ctypes
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from arac.replay.episode import Episode

# Settings of runs that take a second; all share the same compiled code.
SMALL = {
    "hidden_size": 16,
    "batch_size": 16,
    "warmup_steps": 50,
    "eval_interval": 100,
    "eval_episodes": 2,
    "replay_capacity": 10_000,
    "workers": 0,
}

# The same as flags; HERE without a worker process.
SMALL_FLAGS = ["--hidden-size", "16", "--batch-size", "16", "--warmup-steps", "50", "--eval-interval", "100"]
SMALL_FLAGS += ["--eval-episodes", "2", "--replay-capacity", "10000", "--workers", "1"]
HERE = [*SMALL_FLAGS[:-1], "0"]


class Probe(gymnasium.Env):
    """Observe (a number drawn at reset, the step, the last action), and fail at a given step.

    If `once` is set, only the first process to reach it fails; if `when` is set, only while that file exists.
    """

    def __init__(self, length: int = 5, trouble: str = "", at: int = 3, once: str = "", when: str = "") -> None:
        self.observation_space = Box(-np.inf, np.inf, (4,), np.float64)
        self.action_space = Box(np.array([-1, 2], np.float32), np.array([3, 10], np.float32))
        self.length, self.trouble, self.at, self.once, self.when = length, trouble, at, once, when
        self.received: list[np.ndarray] = []
        if trouble == "dies when made":
            os._exit(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.drawn = 0, self.np_random.random()
        if self.at == 0:
            self._get_into_trouble()
        return self._observe(np.zeros(2)), {}

    def step(self, action):
        self.count += 1
        self.received.append(action)
        due = self._is_due()
        if due:
            self._get_into_trouble()
        reward = {"nan reward": np.nan, "infinite reward": np.inf, "wide reward": np.ones(2)}.get(self.trouble, 0.5)
        return self._observe(action), reward if due else 0.5, self.count == self.length, False, {}

    def _is_due(self):
        if self.count != self.at or (self.when and not Path(self.when).exists()):
            return False
        try:
            if self.once:
                os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            return False

    def _get_into_trouble(self):
        if self.trouble == "prints":
            print("at work", flush=True)
        if self.trouble == "raises":
            raise RuntimeError("the hinge broke")
        if self.trouble == "exits":
            sys.exit(1)
        if self.trouble == "dies":
            os._exit(1)
        if self.trouble == "crashes":
            ctypes.string_at(0)
        if self.trouble == "hangs":
            time.sleep(1000)
        if self.trouble == "hangs for good":  # in C, without returning to the interpreter
            re.match("(a+)+$", "a" * 64 + "b")
        if self.trouble == "starts a process":
            child = subprocess.Popen(["sleep", "1000"])
            Path(self.once).write_text(str(child.pid))

    def _observe(self, action):
        trouble = self.trouble if self.count == self.at and (not self.when or Path(self.when).exists()) else ""
        extra = [0] if trouble == "wide observation" else []
        return np.array([np.nan if trouble == "nan observation" else self.drawn, self.count, *action, *extra])


class Reusing(gymnasium.Env):
    """Return the same array at every step, with new numbers in it."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Box(-1, 1, (1,))

    def __init__(self) -> None:
        self.observation = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.observation[:] = 0
        return self.observation, {}

    def step(self, action):
        self.observation += 1
        return self.observation, 0.0, bool(self.observation[0] == 4), False, {}


class Gate(gymnasium.Env):
    """An episode has one step; a positive action makes it last until the file `key` exists."""

    observation_space = Box(-1, 1, (1,))
    action_space = Box(-1, 1, (1,))

    def __init__(self, key: str) -> None:
        self.key = Path(key)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        give_up = time.monotonic() + 20
        while action[0] > 0 and not self.key.exists():
            if time.monotonic() > give_up:
                raise TimeoutError("the key never came")
            time.sleep(0.005)
        return np.zeros(1, np.float32), float(action[0]), True, False, {}


class Odd(gymnasium.Env):
    """An environment with spaces of all kinds."""

    def __init__(self, actions: str = "box", observations: str = "box") -> None:
        self.action_space = {
            "box": Box(-1, 1, (2,)),
            "discrete": Discrete(3),
            "unbounded": Box(-np.inf, np.inf, (2,)),
            "half bounded": Box(np.array([-1, -1], np.float32), np.array([1, np.inf], np.float32)),
            "matrix": Box(-1, 1, (2, 2)),
        }[actions]
        self.observation_space = {
            "box": Box(-1, 1, (3,)),
            "double": Box(-1, 1, (3,), np.float64),
            "matrix": Box(-1, 1, (2, 3)),
            "dict": Dict(arm=Box(-1, 1, (2, 2)), gripper=Discrete(3)),
            "discrete": Discrete(4),
        }[observations]

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


for name, environment in {"Probe": Probe, "Reusing": Reusing, "Gate": Gate, "Odd": Odd}.items():
    gymnasium.register(f"{name}-v0", entry_point=environment, max_episode_steps=5000)
gymnasium.register("Endless-v0", entry_point=Odd)
gymnasium.register("Nameless-v0", entry_point=lambda length: Probe(length), max_episode_steps=5000)  # noqa: PLW0108
gymnasium.register("Breaking-v0", entry_point=Probe, max_episode_steps=5000, kwargs={"trouble": "raises"})


class Constant:
    """A policy with one constant action, plus noise."""

    def __init__(self, *action: float) -> None:
        self.action = np.array(action, np.float32)

    def mode(self, observation: np.ndarray) -> np.ndarray:
        return self.action

    def act(self, observation: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return np.tanh(self.action + noise)


def numbered_episode(number: int, steps: int, terminated: bool = True) -> Episode:
    """Return an episode in which every observation, action and reward encodes its episode and step."""
    step = np.arange(steps + 1, dtype=np.float32)
    observations = np.stack([np.full_like(step, number), step], axis=1)
    rewards = 10_000.0 * number + step[:-1]
    return Episode(observations, -observations[:-1], rewards, terminated, float(rewards.sum()), steps)
