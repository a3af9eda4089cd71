"""A pool that runs episodes on a Ray cluster: each is a Ray task, which any node may run."""

import faulthandler
import os
import sys
import uuid
from contextlib import ExitStack
from typing import Any, TypeAlias

import jax
import mujoco
import numpy as np

from arac.envs import EnvSpec, make
from arac.errors import EnvironmentFailure
from arac.models.policies import Policy
from arac.replay.episode import Episode
from arac.rollout.episode import EpisodeRequest, Failure, run_or_failure
from arac.rollout.local_pool import START_UP, TRIES, episode_of
from arac.utils import ray_utils
from arac.utils.processes import ONE_THREAD
from arac.utils.progress import Progress

Policies: TypeAlias = list[Policy | None]  # None for random actions
# The environment of this worker process, by the name of its pool: Ray reuses worker processes for later pools.
_made: dict[str, Any] = {}


class RayPool:
    """A pool on a Ray cluster. Results are in the order of the requests, and equal to those of a `LocalPool`.

    The policies of a generation are put into Ray's object store once, and each node fetches them once. An episode
    whose worker or node is lost, or that takes longer than `time_limit` seconds, is run again.
    """

    def __init__(self, spec: EnvSpec, time_limit: float | None = None) -> None:
        self._spec = spec
        self._time_limit = time_limit
        self._name = uuid.uuid4().hex
        self._last: tuple[Any, Any] | None = None  # the policies sent last, and their reference
        self._stack = ExitStack()
        self._ray = self._stack.enter_context(ray_utils.connected(show_output=True))
        self._spec_there = self._ray.put(spec)
        variables = {**ONE_THREAD, "JAX_PLATFORMS": "cpu", "PYTHONPATH": _users_modules()}
        options = {"num_cpus": 1, "max_retries": TRIES - 1, "runtime_env": {"env_vars": variables}}
        self._play = self._ray.remote(**options)(_play)

    def __enter__(self) -> "RayPool":
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def run(self, requests: list[EpisodeRequest], progress: Progress) -> list[Episode]:
        """Return the episode of each request.

        Raises:
            EnvironmentFailure: if an environment raises, or an episode loses its worker `TRIES` times.
            Interrupted: if the run was asked to stop.
        """
        policies = {id(request.policy): request.policy for request in requests}
        places = {key: place for place, key in enumerate(policies)}
        there = self._sent(list(policies.values()))
        bare = [(places[id(request.policy)], request._replace(policy=None)) for request in requests]
        numbers = {
            self._play.remote(self._name, self._spec_there, there, *one, self._time_limit): number
            for number, one in enumerate(bare)
        }
        results: dict[int, Episode] = {}
        under_way = list(numbers)
        try:
            while under_way:
                progress.check()
                done, under_way = self._ray.wait(under_way, timeout=0.2)
                for reference in done:
                    request = requests[numbers[reference]]
                    results[numbers[reference]] = episode_of(self._answer(reference, request), request, self._spec)
                    progress.advance()
        finally:
            for reference in under_way:
                self._ray.cancel(reference, force=True)
        return [results[number] for number in range(len(requests))]

    def _sent(self, policies: Policies) -> Any:
        """Put policies into the object store, unless they are those sent last, and return their reference.

        They often are: a generation is evaluated and then collects with the same policies.
        """
        leaves, structure = jax.tree.flatten(policies)
        these = structure, [leaf.tobytes() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        if self._last is None or self._last[0] != these:
            self._last = (these, self._ray.put(policies))
        return self._last[1]

    def _answer(self, reference: Any, request: EpisodeRequest) -> Episode | Failure:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            return Failure(str(error), explained=False)
        except self._ray.exceptions.RayError as error:
            limit = (
                ""
                if self._time_limit is None
                else f", or took longer than the {self._time_limit:g} s of episode_timeout"
            )
            raise EnvironmentFailure(
                f"{self._spec.id} lost its Ray worker in the {request}, {TRIES} times in a row: "
                f"it died{limit} ({error})."
            ) from None


def _users_modules() -> str:
    """Return a PYTHONPATH of the folders, other than Python's, in which this process finds modules.

    Nodes that have these folders, too, find the user's modules there.
    """
    installed = (sys.prefix, sys.base_prefix)
    ours = [path for path in sys.path if path and not path.startswith(installed)]
    return os.pathsep.join([*ours, "${PYTHONPATH}"])  # followed by the node's PYTHONPATH


def _play(
    pool: str, spec: EnvSpec, policies: Policies, place: int, request: EpisodeRequest, time_limit: float | None
) -> Episode | Failure:
    """Run one episode on a worker, which writes a traceback and exits after `time_limit`, even while in C code."""
    try:
        if pool not in _made:
            _end_itself_after(time_limit, START_UP)
            for other in _made.values():
                other.close()
            _made.clear()
            _made[pool] = make(spec)
            mujoco.set_mju_user_warning(lambda _: None)  # MuJoCo would write a file of warnings there
        _end_itself_after(time_limit)
        return run_or_failure(_made[pool], spec.low, spec.high, request._replace(policy=policies[place]))
    finally:
        faulthandler.cancel_dump_traceback_later()


def _end_itself_after(time_limit: float | None, more: float = 0.0) -> None:
    if time_limit is not None:
        faulthandler.dump_traceback_later(time_limit + more, exit=True)
