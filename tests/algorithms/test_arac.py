"""Algorithm 1: the number and the inputs of each member's updates, and the loops over a run."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arac import envs
from arac.algorithms import arac, sac
from arac.algorithms.arac import ARACConfig
from arac.algorithms.base import Context, UpdateBudget, init_replay
from arac.algorithms.sac import SACConfig
from arac.learning.forces import COEFFICIENT_STEP, ForceMetrics
from arac.learning.losses import Divergences
from arac.learning.sac_updates import ActorMetrics
from arac.models.stacked import take
from arac.replay.episode import Episode
from arac.storage.metrics import evaluation_row
from arac.utils.progress import Progress

ENV = envs.check("InvertedPendulum-v5")
SMALL = {"hidden_size": 16, "batch_size": 16, "replay_capacity": 10_000, "warmup_steps": 0, "eval_episodes": 1}


class ScriptedRollouts:
    """Rollouts with scripted lengths and fitness in place of a simulator's."""

    def __init__(self, lengths, fitness=None):
        self.lengths = iter(lengths)
        self.fitness = fitness
        self.acted_randomly = []
        self.fresh = [-1.0, -2.0]
        self.confirmed = []

    def explore(self, population, generation, acting, *, noise_hold):
        self.acted_randomly.append(acting == "random")
        size = len(jax.tree.leaves(population)[0])
        return [episode(next(self.lengths)) for _ in range(size)]

    def evaluate(self, population, generation, episodes, *, record=False, stream="evaluate"):
        if stream == "confirm":
            self.confirmed.append(np.asarray(population.base.network.biases[0]))
            return [[replace(episode(3), total=float(total)) for total in self.fresh]]
        size = len(jax.tree.leaves(population)[0])
        fitness = np.arange(size) if self.fitness is None else self.fitness[generation]
        return [[replace(episode(3), total=float(value))] * episodes for value in fitness]


def episode(steps, seed=0):
    rng = np.random.default_rng([steps, seed])
    return Episode(
        observations=rng.standard_normal((steps + 1, ENV.observation_size), np.float32),
        actions=rng.uniform(-1, 1, (steps, ENV.action_size)).astype(np.float32),
        rewards=rng.standard_normal(steps, np.float32),
        terminated=True,
        total=0.0,
        steps=steps,
    )


def context_of(config, rollouts, total_steps=10**9):
    return Context(config, ENV, 0, total_steps, init_replay(config, ENV), rollouts, Progress())


def run(config, lengths, fitness=None):
    """Run all generations that the lengths suffice for, and return the last state and the evaluations."""
    rollouts = ScriptedRollouts(lengths, fitness)
    context = context_of(config, rollouts)
    state, rows = arac.init(config, ENV, seed=0), []
    for _ in range(len(lengths) // config.population_size):
        state, row = arac.generation(context, state)
        rows.append(row)
    return state, rows, rollouts


@pytest.fixture
def counted(monkeypatch):
    """Replace both loops by ones that count updates, per elite or by the source of the actors' forces."""
    counts = {"critic": [], "actors": {}}

    def critic_updates(update_config, learner, policy, temperature, view, key, start, stop):
        counts["critic"].append(stop - start)
        return learner, jnp.zeros(())

    def actor_updates(update_config, learners, critic, temperature, forces, view, keys, start, stop):
        source = "nothing" if forces is None else "members" if forces.archived is None else "archive"
        counts["actors"][source] = counts["actors"].get(source, 0) + stop - start
        zeros = jnp.zeros(len(keys))
        nothing = Divergences(jnp.zeros((len(keys), 1)), jnp.zeros((len(keys), 1)))
        archived = None if source != "archive" else Divergences(forces.archived.weights, forces.archived.weights)
        measured = None if forces is None else ForceMetrics(nothing, archived)
        return learners, temperature, forces, (ActorMetrics(zeros, zeros), measured)

    monkeypatch.setattr(arac, "critic_updates", critic_updates)
    monkeypatch.setattr(arac, "actor_updates", actor_updates)
    return counts


@pytest.mark.parametrize(("elites", "coefficient"), [(1, 1.0), (2, 1.0), (3, 2.0), (5, 0.5), (2, 3.0)])
def test_every_step_earns_one_critic_minibatch_and_p_over_m_per_actor(counted, elites, coefficient):
    config = ARACConfig(**SMALL, elites=elites, actor_coefficient=coefficient, eval_interval=10**9, ar_coefficient=0)
    lengths = np.random.default_rng(elites).integers(1, 40, 5 * 13).tolist()
    run(config, lengths)
    assert sum(counted["critic"]) == sum(lengths)
    assert counted["actors"] == {"nothing": int(sum(lengths) * coefficient / 5)}


def test_the_elites_share_the_critics_minibatches_equally_and_no_fraction_is_lost():
    steps = np.random.default_rng(0).integers(1, 50, 200)
    done = np.concatenate([[0], np.cumsum(steps)])
    for elites in (1, 2, 3, 4):
        budgets = [UpdateBudget(int(before), int(after)) for before, after in pairwise(done)]
        shares = np.array([[budget.share(slot, elites) for slot in range(elites)] for budget in budgets])
        assert (shares.sum(1) == steps).all()
        assert np.ptp(shares.cumsum(0), axis=1).max() <= 1
        assert (shares >= 0).all()


@pytest.mark.parametrize(("factor", "divisor"), [(1.0, 5), (2.0, 5), (0.3, 7)])
def test_fractions_of_updates_are_carried_over(factor, divisor):
    done = np.concatenate([[0], np.cumsum(np.random.default_rng(0).integers(1, 50, 200))])
    scaled = [UpdateBudget(int(before), int(after)).scaled(factor, divisor) for before, after in pairwise(done)]
    assert sum(scaled) == int(done[-1] * factor / divisor)


def test_warm_up_steps_act_randomly_and_earn_no_updates(counted):
    config = ARACConfig(**{**SMALL, "warmup_steps": 100}, eval_interval=10**9)
    _, _, rollouts = run(config, [10] * 5 * 5)
    assert rollouts.acted_randomly == [True, True, False, False, False]
    assert sum(counted["critic"]) == 5 * 5 * 10 - 100


@pytest.mark.parametrize(
    ("settings", "first", "then"),
    [
        ({"ar_from": "archive"}, "nothing", "archive"),
        ({"ar_from": "both"}, "members", "archive"),
        ({"ar_from": "members"}, "members", "members"),
        ({"ar_coefficient": 0}, "nothing", "nothing"),
        ({"ar_from": "both", "population_size": 1, "elites": 1}, "nothing", "archive"),
    ],
)
def test_archived_policies_act_once_there_are_any_and_members_from_the_start(counted, settings, first, then):
    config = ARACConfig(**{**SMALL, **settings}, eval_interval=0)
    members = config.population_size
    run(config, [10] * members * 3)
    expected = {first: 30} if first == then else {first: 10, then: 20}
    assert {name: count for name, count in counted["actors"].items() if count} == expected


def test_nothing_is_archived_before_the_population_has_learned():
    """The generation that began within the warm-up is evaluated, although its episodes had random actions."""
    config = ARACConfig(**{**SMALL, "warmup_steps": 60}, eval_interval=0)
    _, rows, rollouts = run(config, [10] * 5 * 4)
    assert rollouts.acted_randomly == [True, True, False, False]
    assert [row.archive_size for row in rows] == [0, 0, 5, 10]


@pytest.mark.parametrize(
    ("source", "felt_by", "generations"),
    [("archive", "non_elites", 2), ("members", "non_elites", 1), ("members", "all", 1)],
)
def test_lambda_changes_those_who_feel_and_nobody_else_in_the_first_generation_that_feels_it(
    source, felt_by, generations
):
    lengths, fitness = [20] * 10, [np.arange(5.0), np.arange(5.0)]
    config = ARACConfig(**SMALL, eval_interval=0, actor_coefficient=5.0, ar_from=source, ar_felt_by=felt_by)
    elites = {3, 4} if generations == 2 else set(arac.init(config, ENV, seed=0).elites.tolist())
    feel = elites if source == "archive" else set(range(5)) - (elites if felt_by == "non_elites" else set())
    with_ar, _, _ = run(config, lengths[: 5 * generations], fitness)
    without, _, _ = run(replace(config, ar_coefficient=0), lengths[: 5 * generations], fitness)
    for member in range(5):
        pairs = zip(
            jax.tree.leaves(take(with_ar.population, member).flows),
            jax.tree.leaves(take(without.population, member).flows),
            strict=True,
        )
        largest = max(float(jnp.abs(a - b).max()) for a, b in pairs)
        assert largest > 1e-5 if member in feel else largest < 1e-7, (member, largest)


def test_repulsion_is_reported_by_its_source():
    config = ARACConfig(**SMALL, eval_interval=0, actor_coefficient=5.0, strategy="reactive")
    _, rows, _ = run(config, [20] * 15, [np.arange(5.0)] * 3)
    first, second, third = (row.repulsion for row in rows)
    assert first["shares"] == {"members": 1.0}
    assert set(second["shares"]) == {"members", "100"}
    assert set(third["shares"]) == {"members", "100", "200"}
    for report in (first, second, third):
        assert sum(report["shares"].values()) == pytest.approx(1)
        assert 0 < report["acting"] <= 1
    assert run(replace(config, ar_coefficient=0), [20] * 5)[1][0].repulsion is None


def test_lambda_begins_at_one_or_where_it_is_set_and_follows_the_target():
    for coefficient, first in (("auto", 1.0), (3.0, 3.0)):
        config = ARACConfig(**SMALL, ar_coefficient=coefficient)
        np.testing.assert_allclose(np.exp(arac.init(config, ENV, seed=0).log_coefficient), first, rtol=1e-6)
    state, rows, _ = run(ARACConfig(**SMALL, eval_interval=0, ar_target=1e6, ar_from="members"), [100] * 5)
    free = np.isin(np.arange(5), arac.init(config, ENV, seed=0).elites)
    np.testing.assert_allclose(state.log_coefficient[~free], COEFFICIENT_STEP * 100, rtol=1e-3)
    assert (state.log_coefficient[free] == 0).all()
    assert rows[-1].losses["ar_coefficient"] == pytest.approx(np.exp(state.log_coefficient).mean(), rel=1e-5)


def test_fitness_ranks_the_population_and_fills_the_archive():
    fitness = [np.array([1.0, 9, 3, 7, 5]), np.array([8.0, 2, 6, 4, 0])]
    state, rows, _ = run(ARACConfig(**SMALL, eval_interval=0, archive_capacity=8), [5] * 10, fitness)
    assert rows[0].elites.tolist() == [1, 3]
    assert state.elites.tolist() == [0, 2]
    assert state.champion == rows[1].champion == 0
    assert state.archive.size == 8
    assert set(state.archive.fitness.tolist()) <= set(np.concatenate(fitness).tolist())


def test_the_champions_return_is_of_episodes_that_did_not_choose_it():
    fitness = [np.array([1.0, 9, 3, 7, 5])]
    state, [row], rollouts = run(ARACConfig(**SMALL, eval_interval=0), [5] * 5, fitness)
    assert row.fitness.max() == 9
    [played] = rollouts.confirmed
    np.testing.assert_array_equal(played, np.asarray(take(state.population, np.array([1])).base.network.biases[0]))
    recorded = evaluation_row(row)
    assert recorded["champion_returns"] == [-1.0, -2.0]
    assert (recorded["champion_return"], recorded["champion_return_std"]) == (-1.5, 0.5)
    assert recorded["fitness"] == fitness[0].tolist()


def test_an_agent_alone_was_not_chosen_and_plays_no_more_episodes():
    _, [row], rollouts = run(ARACConfig(**SMALL, eval_interval=0, population_size=1, elites=1), [5], [np.array([4.0])])
    assert not rollouts.confirmed
    assert evaluation_row(row)["champion_return"] == 4.0
    assert "champion_returns" not in evaluation_row(row)


def test_an_archive_smaller_than_n_acts_as_a_whole_with_the_mean_over_what_is_there():
    config = ARACConfig(**SMALL, eval_interval=0, archive_sample=12, strategy="reactive")
    state, _, _ = run(config, [5] * 5)
    slots, targets = arac.sample_archive(context_of(config, None), state)
    assert slots.shape == (2, 12)
    weights = np.sort(np.asarray(targets.weights), axis=1)
    assert weights.shape == (2, 12)
    np.testing.assert_allclose(weights[:, -5:], np.tile([0, 0.05, 0.1, 0.15, 0.2], (2, 1)), atol=1e-6)
    assert (weights[:, :-5] == 0).all()


def test_the_critic_learns_with_the_elites_policies(monkeypatch):
    seen = []
    original = arac.critic_updates

    def spy(update_config, learner, policy, *rest):
        seen.append(np.asarray(policy.base.network.biases[0]))
        return original(update_config, learner, policy, *rest)

    monkeypatch.setattr(arac, "critic_updates", spy)
    config = ARACConfig(**SMALL, eval_interval=0)
    first = arac.init(config, ENV, seed=0)
    run(config, [10] * 5)
    expected = [np.asarray(take(first.population, elite).base.network.biases[0]) for elite in first.elites]
    assert all((a == b).all() for a, b in zip(seen, expected, strict=True))


@pytest.mark.parametrize(
    "settings",
    [
        {"population_size": 1, "elites": 1, "critic": "twin"},
        {"population_size": 3, "elites": 3, **ARACConfig.named_presets["paper-letter"]},
        {"population_size": 3, "elites": 3, "ar_from": "members"},  # no member is left to be repelled
        {"archive_capacity": 2, "store_evaluation": True, "strategy": "reactive"},
        {"flows": 0, "ar_base": "gaussian", "sigma": "learned"},
    ],
)
def test_unusual_populations_archives_and_readings_stay_finite(settings):
    config = ARACConfig(**{**SMALL, **settings}, eval_interval=0)
    fitness = [np.zeros(config.population_size)] * 3
    state, rows, _ = run(config, [12] * config.population_size * 3, fitness)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    assert np.isfinite(list(rows[-1].losses.values())).all()
    assert np.isfinite(rows[-1].kl).all()


def test_evaluation_happens_at_every_interval_and_at_the_end(counted):
    config = ARACConfig(**SMALL, eval_interval=100)
    _, rows, _ = run(config, [7] * 5 * 12)
    crossed = [35 * (i + 1) // 100 > 35 * i // 100 for i in range(12)]
    assert [row is not None for row in rows] == crossed
    context = context_of(config, ScriptedRollouts([7] * 5), total_steps=30)
    assert arac.generation(context, arac.init(config, ENV, 0))[1] is not None


def test_the_update_loops_compile_once_over_many_episode_lengths():
    config = ARACConfig(**SMALL, eval_interval=60)
    lengths = np.random.default_rng(0).integers(1, 70, 5 * 12).tolist()
    before = arac.critic_updates._cache_size(), arac.actor_updates._cache_size()
    run(config, lengths)
    # Critic: one. Actors: without an archive, then with it. None, if an earlier test had these shapes.
    assert arac.critic_updates._cache_size() - before[0] <= 1
    assert arac.actor_updates._cache_size() - before[1] <= 2


def test_sacs_loop_compiles_once_over_many_episode_lengths():
    config = SACConfig(**SMALL, eval_interval=60)
    lengths = np.random.default_rng(1).integers(1, 70, 12).tolist()
    context, state = context_of(config, ScriptedRollouts(lengths)), sac.init(config, ENV, seed=0)
    before = sac.sac_updates._cache_size()
    for _ in lengths:
        state, _ = sac.generation(context, state)
    assert state.env_steps == sum(lengths)
    assert sac.sac_updates._cache_size() - before <= 1
