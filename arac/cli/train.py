"""`arac train`, `arac resume` and `arac evaluate`."""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

import tyro

from arac.cli.common import can_print, keyword_arguments, log, parse, peek, program, terminal_width
from arac.errors import EnvironmentFailure, Interrupted, NotFinite, StorageFailure

if TYPE_CHECKING:
    from arac.agents.agent import Agent
    from arac.algorithms.config import Config

ConfigT = TypeVar("ConfigT")
Result = TypeVar("Result")


@dataclass(frozen=True)
class CallbackArgs:
    """Callbacks. Results do not depend on them. Pass them again when you resume a run."""

    stop_at_return: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    """Stop when an evaluation gives the champion at least this mean return."""
    video_interval: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Film the champion every so many environment steps, into videos/ in the run folder."""
    wandb: Annotated[str | None, tyro.conf.arg(metavar="PROJECT")] = None
    """Send the numbers of every evaluation to this project of Weights & Biases."""

    def made(self) -> list[Any]:
        """Return the callbacks that the flags ask for."""
        from arac.callbacks import PeriodicVideo, StopAtReturn, WandB

        return [
            *([] if self.stop_at_return is None else [StopAtReturn(self.stop_at_return)]),
            *([] if self.video_interval is None else [PeriodicVideo(self.video_interval)]),
            *([] if self.wandb is None else [WandB(self.wandb)]),
        ]


@dataclass(frozen=True)
class TrainArgs(Generic[ConfigT]):
    """Train an agent on a Gymnasium environment.

    Its settings start from the paper's parameters for that task, where the paper has some: the defaults shown
    below are those of the ENV and --algo given.
    """

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """Gymnasium id, such as Hopper-v5 or module:Name-v0, or a short name that `arac list envs` shows."""
    config: tyro.conf.OmitArgPrefixes[ConfigT]
    algo: str = "arac"
    """Algorithm to train; `arac list algos` lists them."""
    steps: int = 1_000_000
    """Environment steps to train for."""
    seed: int = 0
    """Seed of every random number of the run."""
    run_dir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """A new folder for the run; by default one below runs/, named after task, algorithm and seed."""
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "paper"
    """paper: start from the paper's parameters for this task (for ERL, its authors'); paper-letter: and from the
    paper's attraction and repulsion to the letter; published, public-code: ERL and CERL as their papers or their
    authors' programs have them; none: from plain defaults."""
    max_episode_steps: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Maximum steps of an episode; required if the environment has no time limit."""
    env_kwargs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Arguments for the environment's constructor; values as in TOML, and words as they are."""
    callback: tyro.conf.OmitArgPrefixes[CallbackArgs] = CallbackArgs()


@dataclass(frozen=True)
class ResumeArgs:
    """Resume a run from its newest intact checkpoint, with the same result as without interruption."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """A higher total of environment steps, to extend the run."""
    workers: Annotated[int | Literal["auto"] | None, tyro.conf.arg(metavar="INT|auto")] = None
    """Number of worker processes from now on. Results do not depend on it."""
    rollouts: Literal["local", "ray"] | None = None
    """Play episodes in local processes or as Ray tasks from now on. Results do not depend on it."""
    callback: tyro.conf.OmitArgPrefixes[CallbackArgs] = CallbackArgs()


@dataclass(frozen=True)
class EvaluateArgs:
    """Play episodes without noise with the champion of a run, on seeds that training never used."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder, or a file that an agent was saved to."""
    episodes: int = 100
    """Number of episodes."""
    seed: int = 0
    """Seed of the episodes."""


def train(argv: list[str]) -> None:
    """Carry out `arac train`."""
    from arac.agents.classes import AGENTS
    from arac.learning.jit import keep_between_runs
    from arac.storage import run_folder
    from arac.sweeps.jobs import run_name
    from arac.training.loop import check_memory, check_run

    keep_between_runs()
    algo, preset, args = _train_args(argv)
    agent = AGENTS[algo](
        args.env,
        seed=args.seed,
        preset=preset,
        max_episode_steps=args.max_episode_steps,
        env_kwargs=keyword_arguments(args.env_kwargs),
        **asdict(args.config),
    )
    callback = args.callback.made()
    check_run(agent.description, args.steps)
    check_memory(agent.description)
    folder = args.run_dir or run_folder.fresh_folder(Path("runs"), run_name(agent.env.id, algo, args.seed))
    run_folder.check_free(folder)
    _log_start(agent, args.steps, folder)
    _run(folder, lambda: agent.learn(args.steps, run_dir=folder, progress_bar=True, callback=callback))
    _log_early_stop(agent, args.steps)
    _log_result(agent, folder)


def _train_args(argv: list[str]) -> "tuple[str, str, TrainArgs[Config]]":
    """Return algorithm, preset and all arguments of `arac train`, with the defaults of its task."""
    from arac.algorithms import presets
    from arac.algorithms.registry import find

    algorithm = find(peek(argv, "--algo") or "arac")
    preset = peek(argv, "--preset") or "paper"

    def read(env_id: str) -> "TrainArgs[Config]":
        defaults, _ = presets.configured(algorithm.config, env_id, {}, preset=preset)
        start = TrainArgs(env_id or tyro.MISSING, defaults, algorithm.name, steps=presets.default_steps(env_id))
        return parse(TrainArgs[algorithm.config], "train", argv, start)  # type: ignore[name-defined]

    env_id = argv[0] if argv and not argv[0].startswith("-") else ""
    args = read(env_id)
    # If ENV is not the first word, parse again with the defaults of its task.
    return algorithm.name, preset, args if args.env == env_id else read(args.env)


def resume(argv: list[str]) -> None:
    """Carry out `arac resume`."""
    from arac.agents import classes
    from arac.learning.jit import keep_between_runs
    from arac.storage import run_folder

    keep_between_runs()
    args = parse(ResumeArgs, "resume", argv)
    callback = args.callback.made()
    chosen = {"total_steps": args.steps, "workers": args.workers, "rollouts": args.rollouts, "callback": callback}
    resumed = _run(args.run, lambda: classes.resume(args.run, **chosen, progress_bar=True, log=log))
    _log_early_stop(resumed, run_folder.read_config(args.run)["steps"])
    _log_result(resumed, args.run)


def evaluate(argv: list[str]) -> None:
    """Carry out `arac evaluate`."""
    from arac.agents.classes import load
    from arac.learning.jit import keep_between_runs
    from arac.training.display import episode_bar
    from arac.utils.progress import Progress

    keep_between_runs()
    args = parse(EvaluateArgs, "evaluate", argv)
    agent = load(args.run, log=log)
    progress = Progress()
    with episode_bar(progress, args.episodes):
        score = agent.evaluate(args.episodes, seed=args.seed, progress=progress)
    print(f"{agent.algorithm.title} on {agent.env.id}, trained for {agent.state.env_steps:,} steps")
    print(f"champion over {args.episodes} fresh episodes: {score.mean:,.1f} ± {score.std:,.1f}")
    low, high = score.returns.min(), score.returns.max()
    print(f"lowest {low:,.1f}, highest {high:,.1f}, mean length {score.lengths.mean():,.0f}")


def _run(folder: Path, work: Callable[[], Result]) -> Result:
    """Return the result of `work`; if it is interrupted or fails, tell the user how to resume the run."""
    how = f"{program()} resume {folder}"
    try:
        return work()
    except Interrupted:
        print(f"\nstopped; the checkpoint is saved. Resume with: {how}", file=sys.stderr)
        raise
    except KeyboardInterrupt:
        begun = (folder / "config.toml").exists()
        rest = f"at once; the last checkpoints remain. Resume with: {how}" if begun else "before it began"
        print(f"\nstopped {rest}", file=sys.stderr)
        raise
    except NotFinite:
        raise
    except EnvironmentFailure as error:
        saved = "The last complete generation is saved"
        raise EnvironmentFailure(f"{error}\n{saved}. Fix the cause, then resume with: {how}") from None
    except StorageFailure as error:
        raise StorageFailure(f"{error} Fix this, then resume with: {how}") from None


def _log_start(agent: "Agent", steps: int, folder: Path) -> None:
    env, preset = agent.env, agent.description.preset
    settings = "plain defaults, with your flags"
    if preset:
        row = ", ".join(f"{name} {getattr(agent.config, name)}" for name in agent.config.preset_fields)
        whose = "the paper's" if agent.config.preset_table == "paper" else "its authors'"
        settings = f"{whose} parameters for {preset}, with your flags: {row}"
    print(f"{agent.algorithm.title} on {env.id}: {env.observation_size} observations, {env.action_size} actions")
    print(f"settings: {settings}")
    print(f"{steps:,} environment steps, seed {agent.description.seed}, into {folder}", flush=True)


def _log_early_stop(agent: "Agent", steps: int) -> None:
    """Print that the run ended early; of the command's callbacks only `StopAtReturn` can end it."""
    if agent.state.env_steps < steps:
        print(
            f"stopped at {agent.state.env_steps:,} of {steps:,} steps: the champion has the return of --stop-at-return"
        )


def _log_result(agent: "Agent", folder: Path) -> None:
    from arac.analysis import run_curve
    from arac.storage import metrics

    title = f"{agent.algorithm.title} on {agent.env.id}, seed {agent.description.seed}"
    try:
        rows = metrics.read_evaluations(folder)
    except (OSError, ValueError):
        print(f"{folder / 'evaluations.jsonl'} cannot be read any more, so there is no curve of it")
        return
    if not rows:
        return
    best = max(rows, key=lambda row: row["champion_return"])
    last = rows[-1]
    several = len(last["fitness"]) > 1
    which = f": member {last['champion']}" if several else ""
    video = "--member all --video population.mp4" if several else "--video champion.mp4"
    print(
        f"\nchampion{which} with a return of {last['champion_return']:,.1f} "
        f"at {last['env_steps']:,} steps (first measured {rows[0]['champion_return']:,.1f} at "
        f"{rows[0]['env_steps']:,}; best {best['champion_return']:,.1f} at {best['env_steps']:,})"
    )
    if len(rows) > 1 and can_print("┤└─▁█"):
        returns = [row["champion_return"] for row in rows]
        width = min(terminal_width(), 80)
        print(f"\n{run_curve.in_terminal([row['env_steps'] for row in rows], returns, width=width)}\n")
    print(f"run folder: {folder}")
    print(f"learning curve: {run_curve.draw(folder, title)}")
    print("next:")
    print(f"  {program()} evaluate {folder} --episodes 100")
    print(f"  {program()} play {folder} {video}")
    print(f"  {program()} resume {folder} --steps {2 * last['env_steps']}")
