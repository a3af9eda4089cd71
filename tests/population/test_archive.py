from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from arac.models.policies import FlowPolicy
from arac.models.stacked import stack, take
from arac.population.archive import Archive, betas, two_means

ONE = FlowPolicy.init(jax.random.key(0), 2, 1, hidden=(3,), flows=1, sigma=0.4)


def tagged(*tags):
    """Return policies whose parameters all equal their tag."""
    return stack([jax.tree.map(lambda leaf: jnp.full_like(leaf, tag), ONE) for tag in tags])  # noqa: B023


def tags_of(archive):
    tables = [np.asarray(leaf).reshape(archive.capacity, -1) for leaf in jax.tree.leaves(archive.policies)]
    table = np.concatenate(tables, axis=1)[: archive.size]
    assert (table == table[:, :1]).all()
    return table[:, 0].tolist()


def add(archive, *fitness, seed=0, env_steps=0):
    """Return policies whose tag is their fitness."""
    return archive.add(tagged(*fitness), np.array(fitness, float), env_steps, np.random.default_rng(seed))


def archive_of(*fitness):
    return add(Archive.empty(ONE, len(fitness)), *fitness)


def assert_policies_match_fitness(archive):
    assert tags_of(archive) == archive.fitness[: archive.size].tolist()


def test_an_empty_archive_has_room_for_its_capacity():
    archive = Archive.empty(ONE, 4)
    assert (archive.size, archive.capacity) == (0, 4)


def test_everyone_is_kept_in_order_while_there_is_room():
    archive = add(add(Archive.empty(ONE, 5), 3, 1), 2, 7)
    assert archive.size == 4
    assert tags_of(archive) == [3, 1, 2, 7]
    assert_policies_match_fitness(archive)


def test_the_archive_knows_when_each_policy_was_added():
    archive = add(add(Archive.empty(ONE, 4), 3, 1, env_steps=10), 2, env_steps=20)
    assert archive.born.tolist() == [10, 10, 20, 0]
    archive = add(archive, 7, 8, env_steps=30)
    assert [steps for steps, tag in zip(archive.born, tags_of(archive), strict=True) if tag >= 7] == [30] * sum(
        tag >= 7 for tag in tags_of(archive)
    )
    assert set(archive.born) <= {10, 20, 30}


@pytest.mark.parametrize("capacity", [1, 2, 5, 7])
def test_the_archive_fills_up_to_its_capacity_and_never_beyond(capacity):
    archive = Archive.empty(ONE, capacity)
    for generation in range(6):
        archive = add(archive, *(10.0 * generation + np.arange(3)), seed=generation)
        assert archive.size == min(capacity, 3 * (generation + 1))
        assert len(archive.fitness) == capacity
        assert_policies_match_fitness(archive)


def test_a_capacity_below_the_population_holds_that_many_of_its_members():
    archive = add(Archive.empty(ONE, 3), 5, 4, 3, 2, 1)
    assert archive.size == 3
    assert set(tags_of(archive)) <= {5, 4, 3, 2, 1}
    assert len(set(tags_of(archive))) == 3
    assert_policies_match_fitness(archive)


def test_those_who_find_no_room_replace_members_of_the_nearest_niche_of_the_full_archive():
    for seed in range(20):
        archive = add(Archive.empty(ONE, 4), 1, 1, 100, 100, 101, seed=seed)
        assert sorted(archive.fitness) == [1, 1, 100, 101]


def test_a_newcomer_replaces_a_member_of_the_nearest_niche_uniformly():
    full = archive_of(0, 1, 2, 100, 101)
    replaced = [int(np.flatnonzero(add(full, 3, seed=seed).fitness == 3)[0]) for seed in range(300)]
    counts = np.bincount(replaced, minlength=5)
    assert counts[3:].tolist() == [0, 0]
    assert chisquare(counts[:3]).pvalue > 1e-3


@pytest.mark.parametrize(("newcomer", "kept"), [(70, [0, 1, 2]), (-5, [100, 101]), (10_000, [0, 1, 2])])
def test_the_other_niche_is_left_alone(newcomer, kept):
    for seed in range(10):
        archive = add(archive_of(0, 1, 2, 100, 101), newcomer, seed=seed)
        assert newcomer in archive.fitness
        assert set(kept) <= set(archive.fitness)
        assert_policies_match_fitness(archive)


def test_niches_are_computed_once_for_all_newcomers():
    # 6.9 lies nearer to 10 than to 0, but nearer to 4 than to 10: with new niches it would replace the 4.
    assert add(archive_of(0, 10), 4, 6.9).fitness.tolist() == [4, 6.9]


def test_of_two_newcomers_for_one_slot_the_later_stays_with_its_own_policy():
    archive = add(archive_of(0), 1, 2)
    assert archive.fitness.tolist() == [2]
    assert_policies_match_fitness(archive)


def test_an_archive_of_equal_fitness_is_one_niche():
    replaced = {int(np.flatnonzero(add(archive_of(5, 5, 5), 9, seed=seed).fitness == 9)[0]) for seed in range(40)}
    assert replaced == {0, 1, 2}


@pytest.mark.parametrize("room", [True, False])
def test_a_fitness_that_is_not_finite_stays_out(room):
    archive = archive_of(0.0, 0.0, 10.0, 10.0) if not room else Archive.empty(take(tagged(0), 0), 8)
    after = add(archive, np.nan, 7.0, np.inf, -np.inf)
    assert np.isfinite(after.fitness).all()
    assert 7.0 in after.fitness
    assert after.size == (1 if room else 4)
    assert_policies_match_fitness(after)


def test_add_leaves_the_old_archive_untouched():
    old = add(Archive.empty(ONE, 3), 1, 2)
    fitness, policies = old.fitness.copy(), jax.tree.map(np.array, old.policies)
    add(add(old, 7, 8), 9)
    assert old.size == 2
    np.testing.assert_array_equal(old.fitness, fitness)
    jax.tree.map(np.testing.assert_array_equal, old.policies, policies)


def test_archived_policies_are_copies_that_outlive_the_population():
    population, fitness = tagged(4, 6), np.array([4.0, 6.0])
    archive = Archive.empty(ONE, 2).add(population, fitness, 0, np.random.default_rng(0))
    for leaf in jax.tree.leaves(population):
        leaf.delete()
    fitness[:] = 0
    assert tags_of(archive) == [4, 6]
    assert archive.fitness.tolist() == [4, 6]


def test_an_archived_policy_acts_as_the_member_it_was():
    population = stack([FlowPolicy.init(jax.random.key(k), 2, 1, hidden=(3,), flows=1, sigma=0.4) for k in (1, 2)])
    archive = Archive.empty(ONE, 3).add(population, np.array([1.0, 2.0]), 0, np.random.default_rng(0))
    observation = jnp.array([0.3, -0.7])
    for member in range(2):
        archived = take(archive.policies, member).mode(observation)
        np.testing.assert_array_equal(archived, take(population, member).mode(observation))


def best_cost(values):
    """Return the least sum of squares over all partitions of the values in two."""
    everyone = range(len(values))
    subsets = (set(part) for size in range(1, len(values)) for part in combinations(everyone, size))
    return min(cost(values, part, set(everyone) - part) for part in subsets)


def cost(values, *clusters):
    parts = [values[list(cluster)] for cluster in clusters]
    return sum(((part - part.mean()) ** 2).sum() for part in parts)


@settings(deadline=None, max_examples=40)
@given(
    st.one_of(
        st.lists(st.floats(-100, 100), min_size=2, max_size=9),
        st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=9),
    )
    .map(np.array)
    .filter(lambda values: np.ptp(values) > 1e-3)
)
def test_two_means_is_the_best_of_all_partitions(values):
    low, high = two_means(values)
    assert sorted([*low, *high]) == list(range(len(values)))
    assert len(low) > 0
    assert len(high) > 0
    assert values[low].max() < values[high].min()
    assert cost(values, low, high) <= best_cost(values) + 1e-9 * (values**2).sum()


@pytest.mark.parametrize("values", [[3.0], [3.0, 3.0], [0.0] * 6])
def test_two_means_of_equal_values_is_one_cluster(values):
    low, high = two_means(np.array(values))
    assert sorted(low) == list(range(len(values)))
    assert len(high) == 0


def test_a_sample_has_no_repeats_and_stays_within_what_is_there():
    archive = add(Archive.empty(ONE, 9), 1, 2, 3, 4, 5)
    for seed in range(50):
        slots = archive.sample(3, np.random.default_rng(seed))
        assert len(set(slots.tolist())) == 3
        assert set(slots.tolist()) <= set(range(5))


@pytest.mark.parametrize("n", [3, 4, 100])
def test_a_sample_of_more_than_there_are_is_all_of_them(n):
    archive = add(Archive.empty(ONE, 9), 1, 2, 3)
    assert sorted(archive.sample(n, np.random.default_rng(0))) == [0, 1, 2]


def test_a_sample_is_uniform():
    archive, rng = add(Archive.empty(ONE, 9), 1, 2, 3, 4, 5), np.random.default_rng(0)
    pairs = [tuple(sorted(archive.sample(2, rng).tolist())) for _ in range(2000)]
    counts = [pairs.count(pair) for pair in combinations(range(5), 2)]
    assert sum(counts) == 2000
    assert chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(
    ("strategy", "fitness", "expected"),
    [
        ("proactive", [10, 30, 20], [1, -1, 0]),
        ("reactive", [10, 30, 20], [1, 0, 0.5]),
        ("proactive", [-4, 0], [1, -1]),
        ("reactive", [-4, 0], [1, 0]),
        ("proactive", [0, 1, 4], [1, 0.5, -1]),
        ("reactive", [0, 1, 4], [1, 0.75, 0]),
        ("proactive", [7, 7, 7], [0, 0, 0]),
        ("reactive", [7, 7, 7], [1, 1, 1]),
        ("proactive", [7], [0]),
        ("reactive", [7], [1]),
    ],
)
def test_betas_repel_from_the_worst_and_attract_to_the_best_only_if_proactive(strategy, fitness, expected):
    np.testing.assert_allclose(betas(np.array(fitness, float), strategy), expected, atol=1e-12)
