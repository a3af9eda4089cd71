import jax
import numpy as np
import pytest

from arac.utils.rng import stream_key, stream_rng

OTHERS = [
    (1, "explore", 2, 3),
    (0, "evaluate", 2, 3),
    (0, "explore", 3, 2),
    (0, "explore", 2, 4),
    (0, "explore", 1, 3),
    (0, "explore", 2),
]


def key_numbers(*args):
    return tuple(np.asarray(jax.random.uniform(stream_key(*args), (8,))))


def rng_numbers(*args):
    return tuple(stream_rng(*args).random(8))


kinds = pytest.mark.parametrize("numbers", [key_numbers, rng_numbers])


@kinds
def test_the_same_arguments_give_the_same_numbers_whatever_was_drawn_between(numbers):
    first = numbers(0, "explore", 2, 3)
    for other in OTHERS:
        numbers(*other)
    assert numbers(0, "explore", 2, 3) == first


@kinds
def test_the_order_of_calls_does_not_matter(numbers):
    forwards = {args: numbers(*args) for args in OTHERS}
    backwards = {args: numbers(*args) for args in reversed(OTHERS)}
    assert forwards == backwards


@kinds
def test_another_seed_stream_or_counter_gives_other_numbers(numbers):
    everything = [numbers(0, "explore", 2, 3), *(numbers(*other) for other in OTHERS)]
    assert len(set(everything)) == len(everything)


@kinds
def test_all_members_and_generations_have_numbers_of_their_own(numbers):
    drawn = {numbers(0, "explore", member, generation) for member in range(12) for generation in range(12)}
    assert len(drawn) == 144


@kinds
def test_the_largest_seed_is_one_of_its_own(numbers):
    assert len({numbers(seed, "explore", 0) for seed in (0, 1, 2**31 - 1, 2**31, 2**32 - 1)}) == 5
