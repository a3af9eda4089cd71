"""`arac play`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import numpy as np
import tyro

from arac.cli.common import has_screen, log, parse
from arac.errors import UserError

if TYPE_CHECKING:
    from arac.envs import EnvSpec
    from arac.models.policies import Policy
    from arac.replay.episode import Episode
    from arac.rollout.episode import EpisodeRequest

    Requests: TypeAlias = list[list[EpisodeRequest]]  # by episode, then by member


@dataclass(frozen=True)
class PlayArgs:
    """Show the agents of a run in a window or film them. All act without noise from the same start state.

    The champion plays the episodes that `arac evaluate` measures with the same seed.
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder, or a file that an agent was saved to."""
    video: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """An .mp4 or .gif to write; without one a window is opened."""
    member: Annotated[str, tyro.conf.arg(metavar="champion|all|N")] = "champion"
    """Member to show: champion, an index, or all side by side."""
    episodes: int = 1
    """Number of episodes."""
    seed: int = 0
    """Seed of the episodes."""
    max_steps: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Maximum steps of an episode."""


def play(argv: list[str]) -> None:
    """Carry out `arac play`."""
    from arac.agents.classes import load
    from arac.learning.jit import keep_between_runs
    from arac.models.stacked import top_k
    from arac.video import limited

    args = parse(PlayArgs, "play", argv)
    _check(args)
    keep_between_runs()
    agent = load(args.run, log=log)
    if args.video is None and not has_screen():
        raise UserError("There is no screen to open a window on; `--video FILE.mp4` films it instead.")
    policies = [member.policy for member in agent.population]
    chosen = _chosen(args.member, int(agent.state.champion), len(policies))
    env = limited(agent.env, args.max_steps)
    print(f"{agent.algorithm.title} on {env.id}, trained for {agent.state.env_steps:,} steps", flush=True)
    requests = _requests(policies, agent.description.seed, args)
    unseen = _played(env, requests, agent.config.episode_limit())
    order = top_k(np.mean([[one.total for one in episodes] for episodes in unseen], axis=0), len(policies)).tolist()
    shown = [member for member in order if member in chosen]  # best first

    if args.video is None:
        seen = _shown(env, requests, shown)
    else:
        stars = [" ★" if member.is_elite else "" for member in agent.population]
        labels = [f"rank {order.index(one) + 1} · member {one}{stars[one]}" for one in shown]
        steps = sum(1 + max(len(episodes[member]) for member in shown) for episodes in unseen)  # and each reset
        seen = _filmed(env, requests, shown, labels, args.video, steps)
    for number, member, episode in seen:
        which = f"episode {number}: " if args.episodes > 1 else ""
        who = f"member {member}, rank {order.index(member) + 1} of {len(order)}"
        print(f"{which}{who}: return {episode.total:,.1f}, {len(episode):,} steps", flush=True)
    if args.video is not None:
        print(f"video: {args.video}")


def _check(args: PlayArgs) -> None:
    """Check the arguments before anything is loaded."""
    from arac.storage.run_spec import check_seed
    from arac.video import check_path

    check_seed(args.seed)
    if args.episodes < 1:
        raise UserError(f"episodes must be at least 1, got {args.episodes}.")
    if args.video is not None:
        check_path(args.video)


def _chosen(member: str, champion: int, size: int) -> list[int]:
    """Return the numbers of the members to show, in a population of `size`."""
    if member == "champion":
        return [champion]
    if member == "all":
        return list(range(size))
    if not member.isdecimal() or int(member) >= size:
        raise UserError(f"member must be champion, all or a number below {size}, got {member!r}.")
    return [int(member)]


def _requests(policies: list["Policy"], run_seed: int, args: PlayArgs) -> "Requests":
    """Return requests by episode, then by member: all members play the champion's episodes of `arac evaluate`."""
    from arac.rollout.episode import EpisodeRequest
    from arac.rollout.rollouts import start_of

    starts = [start_of(run_seed, "fresh", args.seed, number) for number in range(args.episodes)]
    return [
        [EpisodeRequest(one, "mode", run_seed, "fresh", (0, args.seed, number), False, start) for one in policies]
        for number, start in enumerate(starts)
    ]


def _played(env: "EnvSpec", requests: "Requests", time_limit: float | None) -> list[list["Episode"]]:
    """Play all episodes without rendering, which is quick: it gives the ranks and the length of the video."""
    from arac.rollout.local_pool import LocalPool
    from arac.training.display import episode_bar
    from arac.utils.processes import cores
    from arac.utils.progress import Progress

    everything = [request for of_all in requests for request in of_all]
    progress, workers = Progress(), min(len(cores()), len(everything))
    with LocalPool(env, workers, time_limit) as pool, episode_bar(progress, len(everything)):
        episodes = pool.run(everything, progress)
    size = len(requests[0])
    return [episodes[start : start + size] for start in range(0, len(episodes), size)]


def _filmed(
    env: "EnvSpec", requests: "Requests", shown: list[int], labels: list[str], path: Path, steps: int
) -> Iterator[tuple[int, int, "Episode"]]:
    """Write the video, then yield the number, the member and the record of each episode."""
    from arac.training.display import episode_bar
    from arac.utils.progress import Progress
    from arac.video import film_scenes
    from arac.video.scenes import Shot

    scenes = [[Shot(of_all[member], label) for member, label in zip(shown, labels, strict=True)] for of_all in requests]
    progress = Progress()
    with episode_bar(progress, steps, "filming"):
        filmed = film_scenes(env, scenes, path, progress)
    for number, episodes in enumerate(filmed):
        for member, episode in zip(shown, episodes, strict=True):
            yield number, member, episode


def _shown(env: "EnvSpec", requests: "Requests", shown: list[int]) -> Iterator[tuple[int, int, "Episode"]]:
    """Play in a window until it is closed; yield number, member and record of each episode once it has ended."""
    from arac.video import show

    who = [(number, member) for number in range(len(requests)) for member in shown]
    episodes = show(env, [requests[number][member] for number, member in who])
    for number, member in who:
        episode = next(episodes, None)
        if episode is None:
            log("the window was closed")
            return
        yield number, member, episode
