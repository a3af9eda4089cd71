"""Rollouts of a population, to learn from or to evaluate it."""

from collections.abc import Sequence
from typing import Protocol

from arac.models.policies import Policy
from arac.models.stacked import members
from arac.replay.episode import Acting, Episode
from arac.rollout.episode import EpisodeRequest
from arac.utils.progress import Progress
from arac.utils.rng import stream_rng


class Pool(Protocol):
    """A pool of workers that plays episodes; results are in the order of the requests."""

    def run(self, requests: list[EpisodeRequest], progress: Progress) -> list[Episode]:
        """Return the episodes of the requests; `progress` is advanced after each."""


class Rollouts:
    """The rollouts of a generation.

    Seed, member, generation and episode number determine every random number in them.
    """

    def __init__(self, pool: Pool, seed: int, progress: Progress) -> None:
        self._pool = pool
        self._seed = seed
        self._progress = progress

    def explore(
        self, population: Policy, generation: int, acting: Acting = "explore", *, noise_hold: int = 1
    ) -> list[Episode]:
        """Play one episode with exploration noise for each member."""
        return self._run("collect", population, 1, acting, "explore", generation, record=True, noise_hold=noise_hold)

    def evaluate_fitness(self, population: Policy, generation: int, episodes: int) -> list[list[Episode]]:
        """Play `episodes` episodes without noise for each member, to select by and to learn from."""
        flat = self._run("collect", population, episodes, "mode", "judge", generation, record=True)
        return _by_member(flat, episodes)

    def evaluate(
        self, population: Policy, generation: int, episodes: int, *, record: bool = False, stream: str = "evaluate"
    ) -> list[list[Episode]]:
        """Play `episodes` episodes without noise for each member, all members from the same start states.

        Args:
            population: the members, stacked.
            generation: with the stream, selects the episodes' random numbers.
            episodes: number of episodes of each member.
            record: return the transitions too, and not only returns and lengths.
            stream: name of the stream of random numbers.

        Returns:
            A list of episodes for each member.
        """
        starts = [start_of(self._seed, stream, generation, number) for number in range(episodes)]
        flat = self._run("evaluate", population, episodes, "mode", stream, generation, record=record, starts=starts)
        return _by_member(flat, episodes)

    def evaluate_on(self, policy: Policy, reset_seeds: Sequence[int]) -> list[Episode]:
        """Play one episode without noise for each of these seeds of the environment's reset."""
        requests = [
            EpisodeRequest(policy, "mode", self._seed, "given", (0, 0, number), record=False, reset_seed=seed)
            for number, seed in enumerate(reset_seeds)
        ]
        return self._play("evaluate", requests)

    def _run(
        self,
        phase: str,
        population: Policy,
        episodes: int,
        acting: Acting,
        stream: str,
        generation: int,
        *,
        record: bool,
        starts: Sequence[int] | None = None,
        noise_hold: int = 1,
    ) -> list[Episode]:
        resets = [None] * episodes if starts is None else starts
        requests = [
            EpisodeRequest(policy, acting, self._seed, stream, (member, generation, episode), record, reset, noise_hold)
            for member, policy in enumerate(members(population))
            for episode, reset in enumerate(resets)
        ]
        return self._play(phase, requests)

    def _play(self, phase: str, requests: list[EpisodeRequest]) -> list[Episode]:
        with self._progress.phase(phase, len(requests)):
            return self._pool.run(requests, self._progress)


def start_of(seed: int, stream: str, generation: int, episode: int) -> int:
    """Return the seed of the environment's reset in an episode of an evaluation, the same for every member."""
    return int(stream_rng(seed, f"{stream}-start", generation, episode).integers(2**31))


def _by_member(flat: list[Episode], episodes: int) -> list[list[Episode]]:
    return [flat[start : start + episodes] for start in range(0, len(flat), episodes)]
