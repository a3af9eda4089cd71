"""The repulsion experiment: its measures against known cases, and the whole on runs of seconds."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arac.agents.classes import AGENTS
from arac.cli import main
from arac.errors import UserError
from arac.experiments import repulsion
from arac.experiments.catalogue import EXPERIMENTS
from arac.experiments.planning import Size

RNG = np.random.default_rng(0)


def test_agents_that_act_alike_have_strangers_for_neighbours():
    alike = RNG.normal(size=(5, 500, 3))
    assert repulsion.own_neighbours(alike) == pytest.approx(1 / 5, abs=0.03)


def test_agents_far_apart_have_neighbours_of_their_own():
    centres = 100 * np.arange(5.0)[:, None, None]
    assert repulsion.own_neighbours(centres + RNG.normal(size=(5, 500, 3))) == 1
    halves = np.array([0.0, 0.0, 100.0, 100.0])[:, None, None] + RNG.normal(size=(4, 500, 2))
    assert repulsion.own_neighbours(halves) == pytest.approx(1 / 2, abs=0.05)


def test_equal_actions_are_not_their_own_neighbours():
    """A policy at its bounds always gives the same action."""
    saturated = np.stack([np.ones((50, 2)), -np.ones((50, 2))])
    assert repulsion.own_neighbours(saturated) == 1
    assert repulsion.own_neighbours(np.ones((2, 1, 2))) == 0


def test_one_picture_for_all_agents_and_the_same_again():
    actions = RNG.normal(size=(2, 30, 3)).astype(np.float32)
    points = repulsion.embedded(actions)
    assert points.shape == (2, 30, 2)
    np.testing.assert_array_equal(points, repulsion.embedded(actions))


SETTINGS = {"hidden_size": 16, "batch_size": 16, "warmup_steps": 100, "eval_interval": 200, "eval_episodes": 1}
SIZE = Size(1, 400, ("InvertedPendulum-v5",), settings={**SETTINGS, "replay_capacity": 10_000, "workers": 0})


def train(jobs, parent):
    for job in jobs:
        AGENTS[job.algorithm](job.env, seed=job.seed, **job.settings).learn(job.steps, run_dir=parent / job.name)
    return parent


def test_the_runs_differ_in_attraction_and_repulsion_alone():
    jobs = repulsion.plan(SIZE)
    assert [job.settings.keys() - SIZE.settings.keys() for job in jobs] == [
        {"ar_coefficient"}, set(), {"preset"}
    ]  # fmt: skip
    assert jobs[0].settings["ar_coefficient"] == 0
    assert len({job.name for job in jobs}) == len(jobs)
    assert all(job.settings.items() >= SIZE.settings.items() for job in jobs)


def test_a_course_leaves_out_the_warm_up_and_knows_when_it_has_settled(tmp_path):
    rows = [
        {"env_steps": 100 * n, "diversity": {"mean_kl": 10.0 / n}, "entropy": n / 2, "fitness": [0, n], "champion": 1}
        for n in range(1, 11)
    ]
    (tmp_path / "evaluations.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    course = repulsion.course_of(tmp_path, warmup=200)
    assert course.steps.tolist() == list(range(300, 1001, 100))
    assert course.settled.tolist() == [False, *[True] * 7]
    assert course.kl[course.settled].min() == pytest.approx(1.0)


@pytest.mark.slow
def test_table_numbers_and_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(repulsion, "ACTIONS", 20)  # t-SNE takes long
    monkeypatch.setattr(repulsion, "STATES", 4)
    jobs = repulsion.plan(SIZE)
    runs = train(jobs, tmp_path / "runs")
    for job in jobs:
        repulsion.measure(runs / job.name)
    table = repulsion.show(SIZE, runs, tmp_path / "out")
    assert (tmp_path / "out" / "repulsion.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((tmp_path / "out" / "repulsion.json").read_text())["runs"]
    assert [run["variant"] for run in numbers] == ["lambda 0", "default", "paper's letter"]
    for run in numbers:
        kl = np.array(run["kl"])
        assert kl.shape == (5, 5)
        assert run["mean_kl"] == pytest.approx(kl[~np.eye(5, dtype=bool)].mean())
        assert f"| {run['env']} | {run['variant']} | {run['mean_kl']:.2f} ({run['mean_kl']:.2f}) |" in table
        assert run["from_archived"] > 0, "with lambda 0, too"
    assert (tmp_path / "out" / "repulsion-over-time.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_is_measured_once_and_gives_the_same_numbers_again(tmp_path, monkeypatch):
    monkeypatch.setattr(repulsion, "STATES", 4)
    job = repulsion.plan(replace(SIZE, seeds=2))[3]  # of another seed than 0 no actions are drawn
    assert job.name == "InvertedPendulum-v5-default-seed1"
    folder = train([job], tmp_path) / job.name
    repulsion.measure(folder)
    first = (folder / "outcome.json").read_bytes()
    one = repulsion.outcome("InvertedPendulum-v5", "default", 1, folder)
    assert one.own_neighbours.shape == (4,)
    assert one.kl.shape == (5, 5)
    assert one.action_distance > 0
    assert len(one.points) == 0
    written = (folder / "outcome.json").stat().st_mtime_ns
    repulsion.measure(folder)
    assert (folder / "outcome.json").stat().st_mtime_ns == written
    (folder / "outcome.json").unlink()
    repulsion.measure(folder)
    assert (folder / "outcome.json").read_bytes() == first
    table = repulsion.show(replace(SIZE, seeds=2), tmp_path, tmp_path / "out")
    assert "Not complete: 1 of 5 runs are finished." in table
    assert "| InvertedPendulum-v5 | default |" in table
    assert "lambda 0 |" not in table.splitlines()[2]


def test_the_papers_letter_has_one_seed_and_the_others_all():
    names = [job.name for job in repulsion.plan(replace(SIZE, seeds=3))]
    assert [sum(variant in name for name in names) for variant in ("lambda0", "default", "papersletter")] == [3, 3, 1]
    assert "papersletter" in names[-1]


def test_long_runs_are_compared_with_two_of_each_at_the_papers_temperature():
    jobs = repulsion.plan(Size(3, 100_000, ("Hopper-v5", "Ant-v5", "InvertedPendulum-v5")))
    assert len(jobs) == 3 * (3 + 3 + 2 + 2 + 1)
    fixed = {(job.env, job.settings["temperature"]) for job in jobs if "fixedtemperature" in job.name}
    assert fixed == {("Hopper-v5", 0.05), ("Ant-v5", 0.2), ("InvertedPendulum-v5", 0.2)}
    assert not any("temperature" in job.settings for job in jobs if "fixedtemperature" not in job.name)


def test_the_distance_of_actions_is_the_mean_over_pairs_and_states():
    positions = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 8.0]])

    class Still:
        def __init__(self, action):
            self.action = action

        def mode(self, states):
            return jnp.broadcast_to(self.action, (len(states), 2))

    jax.tree_util.register_pytree_node(Still, lambda one: ((one.action,), None), lambda _, parts: Still(*parts))
    agent = SimpleNamespace(state=SimpleNamespace(population=Still(jnp.asarray(positions))))
    assert repulsion.action_distance(agent, np.zeros((7, 3))) == pytest.approx((5 + 8 + 5) / 3)


def test_entropies_are_those_of_normal_distributions():
    scales = np.array([0.5, 1.0, 2.0])

    class Normal:
        def __init__(self, scale):
            self.scale = scale

        def sample(self, states, noise):
            log_prob = (-(noise**2) / 2 - jnp.log(self.scale) - math.log(2 * math.pi) / 2).sum(-1)
            return self.scale * noise, log_prob

    jax.tree_util.register_pytree_node(Normal, lambda one: ((one.scale,), None), lambda _, parts: Normal(*parts))
    noise = RNG.normal(size=(20_000, 2))
    found = repulsion.entropies(Normal(jnp.asarray(scales)), np.zeros((20_000, 3)), noise)
    np.testing.assert_allclose(found, 2 * (np.log(scales) + 0.5 * math.log(2 * math.pi * math.e)), atol=0.05)


def test_repelled_members_are_compared_with_the_elites():
    assert repulsion.repelled_entropy([1.0, 2.0, 4.0, 8.0], [2, 0]) == pytest.approx(5.0 - 2.5)
    assert repulsion.repelled_entropy([1.0, 2.0], [0, 1]) is None


def test_the_papers_scale_is_humanoid():
    full = EXPERIMENTS["repulsion"].full
    jobs = repulsion.plan(full)
    assert {job.env for job in jobs} == {"Humanoid-v5"}
    assert all(job.steps == 1_000_000 for job in jobs)
    assert set(jobs[0].settings) == {"ar_coefficient"}


def test_runs_too_short_to_learn_are_refused():
    with pytest.raises(UserError, match="must be above 100, the warm-up"):
        repulsion.plan(Size(1, 100, ("InvertedPendulum-v5",), settings=SETTINGS))


def test_without_scikit_learn_nothing_is_begun(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(repulsion, "find_spec", lambda _: None)
    assert main(["reproduce", "repulsion"]) == 2
    assert capsys.readouterr().err.endswith("install it with `pip install 'arac-rl[experiments]'`.\n")
    assert not list(tmp_path.iterdir())
