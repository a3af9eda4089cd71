"""`arac doctor` reports intact runs as sound and names every damage, without changing a file."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
from test_hostile import SMALL, newest, rehash, replace_state
from torture import digest

import arac
from arac import cli
from arac.storage import checkpoint, verify
from arac.utils.atomic_io import checksum


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original") / "run"
    agent = arac.ARAC("InvertedPendulum-v5", **{**SMALL, "warmup_steps": 300})  # no update is compiled
    agent.learn(400, run_dir=folder, callback=lambda agent, _: agent.state.env_steps < 160)
    return folder


@pytest.fixture
def run(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def findings(run):
    return [(finding.level, finding.text) for finding in verify.examine(run)]


def test_a_sound_run_is_sound(run, capsys):
    steps = [int(path.name) for path in reversed(checkpoint.list_checkpoints(run))]
    before = digest(run)
    assert cli.main(["doctor", str(run)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert all(line.startswith("sound   ") for line in out.splitlines())
    assert f"sound   checkpoint {steps[0]}: generation " in out
    assert f"sound   checkpoint {steps[1]}: generation " in out
    assert f"arrays, {steps[0]} transitions in replay" in out
    assert f"`arac resume {run}` resumes at {steps[0]} steps" in out
    assert digest(run) == before


def flip(path, place=-3):
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


def damaged_state(run):
    flip(newest(run) / "state.safetensors")


def damaged_manifest(run):
    flip(newest(run) / "manifest.json", 40)


def damaged_segment(run):
    flip(sorted((run / "replay").iterdir())[-1])


def state_with(run, change):
    path = newest(run)
    arrays = {name: array.copy() for name, array in safetensors.numpy.load_file(path / "state.safetensors").items()}
    change(arrays)
    replace_state(run, safetensors.numpy.save(arrays))


def parameter_not_finite(run):
    state_with(run, lambda arrays: arrays[".critic.critic.target.biases[0]"].fill(np.nan))


def other_shape(run):
    state_with(run, lambda arrays: arrays.update({".archive.fitness": np.zeros(3)}))


def other_counter(run):
    state_with(run, lambda arrays: arrays[".generation"].fill(1000))


def gap_in_replay(run):
    table = json.loads((newest(run) / "manifest.json").read_text())
    rehash(run, segments=[*table["segments"][:-2], table["segments"][-1]])


def lost_beginning_of_replay(run):
    table = json.loads((newest(run) / "manifest.json").read_text())
    rehash(run, segments=table["segments"][1:])


def changed_row(run):
    path = run / "evaluations.jsonl"
    path.write_text(path.read_text().replace('"champion": ', '"champion": 1', 1))


def lost_rows(run):
    (run / "episodes.csv").write_text("")


def lost_metrics(run):
    (run / "evaluations.jsonl").unlink()


def rows_that_contradict_each_other(run):
    """Change a row and its checksum, so that it contradicts the means of the episodes."""
    rows = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    rows[0]["fitness"][0] += 1
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (run / "evaluations.jsonl").write_bytes(data)
    table = json.loads((newest(run) / "manifest.json").read_text())
    rehash(run, metrics={**table["metrics"], "evaluations.jsonl": checksum(data)._asdict()})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damaged_state, "state.safetensors does not match its hash"),
        (damaged_manifest, "manifest.json"),
        (damaged_segment, "does not match its hash"),
        (parameter_not_finite, ".critic.critic.target.biases[0] not finite"),
        (other_shape, ".archive.fitness is float64(3,)"),
        (other_counter, "1000 generations, not"),
        (gap_in_replay, "replay has a gap between"),
        (lost_beginning_of_replay, "its replay files have episodes"),
        (changed_row, "evaluations.jsonl: its rows are not those that the checkpoint knows"),
        (lost_rows, "episodes.csv: its rows are not those that the checkpoint knows"),
        (lost_metrics, "evaluations.jsonl: No such file"),
        (rows_that_contradict_each_other, "is not the mean of its episodes"),
    ],
)
def test_every_damage_is_found_and_named(damage, said, run, capsys):
    damage(run)
    before = digest(run)
    assert cli.main(["doctor", str(run)]) == 3
    out, _ = capsys.readouterr()
    assert any(line.startswith("damaged ") and said in line for line in out.splitlines()), out
    assert digest(run) == before


def test_it_says_which_checkpoint_a_resume_would_use(run):
    older, newer = (int(path.name) for path in checkpoint.list_checkpoints(run))
    damaged_state(run)
    assert findings(run)[-1] == ("sound", f"`arac resume {run}` resumes at {older} steps")
    agent = arac.resume(run, log=lambda _: None, callback=lambda *_: False)
    assert agent.state.env_steps > older
    assert ("note", f"checkpoints/{newer:012d}.broken was found broken by an earlier resume and set aside") in findings(
        run
    )


def test_it_says_when_there_is_nothing_to_go_on_from(run):
    for path in checkpoint.list_checkpoints(run):
        (path / "manifest.json").unlink()
    assert findings(run)[-1] == ("damaged", "no intact checkpoint: the run cannot be resumed")


def test_a_config_that_cannot_be_read_is_damage(run, capsys):
    (run / "config.toml").write_text("steps = ")
    assert cli.main(["doctor", str(run)]) == 3
    assert capsys.readouterr().out.startswith("damaged ")


def test_a_checkpoint_that_was_being_removed_is_a_leftover(run):
    """A run that was killed while it removed an old checkpoint is not damaged."""
    older, _ = checkpoint.list_checkpoints(run)
    shutil.copytree(older, older.with_name(".000000000001.old.tmp"))
    (older.with_name(".000000000001.old.tmp") / "manifest.json").unlink()
    assert [level for level, _ in findings(run) if level == "damaged"] == []


def test_it_says_of_every_checkpoint_what_resume_would(run):
    """A cursor with a right checksum that lies outside of replay is reported."""
    table = json.loads((newest(run) / "manifest.json").read_text())
    rehash(run, mark={**table["mark"], "row": 10**9})
    assert any(level == "damaged" and "outside of replay" in text for level, text in findings(run))
    said = []
    arac.resume(run, log=said.append, callback=lambda *_: False)
    assert any("outside of replay" in sentence for sentence in said)


def test_what_a_killed_process_left_is_noted_and_removed_by_resume(run):
    (run / "checkpoints" / ".000000000999.tmp").mkdir()
    (run / "replay" / ".000000000999.safetensors.tmp").write_bytes(b"half")
    with (run / "evaluations.jsonl").open("a") as file:
        file.write('{"env_steps": 1, "torn')
    noted = [text for level, text in findings(run) if level == "note"]
    assert any("checkpoints/.000000000999.tmp was being written when a process died" in text for text in noted)
    assert any("evaluations.jsonl: 22 bytes are newer than the checkpoint" in text for text in noted)
    arac.resume(run, log=lambda _: None, callback=lambda *_: False)
    assert [level for level, _ in findings(run) if level != "sound"] == []
