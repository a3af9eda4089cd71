"""Episodes of trained populations."""

from arac.agents.agent import Agent
from arac.replay.episode import Episode
from arac.rollout.local_pool import LocalPool
from arac.rollout.rollouts import Rollouts
from arac.utils.progress import Progress


def play_each(agent: Agent, episodes: int = 1) -> list[list[Episode]]:
    """Play fresh episodes with every member, without noise, and return them by member."""
    with LocalPool(agent.env, 0, None) as pool:
        rollouts = Rollouts(pool, agent.description.seed, Progress())
        return rollouts.evaluate(agent.state.population, 0, episodes, record=True, stream="fresh")
