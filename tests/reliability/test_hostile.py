"""Damaged and malicious files are refused: no wrong state is loaded, no code runs, no memory is allocated."""

import ast
import contextlib
import json
import os
import pickle
import shutil
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torture import digest

import arac
from arac import cli
from arac.replay.buffer import sample
from arac.storage import agent_file, checkpoint, manifest, pytree_io, verify
from arac.utils.atomic_io import Checksum, checksum, sha256

SMALL = {
    "hidden_size": 16,
    "batch_size": 16,
    "warmup_steps": 30,
    "eval_interval": 60,
    "eval_episodes": 1,
    "checkpoint_interval": 40,
    "replay_capacity": 10_000,
    "workers": 0,
}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Train a run with two checkpoints, and save the agent at its end to a file."""
    folder = tmp_path_factory.mktemp("original")
    agent = arac.SAC("InvertedPendulum-v5", **SMALL).learn(150, run_dir=folder / "run")
    agent.save(folder / "agent.safetensors")
    return folder


@pytest.fixture
def run(original, tmp_path):
    shutil.copytree(original / "run", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def saved(original, tmp_path):
    return Path(shutil.copy(original / "agent.safetensors", tmp_path))


@pytest.fixture(scope="module")
def description(original):
    return arac.load(original / "run").description


def restored(folder, description):
    """Return a hash of the state and of a sample of replay that a resume would use, and the skipped checkpoints."""
    replay = arac.algorithms.base.init_replay(description.config, description.env)
    loaded = checkpoint.load(folder, description, replay)
    batch = sample(replay.view, jax.random.key(0), 200)
    arrays = [*pytree_io.to_arrays(loaded.state).values(), *map(np.asarray, batch)]
    return sha256(b"".join(array.tobytes() for array in arrays)), loaded.skipped


@pytest.fixture(scope="module")
def known(original, description, tmp_path_factory):
    """Return the hashes of what the newest and the older checkpoint contain."""
    newest, _ = restored(original / "run", description)
    copy = tmp_path_factory.mktemp("older") / "run"
    shutil.copytree(original / "run", copy)
    shutil.rmtree(checkpoint.list_checkpoints(copy)[-1])
    older, _ = restored(copy, description)
    assert newest != older
    return newest, older


def newest(folder):
    return checkpoint.list_checkpoints(folder)[-1]


def parts_of_the_newest(folder):
    """Return the files that only the newest checkpoint needs."""
    *_, last = manifest.read(newest(folder) / "manifest.json").segments
    return [newest(folder) / "manifest.json", newest(folder) / "state.safetensors", folder / "replay" / last.name]


COMMON = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_nothing_wrong_is_loaded(folder, description, known):
    found, skipped = restored(folder, description)
    assert found == known[0] or (found == known[1] and len(skipped) == 1)


@COMMON
@given(part=st.integers(0, 2), position=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_a_flipped_byte_anywhere_in_a_checkpoint_is_never_loaded(part, position, mask, original, description, known):
    path = parts_of_the_newest(original / "run")[part]
    data = path.read_bytes()
    place = int(position * len(data))
    try:
        path.write_bytes(data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :])
        assert_nothing_wrong_is_loaded(original / "run", description, known)
    finally:
        path.write_bytes(data)


@COMMON
@given(part=st.integers(0, 2), length=st.floats(0, 1, exclude_max=True), tail=st.binary(max_size=20))
def test_a_file_cut_off_at_any_length_is_never_loaded(part, length, tail, original, description, known):
    path = parts_of_the_newest(original / "run")[part]
    data = path.read_bytes()
    try:
        path.write_bytes(data[: int(length * len(data))] + tail)
        assert_nothing_wrong_is_loaded(original / "run", description, known)
    finally:
        path.write_bytes(data)


@COMMON
@given(position=st.floats(0, 1, exclude_max=True), mask=st.integers(0, 255))
def test_a_saved_agent_with_a_flipped_byte_or_an_end_too_early_is_refused(position, mask, saved, original):
    data = (original / "agent.safetensors").read_bytes()
    place = int(position * len(data))
    saved.write_bytes(data[:place] + (bytes([data[place] ^ mask]) + data[place + 1 :] if mask else b""))
    with pytest.raises(arac.UserError) as caught:
        arac.load(saved)
    assert "\n" not in str(caught.value)


@COMMON
@given(position=st.floats(0, 1, exclude_max=True), mask=st.integers(0, 255))
def test_a_damaged_config_is_refused_or_says_the_same(position, mask, original, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(original / "run", folder, dirs_exist_ok=True)
    data = (original / "run" / "config.toml").read_bytes()
    place = int(position * len(data))
    damaged = data[:place] + (bytes([data[place] ^ mask]) + data[place + 1 :] if mask else b"")
    (folder / "config.toml").write_bytes(damaged)
    with contextlib.suppress(arac.UserError):
        assert arac.load(folder).description.identity() == arac.load(original / "run").description.identity()


def peak_memory(reset=True):
    """Return the peak memory of this process since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def test_a_large_allocation_would_be_noticed():
    before = peak_memory()
    np.ones(25_000_000)
    assert peak_memory(reset=False) - before > 100e6


class Payload:
    """An object whose pickle creates a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def rehash(folder, **changes):
    """Change the newest manifest and recompute its checksum, as an attacker could."""
    path = newest(folder) / "manifest.json"
    table = {**json.loads(path.read_text()), **changes}
    del table["sha256"]
    path.write_text(json.dumps({**table, "sha256": sha256(json.dumps(table, sort_keys=True).encode())}))


def replace_state(folder, data):
    """Replace the state of the newest checkpoint, and its hash in the manifest."""
    (newest(folder) / "state.safetensors").write_bytes(data)
    rehash(folder, state=checksum(data)._asdict())


def test_the_payload_would_work(tmp_path):
    pickle.loads(pickle.dumps(Payload(tmp_path / "created")))
    assert (tmp_path / "created").exists()


@pytest.mark.parametrize("where", ["state", "segment", "manifest", "config", "agent"])
def test_a_pickle_in_place_of_a_file_is_not_read_as_one(where, run, saved, tmp_path, description, known):
    data = pickle.dumps(Payload(tmp_path / "created"))
    if where == "state":
        replace_state(run, data)
    elif where == "segment":
        segment = run / "replay" / manifest.read(newest(run) / "manifest.json").segments[-1].name
        segment.write_bytes(data)
        *others, [first, count, *_] = json.loads((newest(run) / "manifest.json").read_text())["segments"]
        rehash(run, segments=[*others, [first, count, *checksum(data)]])
    elif where == "manifest":
        (newest(run) / "manifest.json").write_bytes(data)
    elif where == "config":
        (run / "config.toml").write_bytes(data)
    else:
        saved.write_bytes(data)
    if where in ("config", "agent"):
        with pytest.raises(arac.UserError):
            arac.load(run if where == "config" else saved)
    else:
        assert restored(run, description)[0] == known[1]
        list(verify.examine(run))
    assert not (tmp_path / "created").exists()


def header(**arrays):
    """Write a safetensors file whose header lists arrays that are missing."""
    table = json.dumps(arrays).encode()
    return len(table).to_bytes(8, "little") + table


HUGE = {"dtype": "F32", "shape": [2**20, 2**20], "data_offsets": [0, 2**42]}
ABSURD = {
    "shape": header(x=HUGE),
    "overflow": header(x={"dtype": "F32", "shape": [2**63, 2**63], "data_offsets": [0, 4]}),
    "header": (2**62).to_bytes(8, "little") + b"{}",
    "nested": (10**5).to_bytes(8, "little") + b"[" * 10**5,
    "empty": b"",
}


@pytest.mark.parametrize("kind", ABSURD)
def test_absurd_shapes_are_refused_before_memory_is_allocated(kind, run, saved, description, known):
    before = peak_memory()
    replace_state(run, ABSURD[kind])
    assert restored(run, description)[0] == known[1]
    saved.write_bytes(ABSURD[kind])
    with pytest.raises(arac.UserError, match="not a file that arac saved"):
        arac.load(saved)
    assert peak_memory(reset=False) - before < 100e6


def test_a_sealed_file_that_is_larger_than_the_state_can_be_is_not_read(run, description, known):
    data = safetensors.numpy.save({"x": np.zeros(10**6)})
    replace_state(run, data)
    found, [skipped] = restored(run, description)
    assert found == known[1]
    assert "larger" in skipped


def opened(path):
    with safetensors.safe_open(path, "np") as file:
        return file.metadata(), safetensors.numpy.load_file(path)


def agent_that_says(path, changes):
    """Change the description of a saved agent, and recompute its checksum."""
    metadata, arrays = opened(path)
    table = json.loads(metadata["arac"])
    for name, value in changes.items():
        (table["config"] if name in table["config"] else table)[name] = value
    del metadata["sha256"]
    metadata["arac"] = json.dumps(table)
    metadata["sha256"] = agent_file._hash(metadata, arrays)
    path.write_bytes(safetensors.numpy.save(arrays, metadata=metadata))


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": 10**8},
        {"hidden_size": 5000},
        {"hidden_size": "four"},
        {"seed": "one"},
        {"seed": -1},
        {"algorithm": "sarsa"},
        {"algorithm": ["sac"]},
        {"environment": "InvertedPendulum-v5"},
        {"environment": {"id": "Nowhere-v9", "max_episode_steps": 10, "kwargs": {}}},
        {"environment": {"id": 7, "max_episode_steps": 10, "kwargs": {}}},
        {"environment": {"id": "InvertedPendulum-v5", "max_episode_steps": "x", "kwargs": {}}},
        {"environment": {"id": "InvertedPendulum-v5", "max_episode_steps": 10, "kwargs": [1]}},
        {"environment": {"id": "InvertedPendulum-v5", "max_episode_steps": 10, "kwargs": {"xml_file": "/dev/zero"}}},
        {"environment": {"id": "Hopper-v5", "max_episode_steps": 1000, "kwargs": {}}},
        {"config": {}},
        {"config": None},
    ],
)
def test_a_saved_agent_that_says_something_else_of_itself_is_refused_before_memory_is_allocated(changes, saved):
    before = peak_memory()
    agent_that_says(saved, changes)
    with pytest.raises(arac.UserError) as caught:
        arac.load(saved)
    assert "\n" not in str(caught.value)
    assert peak_memory(reset=False) - before < 100e6


def test_a_replay_capacity_that_no_machine_holds_is_refused(run, capsys):
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("replay_capacity = 10000", f"replay_capacity = {10**15}"))
    assert cli.main(["resume", str(run)]) == 2
    assert "would take" in capsys.readouterr().err


@pytest.mark.parametrize("table", ["[]", "3", "null", "[" * 10**5, "{"])
def test_a_saved_agent_whose_description_is_no_table_is_refused(table, saved):
    metadata, arrays = opened(saved)
    saved.write_bytes(safetensors.numpy.save(arrays, metadata={**metadata, "arac": table}))
    with pytest.raises(arac.UserError, match="is not a file that arac saved"):
        arac.load(saved)


def test_a_saved_agent_that_is_not_finite_is_refused(saved):
    metadata, arrays = opened(saved)
    name = next(name for name, array in arrays.items() if array.dtype == np.float32)
    arrays[name] = np.full_like(arrays[name], np.nan)
    del metadata["sha256"]
    metadata["sha256"] = agent_file._hash(metadata, arrays)
    saved.write_bytes(safetensors.numpy.save(arrays, metadata=metadata))
    with pytest.raises(arac.UserError, match="not finite"):
        arac.load(saved)


@pytest.mark.parametrize("text", ["a." * 3_000 + "a = 1", "a." * 10**6, "x = " + "[" * 9_000, "versions = 3"])
def test_a_strange_config_is_refused_or_passed_over_quickly(text, run):
    table = (run / "config.toml").read_text().split("[versions]")[0]
    (run / "config.toml").write_text(f"{text}\n{table}")
    began = time.monotonic()
    with contextlib.suppress(arac.UserError):
        arac.resume(run, log=lambda _: None)
    list(verify.examine(run))
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("name", ["../../victim", "/tmp/victim", "config.toml"])
def test_a_manifest_cannot_have_files_cut_that_are_not_its_own(name, run, tmp_path, description, known):
    (tmp_path / "victim").write_text("precious")
    metrics = json.loads((newest(run) / "manifest.json").read_text())["metrics"]
    rehash(run, metrics={**metrics, name: Checksum(0, sha256(b""))._asdict()})
    assert restored(run, description)[0] == known[1]
    arac.resume(run, log=lambda _: None)
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize(
    "change",
    [
        {"mark": {"first_episode": 0, "episodes": 10**9, "row": 0}},
        {"mark": {"first_episode": 3, "episodes": 2, "row": 0}},
        {"mark": {"first_episode": 0, "episodes": 2, "row": 10**9}},
        {"mark": {"first_episode": -1, "episodes": 2, "row": 0}},
        {"mark": 7},
        {"segments": [["../../etc/passwd", 1, 1, "x"]]},
        {"segments": [[0, 1, 1]]},
        {"segments": []},
        {"segments": 3},
        {"env_steps": 10**6},
        {"env_steps": "many"},
        {"generation": True},
        {"state": {"bytes": 2**60, "sha256": ""}},
        {"run": []},
        {"run": {}},
        {"run": {"environment": 3, "config": {}}},
        {"metrics": None},
        {"metrics": {}},
        {"format": "one"},
        {"format": 0},
    ],
)
def test_a_manifest_that_does_not_fit_together_is_skipped(change, run, description, known):
    rehash(run, **change)
    found, skipped = restored(run, description)
    assert found == known[1]
    assert len(skipped) == 1


@pytest.mark.parametrize("text", ["[" * 10**6, '{"a":' * 10**5, "null", "[]", '"x"', "1" * 10**5, "\x00", "{}"])
def test_strange_json_is_a_damaged_manifest(text, run, description, known):
    (newest(run) / "manifest.json").write_text(text)
    assert restored(run, description)[0] == known[1]


def wrong_segment(run, **changes):
    """Write a replay file with other arrays, and its hash to the newest manifest."""
    *others, [first, count, *_] = json.loads((newest(run) / "manifest.json").read_text())["segments"]
    path = run / "replay" / f"{first:012d}.safetensors"
    arrays = {**safetensors.numpy.load_file(path), **changes}
    data = safetensors.numpy.save({name: array for name, array in arrays.items() if array is not None})
    path.write_bytes(data)
    rehash(run, segments=[*others, [first, count, *checksum(data)]])


@pytest.mark.parametrize("lengths", [[-1], [0], [2**62], [], [[1]], [1, 1, 1, 1]])
def test_replay_files_whose_episodes_have_no_length_are_skipped(lengths, run, description, known):
    wrong_segment(run, lengths=np.array(lengths, np.int64))
    assert restored(run, description)[0] == known[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"rewards": None},
        {"rewards": np.zeros(3)},
        {"extra": np.zeros(3)},
        {"observations": np.full((3, 4), np.nan, np.float32)},
        {"observations": np.zeros((10, 5), np.float32)},
    ],
)
def test_replay_files_with_other_arrays_are_skipped(changes, run, description, known):
    wrong_segment(run, **changes)
    assert restored(run, description)[0] == known[1]


def test_replay_that_is_not_finite_is_skipped(run, description, known):
    *_, [first, *_] = json.loads((newest(run) / "manifest.json").read_text())["segments"]
    rewards = safetensors.numpy.load_file(run / "replay" / f"{first:012d}.safetensors")["rewards"]
    wrong_segment(run, rewards=np.full_like(rewards, np.inf))
    found, [skipped] = restored(run, description)
    assert found == known[1]
    assert "rewards are not all finite" in skipped


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "loop"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_no_ordinary_file_is_not_opened(kind, which, run, description, known):
    path = parts_of_the_newest(run)[which]
    path.unlink()
    make_odd(path, kind)
    assert restored(run, description)[0] == known[1]


@pytest.mark.parametrize("kind", ["device", "pipe", "loop"])
def test_an_agent_or_config_that_is_no_ordinary_file_is_refused(kind, run, saved):
    for path, loaded in ((saved, saved), (run / "config.toml", run)):
        path.unlink()
        make_odd(path, kind)
        with pytest.raises(arac.UserError):
            arac.load(loaded)


def make_odd(path, kind):
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path)


def test_a_saved_agent_of_a_newer_format_is_refused_by_name(saved):
    metadata, arrays = opened(saved)
    saved.write_bytes(safetensors.numpy.save(arrays, metadata={**metadata, "format": "9", "version": "8.0"}))
    with pytest.raises(
        arac.UserError, match=r"has format 9, written by arac 8\.0, and this version reads formats up to 2"
    ):
        arac.load(saved)


@pytest.mark.parametrize("command", ["resume", "evaluate", "doctor"])
def test_a_run_of_a_newer_format_is_refused_by_name(command, run, capsys):
    rehash(run, format=9, arac="8.0")
    before = digest(run)
    assert cli.main([command, str(run)]) == (3 if command == "doctor" else 2)
    out, err = capsys.readouterr()
    assert "has format 9, written by arac 8.0" in out + err
    assert digest(run) == before


FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
SENDING = ("rollout", "sending.py")  # of functions through pipes, to workers that this process starts
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def test_the_package_has_no_way_to_run_what_it_reads():
    files = list(Path(arac.__file__).parent.rglob("*.py"))
    assert len(files) > 30
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path}:{getattr(node, 'lineno', '')}"
            if isinstance(node, ast.Import) and path.parts[-2:] != SENDING:
                assert not {name.name.split(".")[0] for name in node.names} & FORBIDDEN_MODULES, where
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in FORBIDDEN_MODULES, where
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in FORBIDDEN_CALLS, where
            if isinstance(node, ast.keyword):
                assert node.arg != "allow_pickle", where
