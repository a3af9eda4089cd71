"""The settings for a task: the paper's and the authors' parameters, in the files beside this one."""

import dataclasses
import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any, TypeVar, get_origin, get_type_hints

from arac.algorithms.config import Config
from arac.envs.tasks import VARIANTS
from arac.errors import UserError
from arac.utils.text import suggestion

AnyConfig = TypeVar("AnyConfig", bound=Config)


def configured(
    kind: type[AnyConfig], env_id: str, overrides: dict[str, Any], *, preset: str | bool = "paper"
) -> tuple[AnyConfig, str | None]:
    """Return the config for a task, and the name of the row of parameters it starts from, if there is one.

    Args:
        kind: the algorithm's config.
        env_id: the task.
        overrides: settings that differ from the preset.
        preset: "paper" (or True) takes the paper's parameters for this task; "none" (or False) does not; the others
            also take the algorithm's settings of that name (`Config.named_presets`).

    Raises:
        UserError: if an override is not a field, or its value is not allowed, or the algorithm has no such preset.
    """
    name = ("paper" if preset else "none") if isinstance(preset, bool) else preset
    title = kind.__name__.removesuffix("Config")
    if name not in (offered := ("paper", *kind.named_presets, "none")):
        raise UserError(f"preset must be one of {', '.join(offered)} for {title}, got {preset!r}.", fields=("preset",))
    fields = [field.name for field in dataclasses.fields(kind)]
    for setting in overrides:
        if setting not in fields:
            raise UserError(f"{title} has no setting {setting!r}.{suggestion(setting, fields)}", fields=(setting,))
    row = None if name == "none" else _table(kind.preset_table).get(task_name(env_id))
    taken = (*kind.preset_fields, *(kind.letter_fields if name == "paper-letter" else ()))
    chosen = {field: row[field] for field in taken} if row else {}
    several = {field for field, hint in get_type_hints(kind).items() if get_origin(hint) is tuple}
    given = {
        setting: tuple(value) if setting in several and isinstance(value, list) else value
        for setting, value in overrides.items()
    }
    return kind(**{**kind.named_presets.get(name, {}), **chosen, **given}), task_name(env_id) if chosen else None


def default_steps(env_id: str) -> int:
    """Return the paper's number of environment steps for a task, or a million for another task."""
    return paper_table().get(task_name(env_id), {}).get("steps", 1_000_000)


def paper_table() -> dict[str, dict[str, Any]]:
    """Return the paper's parameters of ARAC by task."""
    return _table("paper")


@cache
def _table(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("arac.algorithms.presets").joinpath(f"{name}.toml").read_text())


def task_name(env_id: str) -> str:
    """Return a task's name without namespace, module and version; a variant has the name of its original."""
    name = re.sub(r"-v\d+$", "", re.split("[/:]", env_id)[-1])
    return VARIANTS.get(name, name)
