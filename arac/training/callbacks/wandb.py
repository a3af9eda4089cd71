"""The callback for Weights & Biases: the numbers of every evaluation, with the settings of the run."""

import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arac.errors import EnvironmentFailure, UserError
from arac.storage.metrics import scalars
from arac.training.callbacks.base import Callback, Outcome, Row
from arac.utils.atomic_io import write_durably

if TYPE_CHECKING:
    from arac.agents.agent import Agent


class WandB(Callback):
    """Logs every number of an evaluation to W&B, under the tags that TensorBoard shows.

    W&B's files and the id of its run are in `wandb` in the run folder, so a resumed run continues the same W&B run.
    """

    def __init__(self, project: str, **init: Any) -> None:
        """Create the callback; the W&B run begins when training begins.

        Args:
            project: name of the W&B project.
            **init: other arguments of `wandb.init`, such as `entity`, `group`, `tags` or `mode`.

        Raises:
            UserError: if wandb is not installed.
        """
        if find_spec("wandb") is None:
            raise UserError("W&B needs the package wandb: pip install 'arac-rl[wandb]'.")
        self._init = {"project": project, **init}
        self._run: Any = None

    def on_start(self, agent: "Agent", run_dir: Path | None) -> None:
        import wandb  # a slow import

        chosen = {
            "config": agent.description.to_table(),
            "settings": wandb.Settings(console="off"),  # otherwise every refresh of the live panel is recorded
            **({} if run_dir is None else _place(run_dir)),
            **self._init,
        }
        with _failing_in_words():
            self._run = wandb.init(**chosen)

    def on_evaluation(self, agent: "Agent", evaluation: Row) -> None:
        with _failing_in_words():
            self._run.log(scalars(evaluation), step=evaluation["env_steps"])

    def on_end(self, agent: "Agent", outcome: Outcome) -> None:
        try:
            with _failing_in_words():
                self._run.finish(exit_code=0 if outcome in ("done", "stopped") else 1)
        except (EnvironmentFailure, UserError) as failure:  # the run's own outcome does not depend on W&B
            warnings.warn(str(failure), stacklevel=2)


def _place(run_dir: Path) -> dict[str, Any]:
    """Return where W&B writes, and the W&B run's name and id: a resumed run keeps its first id."""
    known = run_dir / "wandb" / "run-id"
    if not known.exists():
        known.parent.mkdir(exist_ok=True)
        write_durably(known, secrets.token_hex(4).encode())
    return {"dir": run_dir, "name": run_dir.name, "id": known.read_text(), "resume": "allow"}


@contextmanager
def _failing_in_words() -> Iterator[None]:
    import wandb

    try:
        yield
    except wandb.errors.UsageError as error:
        raise UserError(f"W&B cannot be used like this: {error}") from error
    except wandb.Error as error:
        raise EnvironmentFailure(f"W&B failed: {error}") from error
