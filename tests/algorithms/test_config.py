import ast
import dataclasses
import inspect
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest

from arac.algorithms.arac import ARACConfig
from arac.algorithms.config import Config
from arac.algorithms.presets import configured, default_steps, paper_table, task_name
from arac.algorithms.registry import ALGORITHMS
from arac.algorithms.sac import SACConfig, SACNFConfig
from arac.errors import UserError
from arac.utils.validation import Bounds

COLUMNS = ("flows", "sigma", "archive_capacity", "actor_coefficient", "temperature", "strategy", "steps")
PAPER = {
    "Ant-v5": (3, 0.2, 10, 1, 0.2, "proactive", 1_000_000),
    "HalfCheetah-v5": (4, 0.4, 20, 2, 0.2, "proactive", 1_000_000),
    "Hopper-v5": (4, 0.8, 20, 1, 0.05, "proactive", 1_000_000),
    "Walker2d-v5": (4, 0.6, 10, 3, 0.05, "proactive", 1_000_000),
    "Humanoid-v5": (3, 0.6, 10, 1, 0.05, "reactive", 1_000_000),
    "HumanoidStandup-v5": (3, "learned", 20, 1, 0.2, "reactive", 1_000_000),
    "arac/HumanoidRllab-v0": (3, "learned", 10, 1, 0.05, "proactive", 2_000_000),
    "arac/SparseHumanoid-v0": (2, 0.6, 20, 1, 0.2, "proactive", 600_000),
}

KINDS = [algorithm.config for algorithm in ALGORITHMS.values()]
algorithms = pytest.mark.parametrize("kind", KINDS)


def refusal(kind=ARACConfig, env="Unknown-v0", **overrides):
    with pytest.raises(UserError) as caught:
        configured(kind, env, overrides)
    return str(caught.value)


@pytest.mark.parametrize("env", PAPER)
def test_arac_starts_from_the_papers_row_and_its_temperature_is_for_the_papers_letter(env):
    row = dict(zip(COLUMNS, PAPER[env], strict=True))
    assert default_steps(env) == row.pop("steps")
    letter = configured(ARACConfig, env, {}, preset="paper-letter")
    assert letter == (ARACConfig(**{**ARACConfig.named_presets["paper-letter"], **row}), task_name(env))
    assert letter[0].temperature == row.pop("temperature")
    assert configured(ARACConfig, env, {}) == (ARACConfig(**row), task_name(env))
    assert ARACConfig().temperature == "auto"


def test_a_task_without_a_row_has_the_letter_without_it():
    letter, row = configured(ARACConfig, "Pendulum-v1", {"flows": 1}, preset="paper-letter")
    assert (letter.temperature, letter.kl_clip, letter.flows, row) == (0.2, "none", 1, None)


def test_the_table_has_no_other_rows_and_columns():
    assert set(paper_table()) == {task_name(env) for env in PAPER}
    assert all(set(row) == set(COLUMNS) for row in paper_table().values())


@pytest.mark.parametrize("env", PAPER)
def test_sac_nf_takes_flows_sigma_and_temperature_of_the_row_and_nothing_else(env):
    settings, preset = configured(SACNFConfig, env, {})
    flows, sigma, _, _, temperature, *_ = PAPER[env]
    assert settings == SACNFConfig(flows=flows, sigma=sigma, temperature=temperature)
    assert preset == task_name(env)


@pytest.mark.parametrize("env", PAPER)
def test_sac_takes_nothing_of_the_row(env):
    assert configured(SACConfig, env, {}) == (SACConfig(), None)


@algorithms
def test_a_task_that_the_paper_does_not_have_gets_the_defaults(kind):
    assert configured(kind, "Pendulum-v1", {}) == (kind(), None)
    assert default_steps("Pendulum-v1") == 1_000_000


@algorithms
def test_without_preset_a_task_of_the_paper_gets_the_defaults(kind):
    assert configured(kind, "Hopper-v5", {}, preset=False) == (kind(), None)


def test_overrides_win_over_the_preset_and_leave_the_rest_of_it():
    settings, preset = configured(ARACConfig, "Hopper-v5", {"flows": 7, "strategy": "reactive", "batch_size": 32})
    assert (settings.flows, settings.strategy, settings.batch_size) == (7, "reactive", 32)
    assert (settings.sigma, settings.archive_capacity) == (0.8, 20)
    assert preset == "Hopper"


def test_sac_is_version_two_and_arac_the_papers_critic():
    assert (SACConfig().critic, SACConfig().temperature) == ("twin", "auto")
    assert (ARACConfig().critic, SACNFConfig().critic) == ("value", "value")


@pytest.mark.parametrize(
    ("kind", "unknown", "meant"),
    [(ARACConfig, "flow", "flows"), (ARACConfig, "elite", "elites"), (SACConfig, "batchsize", "batch_size")],
)
def test_an_unknown_setting_is_refused_with_a_suggestion(kind, unknown, meant):
    message = refusal(kind, **{unknown: 3})
    assert repr(unknown) in message
    assert f"Did you mean {meant}?" in message
    assert "\n" not in message


def test_an_unknown_setting_like_no_other_is_refused_without_one():
    message = refusal(zzzzzz=3)
    assert "'zzzzzz'" in message
    assert "Did you mean" not in message


def test_a_setting_of_another_algorithm_is_refused():
    assert "'archive_capacity'" in refusal(SACConfig, archive_capacity=5)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("population_size", 0),
        ("elites", 0),
        ("archive_capacity", -1),
        ("archive_sample", 0),
        ("actor_coefficient", -0.5),
        ("ar_coefficient", -1),
        ("ar_target", 0),
        ("noise_hold", 0),
        ("flows", -1),
        ("eval_episodes", 0),
        ("eval_interval", -1),
        ("checkpoint_interval", 0),
        ("warmup_steps", -1),
        ("workers", -2),
        ("batch_size", 0),
        ("replay_capacity", -3),
        ("hidden_size", 0),
        ("temperature", -0.1),
        ("discount", 1.5),
        ("discount", -0.1),
        ("discount", float("nan")),
        ("tau", 1.01),
        ("learning_rate", -1e-4),
        ("learning_rate", float("inf")),
        ("kl_clip", -1.0),
        ("sigma", 0),
        ("flows", "3"),
        ("flows", True),
        ("flows", 3.0),
        ("flows", None),
        ("batch_size", "many"),
        ("batch_size", 256.0),
        ("workers", "all"),
        ("workers", 1.5),
        ("discount", "0.9"),
        ("discount", False),
        ("temperature", "learned"),
        ("store_evaluation", 1),
        ("store_evaluation", "yes"),
        ("sigma", "lerned"),
        ("sigma", [0.4]),
        ("kl_clip", "off"),
        ("kl_clip", None),
        ("strategy", "active"),
        ("strategy", 1),
        ("critic", "triple"),
        ("ar_base", None),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_in_one_line_with_field_and_value(field, value):
    message = refusal(**{field: value})
    assert message.startswith(f"{field} must be ")
    assert message.endswith(f", got {value!r}.")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("kl_clip", ["none", 1.0, 2, 0]),
        ("sigma", ["learned", 0.4, 1]),
        ("workers", ["auto", 0, 3]),
        ("discount", [0, 1, 0.99]),
        ("flows", [0, 5]),
        ("store_evaluation", [True, False]),
        ("ar_base", ["whole", "shared", "own", "gaussian"]),
        ("ar_divergence", ["bounded", "kl"]),
        ("ar_from", ["archive", "members", "both"]),
        ("ar_felt_by", ["non_elites", "all"]),
        ("critic", ["value", "twin"]),
        ("eval_interval", [0]),
        ("ar_coefficient", [0, 0.5, "auto"]),
        ("noise_hold", [1, 64]),
        ("temperature", ["auto", 0, 0.5]),
    ],
)
def test_what_is_allowed_is_kept_as_given(field, values):
    for value in values:
        assert getattr(configured(ARACConfig, "Unknown-v0", {field: value})[0], field) == value


def test_sac_takes_a_fixed_temperature_or_auto():
    assert configured(SACConfig, "Unknown-v0", {"temperature": 0.2})[0].temperature == 0.2
    assert "'learned'" in refusal(SACConfig, temperature="learned")


def test_more_elites_than_agents_are_refused():
    message = refusal(elites=6)
    assert "elites (6)" in message
    assert "population_size (5)" in message
    assert "\n" not in message
    assert configured(ARACConfig, "Unknown-v0", {"elites": 5})[0].elites == 5


def test_a_batch_larger_than_replay_is_refused():
    message = refusal(batch_size=101, replay_capacity=100)
    assert "batch_size (101)" in message
    assert "replay_capacity (100)" in message
    assert "\n" not in message


def test_a_config_cannot_be_changed_once_it_is_checked():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ARACConfig().discount = 2.0


def fields_with_help(kind):
    """Return the fields that have a docstring in the class or in one that it inherits from."""
    found = set()
    for ancestor in inspect.getmro(kind)[:-1]:
        [tree] = ast.parse(inspect.getsource(ancestor)).body
        for statement, following in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
                text = ast.literal_eval(following.value)
                found |= {statement.target.id} if isinstance(text, str) and text.strip().endswith(".") else set()
    return found


@pytest.mark.parametrize("kind", [Config, *KINDS])
def test_every_field_has_a_line_of_help(kind):
    assert {field.name for field in dataclasses.fields(kind)} <= fields_with_help(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_has_bounds(kind):
    for name, hint in get_type_hints(kind, include_extras=True).items():
        bare, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if {int, float} & {bare, *get_args(bare)} and get_origin(bare) is not tuple:
            assert any(isinstance(mark, Bounds) for mark in marks), name


@pytest.mark.parametrize(
    ("env", "task"),
    [
        ("Hopper-v5", "Hopper"),
        ("Hopper-v12", "Hopper"),
        ("Hopper", "Hopper"),
        ("arac/HumanoidRllab-v0", "HumanoidRllab"),
        ("module:space/Ant-v5", "Ant"),
        ("Swim-v2-fast-v1", "Swim-v2-fast"),
    ],
)
def test_a_task_is_an_id_without_namespace_and_version(env, task):
    assert task_name(env) == task
