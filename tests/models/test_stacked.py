import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arac.models.stacked import put, stack, take, to_numpy, top_k, vmap_init


def numbered(*numbers):
    values = jnp.array(numbers, jnp.float32)
    return {"scalar": values, "matrix": values[:, None, None] * jnp.ones((2, 3))}


def numbers_of(population):
    np.testing.assert_array_equal(population["matrix"], population["scalar"][..., None, None] * np.ones((2, 3)))
    return population["scalar"].tolist()


def test_take_gives_one_member_without_the_member_axis():
    member = take(numbered(5, 6, 7), 1)
    assert member["scalar"].shape == ()
    assert numbers_of(member) == 6


def test_take_gives_a_sub_population_in_the_order_asked_for():
    assert numbers_of(take(numbered(5, 6, 7), np.array([2, 0, 2]))) == [7, 5, 7]


def test_put_writes_each_member_at_its_index_and_leaves_the_rest():
    assert numbers_of(put(numbered(5, 6, 7, 8), np.array([3, 1]), numbered(30, 10))) == [5, 10, 7, 30]


def test_put_leaves_the_old_population_as_it_was():
    before = numbered(5, 6)
    put(before, np.array([0]), numbered(9))
    assert numbers_of(before) == [5, 6]


def test_put_of_what_was_taken_changes_nothing():
    population, chosen = numbered(5, 6, 7), np.array([2, 0])
    assert numbers_of(put(population, chosen, take(population, chosen))) == [5, 6, 7]


def test_stack_is_the_opposite_of_take():
    population = numbered(5, 6, 7)
    assert numbers_of(stack([take(population, member) for member in range(3)])) == [5, 6, 7]


def test_to_numpy_turns_every_leaf_into_a_numpy_array():
    population = to_numpy(numbered(5, 6))
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(population))
    assert numbers_of(population) == [5, 6]


@pytest.mark.parametrize(
    ("fitness", "k", "best"),
    [
        ([1, 3, 2], 2, [1, 2]),
        ([1, 3, 2], 3, [1, 2, 0]),
        ([2, 5, 5, 5], 2, [1, 2]),
        ([4, 4, 4], 3, [0, 1, 2]),
        ([np.nan, -1e300, 7], 3, [2, 1, 0]),
        ([np.nan, np.nan, 1], 3, [2, 0, 1]),
        ([np.nan, -np.inf], 2, [1, 0]),
        ([-0.0, 0.0], 2, [0, 1]),
    ],
)
def test_top_k_ranks_best_first_with_ties_to_the_lower_index_and_nan_last(fitness, k, best):
    assert top_k(np.array(fitness, float), k).tolist() == best


def test_over_members_makes_members_that_differ_each_from_a_key_of_its_own():
    def init(key):
        return {"weights": jax.random.normal(key, (3, 2)), "same": jnp.ones(2)}

    key = jax.random.key(0)
    population = vmap_init(init, key, 4)
    assert len({member.tobytes() for member in np.asarray(population["weights"])}) == 4
    wanted = stack([init(member_key) for member_key in jax.random.split(key, 4)])
    jax.tree.map(np.testing.assert_allclose, population, wanted)
