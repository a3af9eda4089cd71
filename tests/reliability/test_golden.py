"""Checkpoints and agents of earlier versions, one folder per format, can be loaded."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import arac
from arac.storage import verify
from arac.storage.manifest import FORMAT
from arac.storage.run_spec import RunSpec

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = [
    (path, name)
    for path in sorted(GOLDEN.glob("format-*"))
    for name in json.loads((path / "expected.json").read_text())
]
OBSERVATIONS = np.linspace(-1, 1, 12).reshape(3, 4).round(3)


def test_there_is_one_of_every_format():
    assert sorted(path.name for path in GOLDEN.glob("format-*")) == [f"format-{n}" for n in range(1, FORMAT + 1)]


@pytest.mark.parametrize(("folder", "name"), CASES)
def test_what_an_earlier_version_wrote_acts_as_it_did(folder, name):
    expected = json.loads((folder / "expected.json").read_text())[name]
    for path in (folder / name, folder / f"{name}.safetensors"):
        agent = arac.load(path)
        assert agent.state.env_steps == expected["env_steps"]
        actions, _ = agent.predict(OBSERVATIONS, deterministic=True)
        np.testing.assert_allclose(actions, expected["actions"], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "name"), CASES)
def test_what_an_earlier_version_wrote_is_sound_and_goes_on(folder, name, tmp_path):
    expected = json.loads((folder / "expected.json").read_text())[name]
    run = tmp_path / "run"
    shutil.copytree(folder / name, run)
    assert [finding.text for finding in verify.examine(run) if finding.level == "damaged"] == []
    agent = arac.resume(run, log=lambda _: None)
    assert (agent.state.env_steps, len(agent.replay)) == (expected["env_steps"], expected["replay"])
    agent = arac.resume(run, total_steps=150, log=lambda _: None)
    assert agent.state.env_steps >= 150


def test_a_target_of_before_elites_were_free_was_per_action_dimension():
    """Hopper has three actions, so that 0.25 per dimension is 0.75 in total."""
    now = arac.ARAC("Hopper-v5", ar_target=0.75, ar_felt_by="all").description
    table, identity = now.to_table(), now.identity()
    for settings in (table["config"], identity["config"]):
        del settings["ar_felt_by"]
        settings["ar_target"] = 0.25
    then = RunSpec.from_table(table)
    assert (then.config.ar_target, then.config.ar_felt_by) == (0.75, "all")
    assert now.differences(identity) == []
    assert arac.ARAC("Hopper-v5").description.differences(identity)
