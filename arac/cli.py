"""The command: `arac train | resume | evaluate | doctor | reproduce | list`."""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

# JAX tells of devices that are not there; a user of the command has not asked.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tyro

from arac.errors import EnvironmentFailure, Interrupted, NotFinite, StorageFailure, UserError

ConfigT = TypeVar("ConfigT")
ArgsT = TypeVar("ArgsT")
Result = TypeVar("Result")

USAGE = """\
usage: arac COMMAND [...]

  train ENV        train ARAC, or --algo another, on a Gymnasium environment
  resume RUN       go on with a run that was stopped or killed, exactly where it was
  evaluate RUN     play fresh episodes with the champion of a run
  doctor RUN       verify everything in a run folder and say what was found
  reproduce NAME   run an experiment: its table and its picture
  list algos|envs  what there is to train, and on what

`arac COMMAND --help` explains each.  arac --version prints the version."""


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
    """Which system: `arac list algos` shows them."""
    steps: int = 1_000_000
    """Environment steps to train for."""
    seed: int = 0
    """Fixes every random number of the run."""
    run_dir: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """A new folder for the run; by default one below runs/, named after task, system and seed."""
    preset: Literal["paper", "none"] = "paper"
    """paper: start from the paper's parameters for this task (for ERL, its authors'); none: from plain defaults."""
    max_episode_steps: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """A time limit per episode; needed where the environment has none."""
    env_kwargs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Arguments for the environment's constructor; values as in TOML, and words as they are."""


@dataclass(frozen=True)
class ResumeArgs:
    """Go on with a run, from its newest whole checkpoint, as if it had never stopped."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """A new total of environment steps, if it should go further than it was started for."""


@dataclass(frozen=True)
class EvaluateArgs:
    """Play episodes without noise with the champion of a run, on seeds that training never used."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder, or a file that an agent was saved to."""
    episodes: int = 100
    """How many."""
    seed: int = 0
    """Another number gives other episodes."""


@dataclass(frozen=True)
class DoctorArgs:
    """Verify a run folder: hashes, shapes, counters, and metrics against checkpoints. Nothing in it is changed.

    Exit status 0 if all is sound, 3 if something is damaged.
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run's folder."""


@dataclass(frozen=True)
class ReproduceArgs:
    """Run an experiment: a series of ordinary runs, then a table and a picture of them.

    What is finished is not run again, and what was stopped goes on: give the same command once more. With more steps
    than before the runs go on, too; each has then one evaluation more than a run that was begun with as many.
    """

    experiment: tyro.conf.Positional[Literal["deceptive"]]
    """deceptive: how often ARAC, ARAC without attraction and repulsion, SAC-NF and SAC find the optimum of a task with
    a trap, and where their agents go."""
    steps: int = 15_000
    """Environment steps of each run."""
    seeds: int = 10
    """Runs of each system, with the seeds 0, 1, …"""
    runs: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Where the run folders are; by default below runs/, named after the experiment."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Where table and picture go; by default beside the run folders."""
    processes: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Runs at a time, each on one core; by default as many as there are cores."""


@dataclass(frozen=True)
class ListArgs:
    """Show what there is."""

    what: tyro.conf.Positional[Literal["algos", "envs"]]
    """algos: the systems; envs: the tasks that have a preset."""


def train(argv: list[str]) -> None:
    from arac import config, runs
    from arac.agent import AGENTS
    from arac.algorithms import find
    from arac.training import check_memory, check_run

    algorithm = find(_peek(argv, "--algo") or "arac")
    use_preset = _peek(argv, "--preset") != "none"

    def parse(env_id: str) -> TrainArgs[Any]:
        defaults, _ = config.configured(algorithm.config, env_id, {}, preset=use_preset)
        start = TrainArgs(env_id or tyro.MISSING, defaults, algorithm.name, steps=config.default_steps(env_id))
        return _parse(TrainArgs[algorithm.config], "train", argv, start)  # type: ignore[name-defined]

    env_id = argv[0] if argv and not argv[0].startswith("-") else ""
    args = parse(env_id)
    if args.env != env_id:  # it stands behind some flag: once more, with the defaults of its task
        args = parse(args.env)
    agent = AGENTS[algorithm.name](
        args.env,
        seed=args.seed,
        preset=use_preset,
        max_episode_steps=args.max_episode_steps,
        env_kwargs=_keyword_arguments(args.env_kwargs),
        **asdict(args.config),
    )
    check_run(agent.description, args.steps)
    check_memory(agent.description)
    name = f"{re.sub(r'[/:]', '_', agent.env.id)}-{algorithm.name}-seed{args.seed}"
    folder = args.run_dir or runs.fresh_folder(Path("runs"), name)
    runs.check_free(folder)
    _say_what_starts(agent, args.steps, folder)
    _run(folder, lambda: agent.learn(args.steps, run_dir=folder, progress_bar=True))
    _say_what_came_out(agent, folder)


def resume(argv: list[str]) -> None:
    from arac import agent

    args = _parse(ResumeArgs, "resume", argv)
    resumed = _run(args.run, lambda: agent.resume(args.run, total_steps=args.steps, progress_bar=True, say=_say))
    _say_what_came_out(resumed, args.run)


def evaluate(argv: list[str]) -> None:
    from arac.agent import load
    from arac.display import episode_bar
    from arac.progress import Progress

    args = _parse(EvaluateArgs, "evaluate", argv)
    agent = load(args.run, say=_say)
    progress = Progress()
    with episode_bar(progress, args.episodes):
        score = agent.evaluate(args.episodes, seed=args.seed, progress=progress)
    print(f"{agent.algorithm.title} on {agent.env.id}, trained for {agent.state.env_steps:,} steps")
    print(f"champion over {args.episodes} fresh episodes: {score.mean:,.1f} ± {score.std:,.1f}")
    low, high = score.returns.min(), score.returns.max()
    print(f"lowest {low:,.1f}, highest {high:,.1f}, mean length {score.lengths.mean():,.0f}")


def examine(argv: list[str]) -> int:
    from arac.doctor import examine

    damaged = False
    for finding in examine(_parse(DoctorArgs, "doctor", argv).run):
        print(f"{finding.level:8}{finding.text}", flush=True)
        damaged |= finding.level == "damaged"
    return 3 if damaged else 0


def reproduce(argv: list[str]) -> None:
    from arac.experiments import deceptive
    from arac.rollout.local import cores

    args = _parse(ReproduceArgs, "reproduce", argv)
    processes = len(cores()) if args.processes is None else args.processes
    for name, value in (("--steps", args.steps), ("--seeds", args.seeds), ("--processes", processes)):
        if value < 1:
            raise UserError(f"{name} must be at least 1, got {value}.")
    folder = args.runs or Path("runs") / args.experiment
    out = args.out or folder
    how = shlex.join([_program(), "reproduce", *argv])
    try:
        table = deceptive.run(args.steps, args.seeds, folder, out, processes=processes)
    except KeyboardInterrupt:
        print(f"\nstopped; the checkpoints are written. Go on with: {how}", file=sys.stderr)
        raise
    print(f"\n{table}\npicture, table and numbers: {out}/{args.experiment}.png, .md, .json")


def list_things(argv: list[str]) -> None:
    from arac import envs
    from arac.algorithms import ALGORITHMS
    from arac.config import paper_table, task_name
    from arac.envs.tasks import TASKS

    args = _parse(ListArgs, "list", argv)
    if args.what == "algos":
        for algorithm in ALGORITHMS.values():
            print(f"{algorithm.name:10}{algorithm.title}")
        return
    print(f"{'task':16}{'environment':26}{'obs':>4}{'act':>5}{'steps':>11}  the paper's parameters")
    for name, env_id in TASKS.items():
        spec, row = envs.check(env_id), paper_table().get(task_name(name), {})
        settings = ", ".join(f"{key} {value}" for key, value in row.items() if key != "steps")
        steps = f"{row['steps']:,}" if row else ""
        print(
            f"{name:16}{env_id:26}{spec.observation_size:>4}{spec.action_size:>5}{steps:>11}  "
            f"{settings or 'none: our own task with a trap, see `arac reproduce deceptive`'}"
        )
    print("Any other Gymnasium environment with continuous actions works by its id, with plain defaults.")


COMMANDS: dict[str, Callable[[list[str]], int | None]] = {
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "doctor": examine,
    "reproduce": reproduce,
    "list": list_things,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and gives its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(words)
    except UserError as error:
        print(f"arac: {error}", file=sys.stderr)
        return 2
    except (EnvironmentFailure, StorageFailure) as error:
        print(f"arac: {error}", file=sys.stderr)
        return 3
    except OSError as error:
        print(f"arac: the machine failed: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if words else 2
    if words[0] == "--version":
        from arac import __version__

        print(f"arac {__version__}")
        return 0
    if words[0] not in COMMANDS:
        from arac.envs import suggestion

        raise UserError(f"There is no command {words[0]!r}.{suggestion(words[0], COMMANDS)} `arac --help` lists them.")
    return COMMANDS[words[0]](words[1:]) or 0


def _run(folder: Path, work: Callable[[], Result]) -> Result:
    """Does the work; if it stops before its end, says how to go on."""
    how = f"{_program()} resume {folder}"
    try:
        return work()
    except Interrupted:
        print(f"\nstopped; the checkpoint is written. Go on with: {how}", file=sys.stderr)
        raise
    except KeyboardInterrupt:
        print(f"\nstopped at once; the last checkpoint stands. Go on with: {how}", file=sys.stderr)
        raise
    except NotFinite:
        raise
    except EnvironmentFailure as error:
        raise EnvironmentFailure(f"{error}\nThe last complete generation is saved. Go on with: {how}") from None
    except StorageFailure as error:
        raise StorageFailure(f"{error} When that is mended, go on with: {how}") from None


def _keyword_arguments(words: tuple[str, ...]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"--env-kwargs takes KEY=VALUE, got {word!r}.")
        try:
            arguments |= tomllib.loads(f"{key} = {value}")
        except tomllib.TOMLDecodeError:
            arguments[key] = value
    return arguments


def _say(sentence: str) -> None:
    print(sentence, flush=True)


def _program(name: str = "arac") -> str:
    """How a command of this environment is called from here."""
    beside = Path(sys.argv[0]).with_name(name)
    return name if shutil.which(name) or not beside.exists() else str(beside)


def _say_what_starts(agent: Any, steps: int, folder: Path) -> None:
    env, preset = agent.env, agent.description.preset
    settings = "plain defaults, with your flags"
    if preset:
        row = ", ".join(f"{name} {getattr(agent.config, name)}" for name in agent.config.preset_fields)
        whose = "the paper's" if agent.config.preset_table == "paper" else "its authors'"
        settings = f"{whose} parameters for {preset}, with your flags: {row}"
    print(f"{agent.algorithm.title} on {env.id}: {env.observation_size} observations, {env.action_size} actions")
    print(f"settings: {settings}")
    print(f"{steps:,} environment steps, seed {agent.description.seed}, into {folder}", flush=True)


def _say_what_came_out(agent: Any, folder: Path) -> None:
    from arac import curve, metrics

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
    which = f": agent {last['champion']}" if len(last["fitness"]) > 1 else ""
    print(
        f"\nchampion{which} with a return of {last['champion_return']:,.1f} "
        f"at {last['env_steps']:,} steps (first measured {rows[0]['champion_return']:,.1f} at "
        f"{rows[0]['env_steps']:,}; best {best['champion_return']:,.1f} at {best['env_steps']:,})"
    )
    print(f"run folder: {folder}")
    print(f"learning curve: {curve.draw(folder, title)}")
    print("next:")
    print(f"  {_program()} evaluate {folder} --episodes 100")
    print(f"  {_program()} resume {folder} --steps {2 * last['env_steps']}")
    if find_spec("tensorboard"):
        print(f"  {_program('tensorboard')} --logdir {folder / 'tensorboard'}")


def _peek(argv: list[str], flag: str) -> str | None:
    """The value of a flag that decides which other flags there are."""
    for number, word in enumerate(argv):
        if word == flag and number + 1 < len(argv):
            return argv[number + 1]
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return None


def _parse(kind: type[ArgsT], command: str, argv: list[str], default: Any = None) -> ArgsT:
    """tyro's parsing, with its boxed complaints turned into one sentence."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(kind, prog=f"arac {command}", args=argv, default=default)
    except SystemExit as error:
        if error.code == 0:
            raise
        raise UserError(f"{_one_sentence(complaint.getvalue())} `arac {command} --help` lists all options.") from None


def _one_sentence(box: str) -> str:
    """What a box of tyro's says below its title and above its next rule, and the options it suggests further down."""
    lines = [line.strip("│╭╮╰╯ ") for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()[1:]]
    parts = [list(part) for is_rule, part in groupby(lines, lambda line: bool(re.match("──|---", line))) if not is_rule]
    first, *others = parts
    said = " ".join(first).removeprefix("Error parsing config: ").strip().rstrip(".")
    meant = [line.split()[0] for part in others for line in part if line.startswith("--")]
    return f"{said}. Did you mean {' or '.join(meant[:3])}?" if "Unrecognized" in said and meant else f"{said}."


if __name__ == "__main__":
    sys.exit(main())
