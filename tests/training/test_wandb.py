"""Weights & Biases without a network: logged rows are read from its offline files."""

import json
import struct

import pytest
from helpers import SMALL

import arac
from arac.callbacks import WandB
from arac.cli import main
from arac.storage import metrics
from arac.training.callbacks import wandb as module

wandb = pytest.importorskip("wandb")

TRAIN = ["train", "InvertedPendulum-v5", "--algo", "sac", "--seed", "3", "--steps", "300"]
TRAIN += [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb.teardown()  # forget the variables of earlier tests in this process


def records(path):
    """Yield the records of a file of W&B: seven bytes, then LevelDB's log format in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    data, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if 2**15 - place % 2**15 < 7:  # too little for another head: padding
            place += 2**15 - place % 2**15
        if kind in (1, 4):  # a whole record, or its last part
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def history(path):
    """Return the logged rows."""
    logged = [record.history for record in records(path) if record.WhichOneof("record_type") == "history"]
    return [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row.item} for row in logged]


def test_a_run_and_its_resumption_are_one_run_there_with_all_numbers(tmp_path):
    run = tmp_path / "run"
    agent = arac.SAC("InvertedPendulum-v5", seed=3, **SMALL)
    agent.learn(400, run_dir=run, callback=[WandB("poles", tags=["small"]), lambda _, row: row is None])
    arac.resume(run, callback=WandB("poles"), log=lambda _: None)
    wandb.teardown()  # its process has written everything when it has ended
    first, second = sorted(run.glob("wandb/offline-run-*/*.wandb"))
    rows = metrics.read_evaluations(run)
    logged = [*history(first), *history(second)]
    assert [row["_step"] for row in logged] == [row["env_steps"] for row in rows]
    for row, sent in zip(rows, logged, strict=True):
        assert sent.items() >= metrics.scalars(row).items()
    begun, resumed = (
        next(r.run for r in records(path) if r.WhichOneof("record_type") == "run") for path in (first, second)
    )
    assert begun.run_id == resumed.run_id == (run / "wandb" / "run-id").read_text()
    assert (begun.project, begun.display_name, list(begun.tags)) == ("poles", "run", ["small"])
    settings = {update.key: json.loads(update.value_json) for update in begun.config.update}
    assert settings["algorithm"] == "sac"
    assert settings["config"]["hidden_size"] == 16
    assert "wandb" not in (run / "config.toml").read_text()


def test_the_command_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert main([*TRAIN, "--run-dir", str(tmp_path / "run"), "--wandb", "poles"]) == 2
    assert "pip install 'arac-rl[wandb]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_failure_of_it_ends_the_command_in_words_and_the_run_goes_on_later(tmp_path, monkeypatch, capsys):
    def refuse(*_args, **_options):
        raise wandb.errors.CommError("the server is gone")

    with monkeypatch.context() as broken:
        broken.setattr(wandb.Run, "log", refuse)
        assert main([*TRAIN, "--run-dir", str(tmp_path / "run"), "--wandb", "poles"]) == 3
    said = capsys.readouterr().err
    assert "W&B failed: the server is gone" in said
    assert f"resume {tmp_path / 'run'}" in said
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert main([*TRAIN, "--run-dir", str(tmp_path / "whole")]) == 0
    for name in metrics.DETERMINISTIC_FILES:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_what_wandb_does_not_take_is_the_users_mistake():
    with pytest.raises(arac.UserError, match="W&B cannot be used like this"):
        arac.SAC("InvertedPendulum-v5", **SMALL).learn(100, callback=WandB("no/such/name"))
