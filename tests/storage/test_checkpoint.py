import json
import os
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from helpers import numbered_episode

from arac.errors import UserError
from arac.replay.buffer import ReplayBuffer, sample
from arac.storage import checkpoint
from arac.storage.checkpoint import fill, list_checkpoints, save, set_aside_after
from arac.storage.pytree_io import from_arrays, outline, size_in_bytes, to_arrays
from arac.storage.replay_segments import ReplayLog
from arac.utils import atomic_io
from arac.utils.atomic_io import Checksum, sha256


class State(NamedTuple):
    env_steps: int
    generation: int
    weights: Any
    fitness: Any


def state_at(env_steps):
    weights = {"layers": (jnp.full((2, 3), env_steps / 7), jnp.arange(3))}
    return State(env_steps, env_steps // 10, weights, np.array([env_steps, 0.5]))


def blank(tree):
    """Return the tree with all numbers replaced by 0."""

    def zeros(leaf):
        return 0 if isinstance(leaf, int) else (jnp if isinstance(leaf, jax.Array) else np).zeros_like(leaf)

    return jax.tree.map(zeros, tree)


TEMPLATE = blank(state_at(10))
METRICS = {"evaluations.jsonl": Checksum(17, sha256(b"")), "episodes.csv": Checksum(0, sha256(b""))}
RUN = {"algorithm": "arac", "environment": {"id": "Hopper-v5"}, "config": {"flows": 3}}


def load(folder, template=TEMPLATE, differences=()):
    config = SimpleNamespace(leaves_since_format_2=())
    spec = SimpleNamespace(outline=lambda: template, differences=lambda run: list(differences), config=config)
    return checkpoint.load(folder, spec, Replay())


class Replay(ReplayBuffer):
    """A small buffer with the log of its run."""

    def __init__(self):
        super().__init__(40, 2, 2)
        self.keep(ReplayLog())

    def keep(self, log):
        self.log, self.on_add = log, log.unsaved.append


def played(replay, count, steps=5):
    """Add `count` episodes, each with its number in the history of the buffer."""
    first = replay.cursor.episodes
    replay.extend(numbered_episode(first + i, steps, terminated=bool(i % 2)) for i in range(count))


def save_at(folder, env_steps, replay, cursor=None):
    save(folder, state_at(env_steps), replay.log, cursor or replay.cursor, METRICS, RUN)


def loaded_replay(folder, manifest):
    replay = Replay()
    fill(folder, manifest, replay)
    replay.keep(ReplayLog(manifest.cursor.episodes, saved=manifest.segments))
    return replay


def two_checkpoints(folder):
    """Write a run with checkpoints at 10 and 20 steps, and return the replay of both."""
    replay = Replay()
    played(replay, 2)
    save_at(folder, 10, replay)
    older = loaded_replay(folder, load(folder).manifest)
    played(replay, 3)
    save_at(folder, 20, replay)
    return older, replay


def checkpoint_folder(folder, env_steps):
    return folder / "checkpoints" / f"{env_steps:012d}"


def flip_a_byte(path, position=-1):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def edit_manifest(folder, env_steps, **changes):
    """Change a manifest and recompute its checksum, as an attacker could."""
    path = checkpoint_folder(folder, env_steps) / "manifest.json"
    table = {**json.loads(path.read_text()), **changes}
    del table["sha256"]
    path.write_text(json.dumps({**table, "sha256": sha256(json.dumps(table, sort_keys=True).encode())}))


def segment_names(folder):
    return sorted(path.name for path in (folder / "replay").iterdir())


def temporary_files(folder):
    return list(folder.rglob(".*"))


def assert_same_state(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert type(left) is type(right)
        np.testing.assert_array_equal(left, right)


def assert_same_replay(one, other):
    assert one.cursor == other.cursor
    assert len(one) == len(other)
    for seed in range(3):
        batches = [sample(replay.view, jax.random.key(seed), 64) for replay in (one, other)]
        jax.tree.map(np.testing.assert_array_equal, *batches)


def test_a_tree_comes_back_with_every_leaf_of_its_kind():
    tree = {
        "count": 3,
        "jax": [jnp.arange(4.0), jnp.array(7), jnp.zeros((0, 2))],
        "numpy": (np.arange(6).reshape(2, 3), np.array([True, False]), np.array(2.5)),
    }
    back = from_arrays(blank(tree), safetensors.numpy.load(safetensors.numpy.save(to_arrays(tree))))
    assert_same_state(back, tree)
    assert [leaf.dtype for leaf in jax.tree.leaves(back)[1:]] == [leaf.dtype for leaf in jax.tree.leaves(tree)[1:]]


def test_the_outline_of_a_state_is_the_state_without_its_numbers():
    made = {"jax": jnp.arange(6.0).reshape(2, 3), "numpy": np.arange(3), "count": 7, "flag": True}
    drawn = outline(lambda: {**made, "jax": made["jax"] * 2})
    assert drawn["jax"] == jax.ShapeDtypeStruct((2, 3), jnp.float32)
    assert_same_state(from_arrays(drawn, to_arrays(made)), made)


def test_an_outline_of_what_no_machine_could_hold_costs_nothing():
    assert size_in_bytes(outline(lambda: jnp.ones((10**6, 10**7)) * 2)) == 4 * 10**13


def test_an_array_that_does_not_lie_in_row_order_comes_back_as_it_was():
    tree = {"transposed": np.arange(6).reshape(2, 3).T, "strided": np.arange(6)[::2]}
    assert_same_state(from_arrays(tree, safetensors.numpy.load(safetensors.numpy.save(to_arrays(tree)))), tree)


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"['a']": np.zeros(3), "['b']": np.array(0)}, "float64"),
        ({"['a']": np.zeros((3, 1), np.float32), "['b']": np.array(0)}, r"\(3, 1\)"),
        ({"['a']": np.zeros(4, np.float32), "['b']": np.array(0)}, r"\['a'\]"),
        ({"['a']": np.zeros(3, np.float32), "['b']": np.array(0.0)}, r"\['b'\]"),
        ({"['a']": np.zeros(3, np.float32), "['b']": np.array([0])}, r"\['b'\]"),
        ({"['a']": np.zeros(3, np.float32)}, "other arrays"),
        ({"['a']": np.zeros(3, np.float32), "['c']": np.array(0)}, "other arrays"),
        ({"['a']": np.zeros(3, np.float32), "['b']": np.array(0), "['c']": np.array(0)}, "other arrays"),
    ],
)
def test_arrays_of_another_shape_type_or_name_are_refused(arrays, word):
    with pytest.raises(ValueError, match=word):
        from_arrays({"a": jnp.zeros(3), "b": 0}, arrays)


def test_state_and_replay_come_back_as_they_were(tmp_path):
    _, replay = two_checkpoints(tmp_path)
    state, manifest, skipped = load(tmp_path)
    assert_same_state(state, state_at(20))
    assert skipped == []
    assert (manifest.env_steps, manifest.generation, manifest.metrics, manifest.run) == (20, 2, METRICS, RUN)
    assert_same_replay(loaded_replay(tmp_path, manifest), replay)


def test_a_replay_that_has_wrapped_around_comes_back_and_goes_on_as_the_original(tmp_path):
    replay = Replay()
    for number in range(9):
        played(replay, 2, steps=7)
        save_at(tmp_path, 10 * (number + 1), replay)
    restored = loaded_replay(tmp_path, load(tmp_path).manifest)
    assert replay.cursor.first_episode > 0
    assert_same_replay(restored, replay)
    played(replay, 3, steps=11)
    played(restored, 3, steps=11)
    assert_same_replay(restored, replay)


def test_a_checkpoint_before_any_episode_has_an_empty_replay(tmp_path):
    save_at(tmp_path, 0, Replay())
    loaded = load(tmp_path)
    assert loaded.state.env_steps == 0
    assert len(loaded_replay(tmp_path, loaded.manifest)) == 0


def test_only_new_episodes_are_written_at_a_second_save(tmp_path):
    replay = Replay()
    played(replay, 2)
    save_at(tmp_path, 10, replay)
    [first] = (tmp_path / "replay").iterdir()
    before = (first.read_bytes(), first.stat().st_mtime_ns, first.stat().st_ino)
    played(replay, 3)
    save_at(tmp_path, 20, replay)
    assert (first.read_bytes(), first.stat().st_mtime_ns, first.stat().st_ino) == before
    [second] = set((tmp_path / "replay").iterdir()) - {first}
    assert safetensors.numpy.load_file(second)["lengths"].tolist() == [5, 5, 5]
    assert safetensors.numpy.load_file(second)["observations"][::6, 0].tolist() == [2, 3, 4]
    assert not replay.log.unsaved


def test_a_save_without_new_episodes_writes_no_segment(tmp_path):
    replay = Replay()
    played(replay, 2)
    save_at(tmp_path, 10, replay)
    names = segment_names(tmp_path)
    save_at(tmp_path, 20, replay)
    assert segment_names(tmp_path) == names
    assert_same_replay(loaded_replay(tmp_path, load(tmp_path).manifest), replay)


def test_episodes_after_the_cursor_are_not_saved_and_stay_unsaved(tmp_path):
    at_cursor, replay = Replay(), Replay()
    played(at_cursor, 7, steps=6)
    played(replay, 7, steps=6)
    cursor = replay.cursor
    played(replay, 5, steps=6)
    save_at(tmp_path, 10, replay, cursor)
    assert_same_replay(loaded_replay(tmp_path, load(tmp_path).manifest), at_cursor)
    assert [episode.observations[0, 0] for episode in replay.log.unsaved] == [7, 8, 9, 10, 11]


def test_the_last_two_checkpoints_are_kept_with_the_segments_that_they_need_and_no_others(tmp_path):
    replay, cursors = Replay(), []
    for number in range(12):
        played(replay, 2, steps=5)
        save_at(tmp_path, 10 * (number + 1), replay)
        cursors.append(replay.cursor)
        kept = list_checkpoints(tmp_path)
        assert [int(path.name) for path in kept] == [10 * (n + 1) for n in range(max(number - 1, 0), number + 1)]
        oldest_needed = cursors[max(number - 1, 0)].first_episode
        saved_first = [2 * n for n in range(number + 1) if 2 * n + 2 > oldest_needed]
        assert segment_names(tmp_path) == [f"{first:012d}.safetensors" for first in saved_first]
    assert cursors[-1].first_episode > 10


def test_the_older_checkpoint_is_whole_after_wrapping_around(tmp_path):
    replay, older = Replay(), Replay()
    for number in range(8):
        played(replay, 2)
        save_at(tmp_path, 10 * (number + 1), replay)
        if number < 7:
            played(older, 2)
    flip_a_byte(checkpoint_folder(tmp_path, 80) / "state.safetensors")
    loaded = load(tmp_path)
    assert_same_state(loaded.state, state_at(70))
    assert_same_replay(loaded_replay(tmp_path, loaded.manifest), older)


def break_state(folder):
    flip_a_byte(checkpoint_folder(folder, 20) / "state.safetensors")


def break_header_of_state(folder):
    flip_a_byte(checkpoint_folder(folder, 20) / "state.safetensors", 0)


def truncate_state(folder):
    path = checkpoint_folder(folder, 20) / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-5])


def remove_state(folder):
    (checkpoint_folder(folder, 20) / "state.safetensors").unlink()


def remove_manifest(folder):
    (checkpoint_folder(folder, 20) / "manifest.json").unlink()


def truncate_manifest(folder):
    path = checkpoint_folder(folder, 20) / "manifest.json"
    path.write_bytes(path.read_bytes()[:-9])


def empty_manifest(folder):
    (checkpoint_folder(folder, 20) / "manifest.json").write_text("{}")


def break_segment(folder):
    flip_a_byte(sorted((folder / "replay").iterdir())[-1])


def remove_segment(folder):
    sorted((folder / "replay").iterdir())[-1].unlink()


DAMAGES = [
    break_state,
    break_header_of_state,
    truncate_state,
    remove_state,
    remove_manifest,
    truncate_manifest,
    empty_manifest,
    break_segment,
    remove_segment,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_checkpoint_is_skipped_for_the_older_one_and_named(tmp_path, damage):
    older, _ = two_checkpoints(tmp_path)
    damage(tmp_path)
    state, manifest, skipped = load(tmp_path)
    assert_same_state(state, state_at(10))
    assert_same_replay(loaded_replay(tmp_path, manifest), older)
    assert len(skipped) == 1
    assert skipped[0].startswith("checkpoint 20: ")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_goes_on_and_saves_after_a_broken_checkpoint_was_skipped(tmp_path, damage):
    two_checkpoints(tmp_path)
    damage(tmp_path)
    replay = loaded_replay(tmp_path, load(tmp_path).manifest)
    played(replay, 3)
    save_at(tmp_path, 20, replay)
    played(replay, 1)
    save_at(tmp_path, 30, replay)
    state, manifest, skipped = load(tmp_path)
    assert_same_state(state, state_at(30))
    assert skipped == []
    assert_same_replay(loaded_replay(tmp_path, manifest), replay)


@pytest.mark.parametrize("part", ["first_episode", "row", "generation"])
def test_a_changed_number_in_the_manifest_is_noticed(tmp_path, part):
    two_checkpoints(tmp_path)
    path = checkpoint_folder(tmp_path, 20) / "manifest.json"
    text = path.read_text()
    digit = text.index(f'"{part}": ') + len(f'"{part}": ')
    path.write_text(text[:digit] + str(int(text[digit]) ^ 1) + text[digit + 1 :])
    assert load(tmp_path).state.env_steps == 10


def test_a_state_of_another_shape_is_refused(tmp_path):
    two_checkpoints(tmp_path)
    with pytest.raises(UserError, match="fitness"):
        load(tmp_path, TEMPLATE._replace(fitness=np.zeros(3)))


def test_the_checkpoints_of_another_configuration_are_refused_with_the_differences(tmp_path):
    two_checkpoints(tmp_path)
    with pytest.raises(UserError, match="flows is 4, was 3"):
        load(tmp_path, differences=["flows is 4, was 3"])


@pytest.mark.parametrize("newer", [(10,), (20,), (10, 20)])
def test_a_newer_format_is_refused_by_its_number_and_never_skipped(tmp_path, newer):
    two_checkpoints(tmp_path)
    for env_steps in newer:
        edit_manifest(tmp_path, env_steps, format=99, arac="7.5")
    if 20 not in newer:
        remove_state(tmp_path)
    with pytest.raises(UserError, match=r"format 99, written by arac 7\.5"):
        load(tmp_path)


@pytest.mark.parametrize("made", [False, True])
def test_a_folder_without_a_checkpoint_is_refused_in_one_sentence(tmp_path, made):
    if made:
        (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UserError, match="no usable checkpoint") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_all_broken_checkpoints_are_named_newest_first(tmp_path):
    two_checkpoints(tmp_path)
    flip_a_byte(checkpoint_folder(tmp_path, 10) / "state.safetensors")
    remove_manifest(tmp_path)
    with pytest.raises(UserError, match=r"checkpoint 20: .*; checkpoint 10: ") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_leftover_temporary_folder_is_ignored_and_written_over(tmp_path):
    _, replay = two_checkpoints(tmp_path)
    leftover = checkpoint_folder(tmp_path, 30).with_name(f".{30:012d}.tmp")
    leftover.mkdir()
    (leftover / "state.safetensors").write_bytes(b"half")
    (leftover / "rubbish").write_bytes(b"left")
    state, _, skipped = load(tmp_path)
    assert (state.env_steps, skipped) == (20, [])
    assert [path.name for path in list_checkpoints(tmp_path)] == [f"{steps:012d}" for steps in (10, 20)]

    save_at(tmp_path, 30, replay)
    assert sorted(path.name for path in checkpoint_folder(tmp_path, 30).iterdir()) == [
        "manifest.json",
        "state.safetensors",
    ]
    assert not leftover.exists()


def failing_at(monkeypatch, failing_call):
    """Make the given flush fail, and all after it."""
    calls, flush = [], os.fsync

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) > failing_call:
            raise OSError(28, "No space left on device")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return calls


@pytest.mark.parametrize("failing_call", range(7))
def test_a_save_that_fails_leaves_the_checkpoint_before_it_and_no_temporary_files(tmp_path, monkeypatch, failing_call):
    replay = Replay()
    played(replay, 2)
    save_at(tmp_path, 10, replay)
    before = loaded_replay(tmp_path, load(tmp_path).manifest)
    played(replay, 2)
    with monkeypatch.context() as broken_disk:
        failing_at(broken_disk, failing_call)
        with pytest.raises(OSError, match="No space left"):
            save_at(tmp_path, 20, replay)
    assert temporary_files(tmp_path) == []
    state, manifest, skipped = load(tmp_path)
    assert skipped == []
    if state.env_steps == 10:
        assert_same_state(state, state_at(10))
        assert_same_replay(loaded_replay(tmp_path, manifest), before)
        assert segment_names(tmp_path) == [f"{0:012d}.safetensors"]
    else:
        assert failing_call == 6, "only the flush after the rename may find the new checkpoint in place"
        assert_same_replay(loaded_replay(tmp_path, manifest), replay)


@pytest.mark.parametrize("failing_call", [0, 2, 4])
def test_a_save_after_one_that_failed_has_all_episodes(tmp_path, monkeypatch, failing_call):
    replay = Replay()
    played(replay, 2)
    with monkeypatch.context() as broken_disk:
        failing_at(broken_disk, failing_call)
        with pytest.raises(OSError, match="No space left"):
            save_at(tmp_path, 10, replay)
    played(replay, 2)
    save_at(tmp_path, 20, replay)
    assert_same_replay(loaded_replay(tmp_path, load(tmp_path).manifest), replay)


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    atomic_io.write_durably(path, b"old")
    atomic_io.write_durably(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file_and_no_temporary_one(tmp_path, monkeypatch):
    path = tmp_path / "file"
    atomic_io.write_durably(path, b"old")
    failing_at(monkeypatch, 0)
    with pytest.raises(OSError, match="No space left"):
        atomic_io.write_durably(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_flushed_before_it_gets_its_name_and_its_folder_after(tmp_path, monkeypatch):
    path, seen, flush = tmp_path / "file", [], os.fsync

    def fsync(descriptor):
        seen.append((os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")), path.exists()))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    atomic_io.write_durably(path, b"new")
    assert seen == [(".file.tmp", False), (tmp_path.name, True)]


def test_a_broken_checkpoint_does_not_take_a_place_of_the_two_that_are_kept(tmp_path):
    two_checkpoints(tmp_path)
    flip_a_byte(checkpoint_folder(tmp_path, 20) / "state.safetensors")
    loaded = load(tmp_path)
    replay = loaded_replay(tmp_path, loaded.manifest)
    set_aside_after(tmp_path, loaded.state.env_steps)
    for steps in (12, 14, 16):
        played(replay, 1)
        save_at(tmp_path, steps, replay)
    assert [int(path.name) for path in list_checkpoints(tmp_path)] == [14, 16]


def test_episodes_that_left_replay_before_there_was_a_checkpoint_are_in_no_file(tmp_path):
    """A file is never larger than replay, however long the interval is."""
    replay, same = Replay(), Replay()
    for _ in range(30):
        played(replay, 2)
        played(same, 2)
        replay.log.forget_before(replay.cursor.first_episode)
        assert len(replay.log.unsaved) <= replay.cursor.episodes - replay.cursor.first_episode
    save_at(tmp_path, 10, replay)
    [segment] = load(tmp_path).manifest.segments
    assert (segment.first, segment.first + segment.episodes) == replay.cursor[:2]
    assert_same_replay(loaded_replay(tmp_path, load(tmp_path).manifest), same)
    played(replay, 1)
    replay.log.forget_before(replay.cursor.first_episode)
    save_at(tmp_path, 20, replay)
    assert_same_replay(loaded_replay(tmp_path, load(tmp_path).manifest), replay)


def test_a_signal_that_comes_just_after_the_rename_does_not_undo_the_checkpoint(tmp_path, monkeypatch):
    replay = Replay()
    played(replay, 2)
    rename = os.rename

    def interrupted(old, new):
        rename(old, new)
        if os.path.basename(new) == f"{10:012d}":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            save_at(tmp_path, 10, replay)
    assert_same_replay(loaded_replay(tmp_path, load(tmp_path).manifest), replay)
    save_at(tmp_path, 10, replay)
    assert_same_replay(loaded_replay(tmp_path, load(tmp_path).manifest), replay)
    assert temporary_files(tmp_path) == []


def test_what_is_not_a_runs_own_stays_where_it_is(tmp_path):
    """Folders of file managers and notebooks, and a user's notes, are left alone."""
    replay = Replay()
    played(replay, 1)
    save_at(tmp_path, 10, replay)
    (tmp_path / "replay" / ".ipynb_checkpoints").mkdir()
    (tmp_path / "replay" / "notes.txt").touch()
    (tmp_path / "checkpoints" / "000000000005").touch()
    for env_steps in (20, 30, 40):
        played(replay, 3)
        save_at(tmp_path, env_steps, replay)
    assert (tmp_path / "replay" / "notes.txt").exists()
    assert (tmp_path / "replay" / ".ipynb_checkpoints").exists()
    assert [int(path.name) for path in list_checkpoints(tmp_path)] == [30, 40]


def test_a_write_does_not_go_through_a_link(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".file.tmp").symlink_to("precious")
    (tmp_path / "rows").symlink_to("precious")
    atomic_io.write_durably(tmp_path / "file", b"new")
    with pytest.raises(OSError, match="symbolic links"):
        atomic_io.append(tmp_path / "rows", b"new")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "file").read_bytes() == b"new"


def test_rows_are_appended_whole_or_not_at_all(tmp_path, monkeypatch):
    path, write = tmp_path / "rows", os.write
    atomic_io.append(path, b"first\n")

    def half(descriptor, data):
        if len(data) < 6:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space left"):
        atomic_io.append(path, b"second row\n")
    assert path.read_bytes() == b"first\n"
