"""Episodes on a Ray cluster: each is a task that any node may play."""

import faulthandler
import os
import sys
import uuid
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import jax
import mujoco
import numpy as np

from arac.envs import EnvSpec, make
from arac.errors import EnvironmentFailure
from arac.replay.episode import Episode
from arac.rollout.episode import Failure, Task, played
from arac.rollout.local_pool import START_UP, TRIES, episode_of
from arac.utils import ray_utils
from arac.utils.processes import ONE_THREAD
from arac.utils.progress import Progress

# The environment of this worker process, with the pool that it belongs to: Ray's workers are used again and again.
_made: dict[str, Any] = {}


class RayPool:
    """Runs tasks on a Ray cluster. Results come in the order of the tasks, and are those of a local pool.

    The policies of a generation are put into Ray's object store once, and each node fetches them once. An episode
    whose worker or node is lost, or that takes longer than `time_limit` seconds, is played again elsewhere.
    """

    def __init__(self, spec: EnvSpec, time_limit: float | None = None) -> None:
        self._spec = spec
        self._time_limit = time_limit
        self._name = uuid.uuid4().hex
        self._last: tuple[Any, Any] | None = None  # the policies that were sent last, and where they are
        self._stack = ExitStack()
        self._ray = self._stack.enter_context(ray_utils.connected(show_output=True))
        self._spec_there = self._ray.put(spec)
        variables = {**ONE_THREAD, "JAX_PLATFORMS": "cpu", "PYTHONPATH": _users_modules()}
        options = {"num_cpus": 1, "max_retries": TRIES - 1, "runtime_env": {"env_vars": variables}}
        self._play = self._ray.remote(**options)(_play)

    def __enter__(self) -> "RayPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self, tasks: list[Task], progress: Progress) -> list[Episode]:
        """Every task's episode.

        Raises:
            EnvironmentFailure: if an environment raises, or its worker is lost or takes too long again and again.
            Interrupted: if the run was asked to stop.
        """
        policies = {id(task.policy): task.policy for task in tasks}
        places = {key: place for place, key in enumerate(policies)}
        there = self._sent(list(policies.values()))
        numbers = {
            self._play.remote(
                self._name,
                self._spec_there,
                there,
                places[id(task.policy)],
                task._replace(policy=None),
                self._time_limit,
            ): number
            for number, task in enumerate(tasks)
        }
        results: dict[int, Episode] = {}
        under_way = list(numbers)
        try:
            while under_way:
                progress.check()
                done, under_way = self._ray.wait(under_way, timeout=0.2)
                for reference in done:
                    task = tasks[numbers[reference]]
                    results[numbers[reference]] = episode_of(self._answer(reference, task), task, self._spec)
                    progress.advance()
        finally:
            for reference in under_way:
                self._ray.cancel(reference, force=True)
        return [results[number] for number in range(len(tasks))]

    def _sent(self, policies: list[Any]) -> Any:
        """Where they are in the object store: a generation is evaluated and then collects with the same ones."""
        leaves, structure = jax.tree.flatten(policies)
        these = structure, [leaf.tobytes() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        if self._last is None or self._last[0] != these:
            self._last = (these, self._ray.put(policies))
        return self._last[1]

    def _answer(self, reference: Any, task: Task) -> Episode | Failure:
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
                f"{self._spec.id} lost its Ray worker in the {task}, {TRIES} times in a row: it died{limit} ({error})."
            ) from None


def _users_modules() -> str:
    """Where this process finds modules beside the installed ones, for nodes on which these folders are there, too."""
    installed = (sys.prefix, sys.base_prefix)
    ours = [path for path in sys.path if path and not path.startswith(installed)]
    return os.pathsep.join([*ours, "${PYTHONPATH}"])  # beside those that the node has


def _play(
    pool: str, spec: EnvSpec, policies: list[Any], place: int, task: Task, time_limit: float | None
) -> Episode | Failure:
    """What a worker does. One that takes too long says where it is and ends itself, even if it hangs in C code."""
    try:
        if pool not in _made:
            _end_itself_after(time_limit, START_UP)
            for other in _made.values():
                other.close()
            _made.clear()
            _made[pool] = make(spec)
            mujoco.set_mju_user_warning(lambda _: None)  # they would go to a file in the worker's folder
        _end_itself_after(time_limit)
        return played(_made[pool], spec.low, spec.high, task._replace(policy=policies[place]))
    finally:
        faulthandler.cancel_dump_traceback_later()


def _end_itself_after(time_limit: float | None, more: float = 0.0) -> None:
    if time_limit is not None:
        faulthandler.dump_traceback_later(time_limit + more, exit=True)
