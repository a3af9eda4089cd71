"""The Python API, in the style of Stable-Baselines3: `ARAC("Hopper-v5").learn(1_000_000)`."""

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, cast

import numpy as np
from gymnasium.spaces import Box, Space

from arac import envs
from arac.agents.members import Member, Members, Score, score
from arac.agents.stable_baselines import check_arguments
from arac.algorithms.base import Context, State, StateT, init_replay
from arac.algorithms.config import Config
from arac.algorithms.presets import configured
from arac.algorithms.registry import Algorithm
from arac.envs import EnvSpec
from arac.envs.making import FromUser
from arac.errors import Interrupted, UserError
from arac.learning.jit import timed_compiling
from arac.models.policies.custom import CustomPolicy
from arac.replay.buffer import ReplayBuffer
from arac.rollout.local_pool import LocalPool
from arac.rollout.ray_pool import RayPool
from arac.rollout.rollouts import Rollouts
from arac.rollout.sending import worker_count
from arac.storage import agent_file, checkpoint, run_folder
from arac.storage.agent_file import Policies, policies_of
from arac.storage.metrics import fitness_at
from arac.storage.run_folder import Run
from arac.storage.run_spec import RunSpec, check_policy, check_seed
from arac.training import loop
from arac.training.callbacks.base import Callback, Callbacks, as_list, informed
from arac.training.checkpointer import Checkpointer
from arac.training.display import Pace, choose
from arac.utils import ray_utils
from arac.utils.progress import Progress
from arac.utils.validation import check_steps

ConfigT = TypeVar("ConfigT", bound=Config)


class Agent(Generic[ConfigT, StateT]):
    """Base class of the agents: an algorithm on an environment, with its settings and what it has learned."""

    algorithm: ClassVar[Algorithm]

    def __init__(
        self,
        env: str | FromUser,
        *more: object,
        seed: int = 0,
        preset: str | bool = "paper",
        max_episode_steps: int | None = None,
        env_kwargs: dict[str, Any] | None = None,
        policy: type[CustomPolicy] | None = None,
        **config: Any,
    ) -> None:
        """Create an untrained agent, by default with the paper's parameters for this task if the paper has some.

        Args:
            env: a Gymnasium id, a task's short name such as `Hopper`, a function or class that makes an environment, or
                an environment. The observations must be continuous, the actions continuous and bounded.
            *more: refused, for those who pass a policy first, as to Stable-Baselines3.
            seed: seed of every random number of the run.
            preset: the settings to start from. "paper" (or True): the paper's parameters for this task; "paper-letter":
                also attraction and repulsion exactly as the paper writes them; "published" and "public-code": ERL and
                CERL as in their papers or in their authors' code; "none" (or False): plain defaults.
            max_episode_steps: time limit of an episode; 10,000 if the environment has none.
            env_kwargs: keyword arguments for the environment's constructor.
            policy: a custom policy class, for the soft actor-critics (docs/extending.md).
            **config: any field of the algorithm's config, such as `hidden_size`; overrides the preset.

        Raises:
            UserError: if the environment, the policy or a setting is invalid, or the agent does not fit into memory.
        """
        check_arguments(type(self).__name__, env, more, config)
        spec = envs.check(env, max_episode_steps=max_episode_steps, kwargs=env_kwargs)
        settings, row = configured(self.algorithm.config, spec.id, config, preset=preset)
        if policy is not None and (idle := config.keys() & self.algorithm.config.policy_fields):
            raise UserError(f"{sorted(idle)[0]} has no effect on a custom policy: omit it.", fields=tuple(sorted(idle)))
        check_policy(policy, self.algorithm, spec)
        description = RunSpec(self.algorithm, spec, check_seed(seed), settings, row, policy)
        description.outline()  # raises if the state does not fit into memory
        self._set_up(description, description.first_state())

    def _set_up(self, description: RunSpec, state: State, fitness: np.ndarray | None = None) -> None:
        self.description = description
        self.state = cast(StateT, state)
        self._fitness = fitness  # of the current state, if it was evaluated
        self._replay: ReplayBuffer | None = None
        self._cast: Members | None = None  # cache: the members of the state they were made for
        self._noise = np.random.default_rng(description.seed)

    def __repr__(self) -> str:
        steps = f"env_steps={self.state.env_steps}"
        return f"{type(self).__name__}({self.env.id!r}, seed={self.description.seed}, {steps})"

    @property
    def config(self) -> ConfigT:
        """The algorithm's settings."""
        return cast(ConfigT, self.description.config)

    @property
    def env(self) -> EnvSpec:
        """The specification of the environment: its id, spaces and time limit."""
        return self.description.env

    @property
    def observation_space(self) -> Space:
        """The space of the environment's observations."""
        return self.env.observation_space

    @property
    def action_space(self) -> Box:
        """The space of the environment's actions."""
        env = self.env
        return Box(env.low.astype(env.action_dtype), env.high.astype(env.action_dtype), dtype=env.action_dtype.type)

    @property
    def num_timesteps(self) -> int:
        """The number of environment steps that the agent was trained for."""
        return self.state.env_steps

    @property
    def population(self) -> tuple[Member, ...]:
        """The members of the population; each can act independently."""
        return self._members().population

    @property
    def archive(self) -> tuple[Member, ...]:
        """The archived earlier policies of ARAC; empty for the other algorithms."""
        return self._members().archive

    @property
    def champion(self) -> Member:
        """The member that acts for the agent: the fittest one, or for CEM-TD3 the mean of its actor distribution."""
        return self.population[self.state.champion]

    def _members(self) -> Members:
        if self._cast is None or self._cast.state is not self.state:
            self._cast = Members.of(self.algorithm, self.state, self.env, self._noise, self._fitness)
        return self._cast

    @property
    def replay(self) -> ReplayBuffer:
        """The replay buffer; allocated when first used, because it is large."""
        if self._replay is None:
            self._replay = init_replay(self.config, self.env)
        return self._replay

    def learn(
        self,
        total_steps: int | None = None,
        *,
        total_timesteps: int | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        progress_bar: bool = False,
        callback: Callbacks = None,
    ) -> Self:
        """Train for `total_steps` more environment steps.

        Args:
            total_steps: number of environment steps; training ends with a whole generation, so it may take a few more.
            total_timesteps: the same, by its name in Stable-Baselines3.
            run_dir: a new folder for metrics and checkpoints; without one nothing is written.
            progress_bar: show a live panel, or plain lines if the output is not a terminal.
            callback: a callback (see `arac.callbacks`), a function, or a list of them. A function is called after each
                generation with this agent and the row of its evaluation, or None if it was not evaluated; if it returns
                False, the run stops.

        Returns:
            This agent.

        Raises:
            UserError: if the settings do not fit the length of the run or the machine's memory, the folder is in use,
                or the agent was saved with its policies only.
            EnvironmentFailure: if the environment or a worker process fails, or the numbers are no longer finite.
            StorageFailure: if the run folder cannot be written.
            KeyboardInterrupt: on Ctrl-C, after a checkpoint is written if there is a run folder.
        """
        callbacks = as_list(callback)
        if isinstance(self.state, Policies):
            raise UserError("This agent was saved with its policies only, and cannot learn: train a new one.")
        if (total_steps is None) == (total_timesteps is None):
            raise UserError("learn needs total_steps, and not total_timesteps beside it.", fields=("total_steps",))
        steps = total_timesteps if total_steps is None else total_steps
        target = self.state.env_steps + check_steps("total_steps", steps)
        loop.check_run(self.description, target)
        if self._replay is None:
            loop.check_memory(self.description)
        run = None
        if run_dir is not None:
            if self.config.rollouts == "ray":
                ray_utils.check()
            elif self.config.workers != "auto":
                worker_count(self.env, self.config.workers)  # refused before the folder is made
            run = Run.create(Path(run_dir), self.description, target, self.state, self.replay)
        with nullcontext() if run is None else closing(run):
            self._train(target, run, progress_bar, callbacks)
        return self

    @classmethod
    def resume(
        cls,
        run_dir: str | os.PathLike[str],
        *,
        total_steps: int | None = None,
        env: FromUser | None = None,
        policy: type[CustomPolicy] | None = None,
        workers: int | Literal["auto"] | None = None,
        rollouts: Literal["local", "ray"] | None = None,
        progress_bar: bool = False,
        callback: Callbacks = None,
        log: Callable[[str], None] = warnings.warn,
        say: Callable[[str], None] | None = None,
    ) -> Self:
        """Resume a run from its newest intact checkpoint, exactly as if it had never stopped.

        Args:
            run_dir: the run's folder.
            total_steps: a higher number of environment steps, counted from the beginning of the run, to extend it.
            env: the function or class that makes the environment, if the run was started with one.
            policy: the custom policy class, if the run was started with one.
            workers: number of worker processes from here on; results do not depend on it.
            rollouts: where episodes are played from here on: in local processes or with Ray; results do not depend on
                it.
            progress_bar: as for `learn`.
            callback: as for `learn`.
            log: called with one sentence at a time about the state of the run, before training begins.
            say: deprecated name of `log`.

        Returns:
            The agent, after training to the run's number of steps.

        Raises:
            UserError: if the folder holds no run of this algorithm, or `total_steps` is lower than before.
            EnvironmentFailure, StorageFailure, KeyboardInterrupt: as for `learn`.
        """
        folder, callbacks, log = Path(run_dir), as_list(callback), _log_or_say(log, say)
        description, goal = run_folder.read(folder, env, policy)
        target = goal if total_steps is None else check_steps("total_steps", total_steps)
        if target < goal:
            raise UserError(f"total_steps may only grow: it was {goal:,}, got {target:,}.", fields=("total_steps",))
        cls._check_kind(description, folder, "resume")
        loop.check_run(description, target)
        loop.check_memory(description)
        here = _with_settings(description, workers=workers, rollouts=rollouts)
        with closing(Run(folder, description)) as run:
            replay = init_replay(description.config, description.env)
            state, found = run.restore(replay)
            if target > goal:
                run.set_total_steps(target)
            agent = cls._made(here, state, fitness_at(folder, state.env_steps))
            agent._replay = replay
            for sentence in [*found, *_version_notes(folder)]:
                log(sentence)
            reached = agent.state.env_steps
            if reached >= target:
                log(f"{folder} is already at {reached:,} of {target:,} steps; pass a higher total_steps to extend it.")
                return agent
            log(f"Resuming {cls.algorithm.title} on {agent.env.id} in {folder}: {reached:,} of {target:,} steps.")
            agent._train(target, run, progress_bar, callbacks)
        return agent

    def _train(self, target: int, run: Run | None, show: bool, callbacks: list[Callback]) -> None:
        progress = Progress()
        with timed_compiling() as compiling:
            pace = Pace(self.state.env_steps, target, self.config.warmup_steps, compiling)
            title = f"{self.algorithm.title} · {self.env.id} · seed {self.description.seed}"
            archive = self.algorithm.archive(self.state)
            display = choose(progress, pace, title, None if archive is None else archive.capacity, show=show)
            told = informed(callbacks, self, run.folder if run else None)
            with progress.handle_signals(), self._training_pool() as pool, display, told as callback_list:
                if self.env.unlimited and self.state.env_steps == 0:
                    limit = f"{self.env.max_episode_steps:,} steps (max_episode_steps)"
                    progress.log(f"{self.env.id} has no time limit: an episode ends after at most {limit}.")
                rollouts = Rollouts(pool, self.description.seed, progress)
                context = Context(self.config, self.env, self.description.seed, target, self.replay, rollouts, progress)
                checkpointer = Checkpointer(context, run, self.state)
                generations = loop.train(self.algorithm, context, self.state, checkpointer, display, callback_list)
                with closing(generations):
                    for state, evaluation in generations:
                        self.state = cast(StateT, state)
                        self._fitness = None if evaluation is None else evaluation.fitness
        if callback_list.outcome == "interrupted":
            raise Interrupted

    def _training_pool(self) -> LocalPool | RayPool:
        if self.config.rollouts == "ray":
            return RayPool(self.env, self.config.episode_limit())
        workers = worker_count(self.env, self.config.workers)
        return LocalPool(self.env, workers, self.config.episode_limit())

    def predict(
        self, observation: Any, state: None = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, None]:
        """Return the champion's action, in the manner of Stable-Baselines3; see `Member.predict`."""
        return self.champion.predict(observation, state, episode_start, deterministic)

    def evaluate(
        self,
        episodes: int = 100,
        *,
        seed: int = 0,
        reset_seeds: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> Score:
        """Evaluate the champion on fresh episodes without exploration noise.

        Training never uses the seeds of these episodes.

        Args:
            episodes: number of episodes.
            seed: selects the episodes; another seed gives other episodes.
            reset_seeds: replaces `episodes` and `seed`: one episode from `env.reset(seed=...)` with each of these, for
                a comparison with results from elsewhere.
            progress: advanced after each episode.

        Returns:
            The returns and lengths of the episodes, with the returns' mean and standard deviation.

        Raises:
            UserError: if there are no episodes to play, or a seed is invalid.
            EnvironmentFailure: if the environment fails.
        """
        return score(self.champion.policy, self.description, episodes, seed, reset_seeds, progress or Progress())

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the champion to one npz file of plain arrays, to act without JAX and without arac.

        Raises:
            UserError: if the champion is a custom policy, or the file cannot be written at `path`.
        """
        self.champion.export(path)

    def save(self, path: str | os.PathLike[str], *, only: Literal["champion", "population"] | None = None) -> None:
        """Write the agent to one safetensors file.

        Args:
            path: the file.
            only: save only the champion's policy or the population's policies. An agent loaded from such a small file
                can act, be evaluated, filmed and exported, but cannot learn. By default all that was learned is saved,
                without the replay buffer.

        Raises:
            UserError: if `only` is neither, or a keyword argument of the environment is not a plain value.
        """
        if only not in (None, "champion", "population"):
            raise UserError(f"only must be 'champion' or 'population', got {only!r}.", fields=("only",))
        state = self.state if only is None else policies_of(self.state, champion_only=only == "champion")
        agent_file.write(Path(path), self.description, state)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        env: FromUser | None = None,
        policy: type[CustomPolicy] | None = None,
        log: Callable[[str], None] = warnings.warn,
        say: Callable[[str], None] | None = None,
    ) -> Self:
        """Load an agent from a file that `save` wrote, or from a run folder's newest intact checkpoint.

        The agent can act, be evaluated and learn with an empty replay buffer. To continue a run exactly, use `resume`.

        Args:
            path: the file or the run folder.
            env: the function or class that makes the environment, if the agent was created with one.
            policy: the custom policy class, if the agent was created with one.
            log: called with a sentence for each newer checkpoint that is damaged.
            say: deprecated name of `log`.

        Returns:
            The agent.

        Raises:
            UserError: if there is no agent at `path`, it is damaged, or it is another algorithm's.
        """
        path, log = Path(path), _log_or_say(log, say)
        if not path.is_dir():
            description, state = agent_file.read(path, env, policy)
            cls._check_kind(description, path)
            return cls._made(description, state)
        description, _ = run_folder.read(path, env, policy)
        cls._check_kind(description, path)
        state, _, skipped = checkpoint.load(path, description)
        for reason in skipped:
            log(f"skipped {reason}")
        return cls._made(description, state, fitness_at(path, state.env_steps))

    @classmethod
    def _check_kind(cls, description: RunSpec, path: Path, call: str = "load") -> None:
        if description.algorithm is not cls.algorithm:
            found, wanted = description.algorithm.label, cls.algorithm.label
            raise UserError(f"{path} holds an agent of {found}, not of {wanted}; {call} it with arac.{call}.")

    @classmethod
    def _made(cls, description: RunSpec, state: State, fitness: np.ndarray | None = None) -> Self:
        agent = cls.__new__(cls)
        agent._set_up(description, state, fitness)
        return agent


def _with_settings(description: RunSpec, **chosen: Any) -> RunSpec:
    """Return the specification with other settings, where they are not None."""
    changed = {name: value for name, value in chosen.items() if value is not None}
    return replace(description, config=replace(description.config, **changed))


def _log_or_say(log: Callable[[str], None], say: Callable[[str], None] | None) -> Callable[[str], None]:
    if say is not None:
        warnings.warn("say is deprecated; use log.", DeprecationWarning, stacklevel=3)
    return say or log


def _version_notes(folder: Path) -> list[str]:
    others = run_folder.other_versions(folder)
    return [f"the run was made with other versions ({', '.join(others)}): the last digits may differ"] if others else []
