"""The settings for a task: the paper's and the authors' parameters, in the files beside this one."""

import dataclasses
import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any, TypeVar, get_origin, get_type_hints

from arac.config import Config
from arac.envs import suggestion
from arac.envs.tasks import VARIANTS
from arac.errors import UserError

AnyConfig = TypeVar("AnyConfig", bound=Config)


def configured(
    kind: type[AnyConfig], env_id: str, overrides: dict[str, Any], *, preset: bool = True
) -> tuple[AnyConfig, str | None]:
    """The config for a task, and the name of the preset it starts from, if there is one.

    Raises:
        UserError: if an override is not a field, or its value is not allowed.
    """
    fields = [field.name for field in dataclasses.fields(kind)]
    for name in overrides:
        if name not in fields:
            raise UserError(
                f"{kind.__name__.removesuffix('Config')} has no setting {name!r}.{suggestion(name, fields)}"
            )
    row = _table(kind.preset_table).get(task_name(env_id)) if preset else None
    chosen = {name: row[name] for name in kind.preset_fields} if row else {}
    several = {name for name, hint in get_type_hints(kind).items() if get_origin(hint) is tuple}
    given = {
        name: tuple(value) if name in several and isinstance(value, list) else value
        for name, value in overrides.items()
    }
    return kind(**{**chosen, **given}), task_name(env_id) if chosen else None


def default_steps(env_id: str) -> int:
    """The paper's number of environment steps for a task; a million for all others."""
    return paper_table().get(task_name(env_id), {}).get("steps", 1_000_000)


def paper_table() -> dict[str, dict[str, Any]]:
    """ARAC's parameters for each task."""
    return _table("paper")


@cache
def _table(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("arac.presets").joinpath(f"{name}.toml").read_text())


def task_name(env_id: str) -> str:
    """`arac/HumanoidRllab-v0` is HumanoidRllab, `Hopper-v5` and `module:Hopper-v5` are Hopper, variants too."""
    name = re.sub(r"-v\d+$", "", re.split("[/:]", env_id)[-1])
    return VARIANTS.get(name, name)
