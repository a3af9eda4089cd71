from itertools import chain

import jax
import numpy as np
import pytest
from helpers import numbered_episode
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from arac.replay import buffer as replay
from arac.replay.buffer import ReplayBuffer, replay_bytes, sample
from arac.replay.episode import Episode

SPARE_ROWS = {1: 1, 7: 1, 40: 2}  # one for each episode, and one more episode than that never fits

capacities = st.sampled_from(sorted(SPARE_ROWS))
chunks_of_episodes = st.lists(
    st.lists(st.tuples(st.integers(1, 8) | st.integers(1, 40), st.booleans()), min_size=1, max_size=8),
    min_size=1,
    max_size=5,
)


def fitting(plan, capacity, first=0):
    """Return episodes of a plan of (steps, terminated), each short enough for the buffer."""
    lengths = [(steps - 1) % capacity + 1 for steps, _ in plan]
    return [numbered_episode(first + i, lengths[i], terminated) for i, (_, terminated) in enumerate(plan)]


def expected_transitions(history, capacity):
    """Return the transitions of the newest whole episodes that fit, and their number: the naive model."""
    kept, steps = [], 0
    for episode in reversed(history):
        steps += len(episode)
        if steps > capacity or steps + len(kept) + 1 > capacity + SPARE_ROWS[capacity]:
            break
        kept.append(episode)
    return {transition for episode in kept for transition in transitions_of(episode)}, len(kept)


def transitions_of(episode):
    number, last = float(episode.observations[0, 0]), len(episode) - 1
    for step in range(len(episode)):
        here, there = (number, float(step)), (number, float(step + 1))
        yield here, (-number, -float(step)), 10_000 * number + step, episode.terminated and step == last, there


jitted_sample = jax.jit(sample, static_argnames="batch_size")


def sampled(buffer, count=4096, seed=0):
    batch = jitted_sample(buffer.view, jax.random.key(seed), count)
    columns = (batch.observation, batch.action, batch.reward, batch.terminal, batch.next_observation)
    rows = np.concatenate([np.asarray(column, float).reshape(count, -1) for column in columns], axis=1).tolist()
    return [((o0, o1), (a0, a1), reward, bool(end), (n0, n1)) for o0, o1, a0, a1, reward, end, n0, n1 in rows]


@settings(deadline=None, max_examples=30)
@given(capacities, chunks_of_episodes)
def test_exactly_the_transitions_of_the_newest_whole_episodes_can_be_sampled(capacity, chunks):
    buffer, history = ReplayBuffer(capacity, 2, 2), []
    for chunk in chunks:
        episodes = fitting(chunk, capacity, first=len(history))
        buffer.extend(episodes)
        history += episodes
        expected, kept = expected_transitions(history, capacity)
        assert set(sampled(buffer)) == expected
        assert len(buffer) == len(expected) <= capacity
        assert buffer.cursor[:2] == (len(history) - kept, len(history))


def test_many_wraps_keep_the_newest_episodes():
    rng = np.random.default_rng(0)
    buffer, history = ReplayBuffer(40, 2, 2), []
    for number in range(300):
        history.append(numbered_episode(number, int(rng.integers(1, 41)), bool(rng.integers(2))))
        buffer.extend(history[-1:])
    assert set(sampled(buffer)) == expected_transitions(history, 40)[0]


@pytest.mark.parametrize(
    ("steps", "terminated"), [(1023, True), (1024, True), (1024, False), (1025, True), (2500, False)]
)
def test_episodes_longer_than_one_block_are_whole(steps, terminated):
    buffer = ReplayBuffer(3000, 2, 2)
    buffer.extend([numbered_episode(0, 700), numbered_episode(1, steps, terminated), numbered_episode(2, 490)])
    wanted = [numbered_episode(1, steps, terminated), numbered_episode(2, 490)]
    if 700 + steps + 490 <= 3000:
        wanted.append(numbered_episode(0, 700))
    drawn = set(sampled(buffer, count=100_000))
    assert drawn == {transition for episode in wanted for transition in transitions_of(episode)}


@pytest.mark.parametrize(
    ("lengths", "kept"), [([20, 20], 2), ([20, 21], 1), ([20, 10, 10], 2), ([13, 13, 13], 3), ([20, 10, 9], 3)]
)
def test_the_oldest_episode_leaves_exactly_when_steps_or_rows_run_out(lengths, kept):
    buffer, history = ReplayBuffer(40, 2, 2), [numbered_episode(i, steps) for i, steps in enumerate(lengths)]
    buffer.extend(history)
    assert set(sampled(buffer)) == {transition for episode in history[-kept:] for transition in transitions_of(episode)}


def test_an_episode_as_long_as_the_capacity_takes_all_of_it():
    buffer = ReplayBuffer(40, 2, 2)
    buffer.extend([numbered_episode(0, 3), numbered_episode(1, 40)])
    assert set(sampled(buffer)) == set(transitions_of(numbered_episode(1, 40)))


def test_the_final_observation_of_a_truncated_episode_survives_as_a_successor():
    buffer = ReplayBuffer(40, 2, 2)
    buffer.extend([numbered_episode(3, 5, terminated=False), numbered_episode(4, 5)])
    last = [transition for transition in sampled(buffer) if transition[0] == (3.0, 4.0)]
    assert last
    assert all(successor == (3.0, 5.0) and not terminal for *_, terminal, successor in last)


def test_only_the_last_step_of_a_terminated_episode_is_terminal():
    buffer = ReplayBuffer(40, 2, 2)
    buffer.extend([numbered_episode(0, 5), numbered_episode(1, 5, terminated=False), numbered_episode(2, 1)])
    assert {transition[0] for transition in sampled(buffer) if transition[3]} == {(0.0, 4.0), (2.0, 0.0)}


def test_an_episode_longer_than_the_capacity_is_refused_and_changes_nothing():
    buffer = ReplayBuffer(7, 2, 2)
    buffer.extend([numbered_episode(0, 5)])
    with pytest.raises(ValueError, match="8 steps does not fit a replay of 7"):
        buffer.extend([numbered_episode(1, 8)])
    assert set(sampled(buffer)) == set(transitions_of(numbered_episode(0, 5)))


def test_sampling_is_uniform_over_transitions_also_after_wrapping_around():
    buffer = ReplayBuffer(40, 2, 2)
    buffer.extend(numbered_episode(number, steps) for number, steps in enumerate([30, 9, 1, 25, 3, 8]))
    drawn = sampled(buffer, count=20_000)
    counts = [drawn.count(transition) for transition in set(drawn)]
    assert len(counts) == len(buffer) == 37
    assert chisquare(counts).pvalue > 1e-3


def test_another_key_draws_another_batch_and_the_same_key_the_same():
    buffer = ReplayBuffer(40, 2, 2)
    buffer.extend([numbered_episode(0, 40)])
    assert sampled(buffer, 32, seed=1) == sampled(buffer, 32, seed=1)
    assert sampled(buffer, 32, seed=1) != sampled(buffer, 32, seed=2)


def test_writing_compiles_once_whatever_the_lengths():
    buffer = ReplayBuffer(5003, 2, 2)
    before = replay._write._cache_size()
    buffer.extend(numbered_episode(number, steps) for number, steps in enumerate([1, 2, 40, 1000, 1024, 3001, 2999]))
    assert replay._write._cache_size() == before + 1


def test_sampling_inside_a_jitted_function_compiles_once_while_the_buffer_fills():
    buffer = ReplayBuffer(40, 2, 2)
    jitted = jax.jit(lambda view, key: sample(view, key, 16))
    for number in range(8):
        buffer.extend([numbered_episode(number, number + 3)])
        jitted(buffer.view, jax.random.key(number))
    assert jitted._cache_size() == 1


def assert_same_samples(one, other):
    for seed in range(3):
        batches = (jitted_sample(buffer.view, jax.random.key(seed), 4096) for buffer in (one, other))
        jax.tree.map(np.testing.assert_array_equal, *batches)


@settings(deadline=None, max_examples=25)
@given(capacities, chunks_of_episodes, chunks_of_episodes)
def test_a_restored_buffer_samples_and_goes_on_as_the_original(capacity, before, after):
    history = fitting([*chain(*before)], capacity)
    original, restored = ReplayBuffer(capacity, 2, 2), ReplayBuffer(capacity, 2, 2)
    original.extend(history)
    restored.restore(history[original.cursor.first_episode :], original.cursor)
    assert_same_samples(original, restored)
    assert restored.cursor == original.cursor

    later = fitting([*chain(*after)], capacity, first=len(history))
    original.extend(later)
    restored.extend(later)
    assert_same_samples(original, restored)
    assert restored.cursor == original.cursor


def test_a_cursor_stays_valid_when_episodes_are_added():
    history = [numbered_episode(number, 9) for number in range(12)]
    at_cursor, buffer, restored = (ReplayBuffer(40, 2, 2) for _ in range(3))
    at_cursor.extend(history[:7])
    buffer.extend(history[:7])
    cursor = buffer.cursor
    buffer.extend(history[7:])
    restored.restore(history[cursor.first_episode : cursor.episodes], cursor)
    assert_same_samples(at_cursor, restored)


def test_a_listener_gets_the_episodes_that_were_added_in_order_but_not_those_that_do_not_fit():
    buffer, heard = ReplayBuffer(40, 2, 2), []
    buffer.on_add = heard.append
    buffer.extend(numbered_episode(number, 30) for number in range(3))
    with pytest.raises(ValueError, match="does not fit"):
        buffer.extend([numbered_episode(3, 41)])
    assert [episode.observations[0, 0] for episode in heard] == [0, 1, 2]


def test_the_episodes_in_the_buffer_come_back_as_they_were_added():
    buffer = ReplayBuffer(40, 2, 2)
    added = [numbered_episode(number, 9, terminated=bool(number % 2)) for number in range(7)]
    buffer.extend(added)
    there = list(buffer.episodes())
    for one, other in zip(there, added[-len(there) :], strict=True):
        np.testing.assert_equal(vars(one), vars(other))


def test_a_million_transitions_of_humanoid_fit_in_1600_megabytes():
    assert replay_bytes(1_000_000, 348, 17) <= 1.6e9


@pytest.mark.parametrize("capacity", [1, 15, 16, 1000])
def test_the_bytes_that_are_foretold_are_those_that_are_taken(capacity):
    storage = ReplayBuffer(capacity, 11, 3).storage
    assert replay_bytes(capacity, 11, 3) == sum(leaf.nbytes for leaf in jax.tree.leaves(storage))


def test_a_large_buffer_is_written_in_place():
    large = ReplayBuffer(100_000, 348, 17)
    assert sum(array.nbytes for array in jax.tree.leaves(large.storage)) <= 1.6e8
    where = large.storage.observations.unsafe_buffer_pointer()
    observations, actions, rewards = (np.zeros(shape, np.float32) for shape in ((1501, 348), (1500, 17), 1500))
    large.extend([Episode(observations, actions, rewards, terminated=True, total=0.0, steps=1500)])
    assert large.storage.observations.unsafe_buffer_pointer() == where
