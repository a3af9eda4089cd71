"""Which values a setting may have."""

from typing import Any, get_args, get_origin

import numpy as np

from arac.errors import UserError

# The smallest value of each number, and of those with a largest one, that.
AT_LEAST = {
    "population_size": 1, "elites": 1, "archive_capacity": 1, "archive_sample": 1, "actor_coefficient": 0,
    "ar_coefficient": 0, "ar_target": 1e-6, "noise_hold": 1, "flows": 0, "eval_episodes": 1, "eval_interval": 0,
    "checkpoint_interval": 1, "warmup_steps": 0,
    "workers": 0, "batch_size": 1, "replay_capacity": 1, "hidden_size": 1, "temperature": 0,
    "discount": 0, "tau": 0, "learning_rate": 0, "kl_clip": 0, "sigma": 1e-6,
    "episode_timeout": 0.1, "target_noise": 0, "target_noise_clip": 0, "policy_delay": 1, "exploration_noise": 0,
    "parents": 1, "gradient_actors": 0, "initial_variance": 0, "damping": 0, "final_damping": 0, "damping_decay": 0,
    "elite_fraction": 0, "tournament_size": 1, "crossover_probability": 0, "mutation_probability": 0,
    "mutation_strength": 0, "mutation_fraction": 0, "super_mutation_strength": 0, "super_mutation_probability": 0,
    "reset_probability": 0, "reset_scale": 0, "crossover_units": 0, "crossover_biases": 0, "last_layer_scale": 0,
    "critic_learning_rate": 0, "trials": 1, "synchronisation_interval": 1,
    "gradient_clip": 1e-6, "learner_rollouts": 1, "migration_interval": 1, "ucb_coefficient": 0, "value_step": 0,
}  # fmt: skip
AT_MOST = {
    "noise_hold": 10_000,
    "discount": 1, "tau": 1, "flows": 1000, "workers": 1000, "population_size": 10_000, "archive_capacity": 1_000_000,
    "archive_sample": 10_000, "episode_timeout": 1e7, "damping_decay": 1, "elite_fraction": 1,
    "crossover_probability": 1, "mutation_probability": 1, "mutation_fraction": 1, "super_mutation_probability": 1,
    "reset_probability": 1, "crossover_units": 100, "crossover_biases": 100, "value_step": 1,
    "tournament_size": 10_000, "learner_rollouts": 10_000, "trials": 10_000,
}  # fmt: skip


def as_whole(value: Any) -> Any:
    """Return 1e4 as 10000, and everything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_steps(name: str, value: Any) -> int:
    """Return a number of steps as a whole number.

    Raises:
        UserError: if it is none, or below 1.
    """
    steps = as_whole(value)
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise UserError(f"{name} must be a whole number of at least 1, got {value!r}.")
    return int(steps)


def check_type(name: str, value: Any, hint: Any) -> None:
    if get_origin(hint) is tuple:
        if not isinstance(value, tuple) or any(
            isinstance(one, bool) or not isinstance(one, int | float) for one in value
        ):
            raise UserError(f"{name} must be a list of numbers, got {value!r}.")
        return
    allowed = get_args(hint) or (hint,)
    kinds = tuple(kind for kind in allowed if isinstance(kind, type))
    words = [word for kind in allowed if not isinstance(kind, type) for word in (get_args(kind) or (kind,))]
    if value in words and isinstance(value, str):
        return
    if isinstance(value, bool) == (bool in kinds) and isinstance(value, kinds + ((int,) if float in kinds else ())):
        return
    described = [{int: "a whole number", float: "a number", bool: "true or false"}[kind] for kind in kinds]
    raise UserError(f"{name} must be {' or '.join([*described, *map(repr, words)])}, got {value!r}.")


def check_range(name: str, value: Any) -> None:
    if isinstance(value, str | bool) or name not in AT_LEAST:
        return
    low, high = AT_LEAST[name], AT_MOST.get(name, float("inf"))
    if not low <= value <= high or value == float("inf"):
        bounds = f"at least {low}" if high == float("inf") else f"from {low} to {high}"
        raise UserError(f"{name} must be {bounds}, got {value}.")
