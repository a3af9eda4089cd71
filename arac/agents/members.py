"""The members of a population as separate agents, each of which can act independently, and their evaluation."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from arac.algorithms.base import State
from arac.algorithms.registry import Algorithm
from arac.envs import EnvSpec
from arac.envs.observations import flattened
from arac.errors import UserError
from arac.models.policies import Policy
from arac.models.policies.custom import CustomPolicyAdapter
from arac.models.stacked import members, take
from arac.population.archive import Archive
from arac.rollout.episode import rescale_action
from arac.rollout.local_pool import LocalPool
from arac.rollout.rollouts import Rollouts
from arac.rollout.sending import worker_count
from arac.storage import export
from arac.storage.run_spec import RunSpec, check_seed
from arac.utils.progress import Progress


@dataclass(frozen=True, eq=False)
class Member:
    """A single agent: a member of the population or of the archive, or the champion."""

    policy: Policy = field(repr=False)  # with NumPy leaves; its actions lie in [-1, 1]
    env: EnvSpec = field(repr=False)
    rng: np.random.Generator = field(repr=False)  # draws the noise of actions
    fitness: float | None  # mean return of its last evaluation; None if it has learned since, or was not evaluated
    is_elite: bool  # in the population's last ranking

    def predict(
        self, observation: Any, state: None = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, None]:
        """Return the action for one observation or a batch of them, in the environment's units.

        The signature is that of Stable-Baselines3's `predict`.

        Args:
            observation: as the environment returns it, or flattened; a batch has a leading axis.
            state: ignored; the policy has no memory.
            episode_start: ignored.
            deterministic: act without noise.

        Returns:
            The action or the batch of actions, and None in place of a recurrent state.

        Raises:
            UserError: if the observation does not fit the environment, or contains NaN or infinity.
        """
        flat = flattened(self.env, observation)
        if not np.isfinite(flat).all():
            raise UserError(_says_where(flat, self.env))
        if deterministic:
            action = self.policy.mode(flat)
        else:
            shape = (*flat.shape[:-1], self.env.action_size)
            action = self.policy.act(flat, self.rng.standard_normal(shape, np.float32))
        return rescale_action(action, self.env.low, self.env.high, self.env.action_dtype), None

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to one npz file of plain arrays, to act without JAX and without arac.

        Raises:
            UserError: if it is a custom policy, which only its class can compute, or the file cannot be written at
                `path`.
        """
        export.write(Path(path), self.policy, self.env)


class Score(NamedTuple):
    """The returns of whole episodes that were played without exploration noise.

    `mean` and `std` are over `returns`; `returns` and `lengths` have an entry per episode.
    """

    mean: float
    std: float
    returns: np.ndarray
    lengths: np.ndarray


def score(
    policy: Policy, spec: RunSpec, episodes: int, seed: int, reset_seeds: Sequence[int] | None, progress: Progress
) -> Score:
    """Evaluate a policy, with the arguments and errors of `Agent.evaluate`."""
    if reset_seeds is not None:
        episodes = len(reset_seeds)
    if episodes < 1:
        raise UserError(f"episodes must be at least 1, got {episodes}.")
    for one in (seed, *(() if reset_seeds is None else reset_seeds)):
        check_seed(one)
    config = spec.config
    with LocalPool(spec.env, min(worker_count(spec.env, config.workers), episodes), config.episode_limit()) as pool:
        rollouts = Rollouts(pool, spec.seed, progress)
        if reset_seeds is not None:
            played = rollouts.evaluate_on(policy, reset_seeds)
        else:
            [played] = rollouts.evaluate(jax.tree.map(lambda leaf: leaf[None], policy), seed, episodes, stream="fresh")
    returns = np.array([episode.total for episode in played])
    return Score(float(returns.mean()), float(returns.std()), returns, np.array([len(e) for e in played]))


class Members(NamedTuple):
    """All members that a state holds."""

    state: State
    population: tuple[Member, ...]
    archive: tuple[Member, ...]

    @staticmethod
    def of(
        algorithm: Algorithm, state: State, env: EnvSpec, rng: np.random.Generator, fitness: np.ndarray | None
    ) -> "Members":
        """Build the members of a state; `fitness` is per member or the champion's alone, else it is ignored."""
        policies = _one_by_one(state.population)
        known = dict.fromkeys(range(len(policies)))
        measured = {len(policies): range(len(policies)), 1: [state.champion]}
        if fitness is not None and len(fitness) in measured:
            known |= dict(zip(measured[len(fitness)], map(float, fitness), strict=True))
        elites = algorithm.elites(state)
        population = tuple(
            Member(policy, env, rng, known[number], number in elites) for number, policy in enumerate(policies)
        )
        return Members(state, population, _archived(algorithm.archive(state), env, rng))


def _archived(archive: Archive | None, env: EnvSpec, rng: np.random.Generator) -> tuple[Member, ...]:
    """Return the archived policies as members."""
    if archive is None or archive.size == 0:
        return ()
    policies = _one_by_one(take(archive.policies, np.arange(archive.size)))
    return tuple(
        Member(policy, env, rng, float(fitness), is_elite=False)
        for policy, fitness in zip(policies, archive.fitness, strict=False)
    )


def _says_where(observation: np.ndarray, env: EnvSpec) -> str:
    """Describe the first number of an observation that is not finite."""
    *batch, place = np.argwhere(~np.isfinite(observation))[0].tolist()
    which = f" of observation {', '.join(map(str, batch))}" if batch else ""
    value = observation[(*batch, place)]
    return f"predict got {value} at index {place}{which}: every number of an observation of {env.id} must be finite."


def _one_by_one(population: Policy) -> list[Policy]:
    """Return the policies one by one with NumPy leaves, custom ones as objects of the user's class."""
    return [policy.policy if isinstance(policy, CustomPolicyAdapter) else policy for policy in members(population)]
