"""One episode as a pure function of environment, policy and seed, which any process can run."""

import math
import traceback
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from arac.errors import EnvironmentFailure
from arac.replay.episode import Acting, Episode
from arac.utils.rng import stream_rng

if TYPE_CHECKING:
    from arac.models.policies import Policy

# Parameters of the Ornstein-Uhlenbeck process behind `drift`, as in DDPG and ERL.
_DRIFT_THETA, _DRIFT_SIGMA = 0.15, 0.2
_HOLD_EXPONENT = 1.5  # of the zeta distribution of the number of steps for which a noise sample is held


class EpisodeRequest(NamedTuple):
    """A request for an episode. Playing the same request again gives the same episode, on any worker."""

    policy: "Policy | None"  # with NumPy leaves; None for random actions
    acting: Acting
    seed: int
    stream: str
    counters: tuple[int, ...]  # member, generation, episode number
    record: bool  # whether to return the transitions, or only return and length
    reset_seed: int | None = None  # the seed to reset the environment with; None draws one from the stream
    noise_hold: int = 1  # the largest number of steps for which a noise sample is held

    def __str__(self) -> str:
        """Return a name of the episode for messages."""
        names = zip(("member", "generation", "episode"), self.counters, strict=False)
        return f"{self.stream} episode ({', '.join(f'{name} {n}' for name, n in names)}, seed {self.seed})"


class Failure(NamedTuple):
    """The error that a worker returns in place of an episode."""

    text: str
    explained: bool  # whether `text` is a message for the user; else it is a traceback


def run_or_failure(env: Any, low: np.ndarray, high: np.ndarray, request: EpisodeRequest) -> Episode | Failure:
    """Return the episode of `run`, or the exception it raised as a `Failure`, which can be sent between processes."""
    try:
        return run(env, low, high, request)
    except EnvironmentFailure as failure:
        return Failure(str(failure), explained=True)
    except (Exception, SystemExit):
        return Failure(traceback.format_exc(), explained=False)


def run(env: Any, low: np.ndarray, high: np.ndarray, request: EpisodeRequest) -> Episode:
    """Play one episode to its end.

    Args:
        env: a Gymnasium environment with flat observations and a time limit.
        low: the lower bounds of its actions; the policy's [-1, 1] is rescaled to the bounds.
        high: the upper bounds.
        request: the requested episode.

    Raises:
        EnvironmentFailure: if an observation or a reward is not finite, or has a wrong shape.
    """
    steps = by_steps(env, low, high, request)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def by_steps(
    env: Any, low: np.ndarray, high: np.ndarray, request: EpisodeRequest
) -> Generator[list[float], None, Episode]:
    """Play one episode as `run` does, and yield its rewards so far after the reset and after each step.

    The generator returns the episode.
    """
    rng = stream_rng(request.seed, request.stream, *request.counters)
    shape = env.observation_space.shape
    drawn = int(rng.integers(2**31))
    observation, _ = env.reset(seed=drawn if request.reset_seed is None else request.reset_seed)
    observations, actions = [_checked(observation, shape, "an observation", env, request, 0)], []
    rewards: list[float] = []
    terminated = truncated = False
    noises = _noises(request.acting, len(low), request.noise_hold, rng)
    yield rewards
    while not (terminated or truncated):
        noise = next(noises)
        action = _choose(request, observations[-1], noise)
        observation, reward, terminated, truncated, _ = env.step(
            rescale_action(action, low, high, env.action_space.dtype)
        )
        actions.append(action)
        observations.append(_checked(observation, shape, "an observation", env, request, len(actions)))
        rewards.append(float(_checked(reward, (), "a reward", env, request, len(actions))))
        yield rewards
    kept = slice(None) if request.record else slice(0)
    return Episode(
        observations=np.array(observations[kept], np.float32),
        actions=np.array(actions[kept], np.float32),
        rewards=np.array(rewards[kept], np.float32),
        terminated=bool(terminated),
        total=math.fsum(rewards),
        steps=len(rewards),
    )


def rescale_action(action: np.ndarray, low: np.ndarray, high: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Rescale an action in [-1, 1], or a batch of them, to the environment's bounds."""
    return np.asarray(low + (action + 1) * 0.5 * (high - low)).astype(dtype)


def _noises(acting: Acting, size: int, hold: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the noise of each step; a sample is held for a zeta-distributed number of steps, at most `hold`."""
    noise = np.zeros(size, np.float32)
    while True:
        noise = _next_noise(acting, noise, rng)
        for _ in range(1 if hold == 1 or acting == "mode" else min(int(rng.zipf(_HOLD_EXPONENT)), hold)):
            yield noise


def _next_noise(acting: Acting, noise: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the noise of the next step; for `random` it is the action itself."""
    if acting == "random":
        return rng.uniform(-1, 1, noise.shape).astype(np.float32)
    if acting == "explore":
        return rng.standard_normal(noise.shape, np.float32)
    if acting == "drift":
        drawn = rng.standard_normal(noise.shape, np.float32)
        return np.float32(1 - _DRIFT_THETA) * noise + np.float32(_DRIFT_SIGMA) * drawn
    return noise


def _choose(request: EpisodeRequest, observation: np.ndarray, noise: np.ndarray) -> np.ndarray:
    if request.acting == "random":
        return noise
    assert request.policy is not None
    return request.policy.mode(observation) if request.acting == "mode" else request.policy.act(observation, noise)


def _checked(value: Any, shape: tuple[int, ...], name: str, env: Any, request: EpisodeRequest, step: int) -> np.ndarray:
    array = np.array(value, np.float32)  # a copy: some environments reuse their array
    if array.shape != shape:
        wrong = f"has shape {array.shape} instead of {shape}"
    elif not np.isfinite(array).all():
        wrong = "is not finite"
    else:
        return array
    who = env.spec.id if env.spec else type(env.unwrapped).__name__
    raise EnvironmentFailure(f"{who} gave {name} that {wrong} at step {step} of the {request}.")
