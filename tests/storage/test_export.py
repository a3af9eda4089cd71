"""Exported policies act without JAX and without arac, by the example."""

import runpy
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from drawn_agents import drawn

import arac
from arac.agents.classes import AGENTS
from arac.cli import main
from arac.models.mlp import MLP, LayerStyle
from arac.models.policies import FlowPolicy

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/act_without_jax.py"
GOLDEN = ROOT / "tests/golden/format-1"
OBSERVATIONS = np.random.default_rng(0).normal(0, 2, (1000, 4))
# Run the example as a user would, and print the modules that it imported.
WATCHED = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
assert not {"jax", "jaxlib", "arac"} & set(sys.modules), sorted(sys.modules)
"""


def act(path, observation, noise=0.0):
    with np.load(path) as file:
        return runpy.run_path(str(EXAMPLE))["act"](dict(file), observation, noise)


@pytest.mark.parametrize("name", AGENTS)
def test_it_acts_identically_with_neither_jax_nor_arac(name, tmp_path):
    agent = drawn(name)
    agent.export(tmp_path / "policy.npz")
    np.save(tmp_path / "observations.npy", OBSERVATIONS)
    words = [EXAMPLE, "policy.npz", "observations.npy", "actions.npy"]
    subprocess.run([sys.executable, "-I", "-c", WATCHED, *words], cwd=tmp_path, check=True)
    actions, expected = np.load(tmp_path / "actions.npy"), agent.predict(OBSERVATIONS, deterministic=True)[0]
    assert (actions.shape, actions.dtype) == (expected.shape, expected.dtype) == ((1000, 1), np.float32)
    np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-6)
    assert np.ptp(actions) > 0.01, "else it proves little"


@pytest.mark.parametrize("name", AGENTS)
def test_with_noise_and_one_by_one(name, tmp_path):
    agent = drawn(name)
    member = agent.population[-1]
    member.export(tmp_path / "policy.npz")
    noise = np.random.default_rng(1).standard_normal((20, 1), np.float32)
    low, high = agent.env.low, agent.env.high
    expected = low + (member.policy.act(OBSERVATIONS[:20].astype(np.float32), noise) + 1) / 2 * (high - low)
    actions = [act(tmp_path / "policy.npz", *given) for given in zip(OBSERVATIONS[:20], noise, strict=True)]
    np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", get_args(LayerStyle.__annotations__["activation"]))
def test_activations_of_all_kinds(name):
    x = np.linspace(-3, 3, 61, dtype=np.float32)
    expected = MLP((np.eye(61), np.eye(61)), (x, 0 * x), style=LayerStyle(name))(0 * x)
    actions = runpy.run_path(str(EXAMPLE))["ACTIVATIONS"][name](x)
    np.testing.assert_allclose(actions, expected, rtol=1e-6)


@pytest.mark.parametrize(("flows", "sigma"), [(0, None), (3, 0.4), (2, None)])
def test_flows_and_sigmas_of_all_kinds(flows, sigma, tmp_path):
    """The policies are far from their initial parameters, and Hopper has several actions with bounds."""
    import jax

    from arac import envs
    from arac.agents.members import Member
    from arac.models.stacked import to_numpy

    env = envs.check("Hopper-v5")
    policy = FlowPolicy.init(
        jax.random.key(0), env.observation_size, env.action_size, hidden=(8,), flows=flows, sigma=sigma
    )
    moved = jax.tree.map(lambda leaf: leaf + 0.5 * jax.random.normal(jax.random.key(1), leaf.shape), policy)
    member = Member(to_numpy(moved), env, np.random.default_rng(0), None, False)
    member.export(tmp_path / "policy.npz")
    observations, noise = np.random.default_rng(2).normal(size=(50, 11)), np.random.default_rng(0)
    expected, _ = member.predict(observations)
    np.testing.assert_allclose(
        act(tmp_path / "policy.npz", observations, noise.standard_normal((50, 3), np.float32)), expected, atol=1e-5
    )


def test_the_file_says_what_it_is_and_holds_no_pickle(tmp_path):
    arac.load(GOLDEN / "arac.safetensors").export(tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz", allow_pickle=False) as file:
        table = dict(file)
    assert (int(table["format"]), str(table["kind"]), str(table["environment"])) == (1, "flow", "InvertedPendulum-v5")
    assert str(table["version"]) == arac.__version__
    assert table["low"].tolist() == [-3.0]
    assert {"weight_0", "bias_1", "sigma", "flow_centre_2", "flow_alpha_2", "flow_reach_2"} <= table.keys()
    assert not any(array.dtype.hasobject for array in table.values())


def test_the_command_exports_a_run_and_an_agent(tmp_path, capsys):
    for source in (GOLDEN / "sac_nf", GOLDEN / "sac_nf.safetensors"):
        assert main(["export", str(source), str(tmp_path / "policy.npz")]) == 0
        assert "policy.npz" in capsys.readouterr().out
        expected = arac.load(source).predict(OBSERVATIONS, deterministic=True)[0]
        np.testing.assert_allclose(act(tmp_path / "policy.npz", OBSERVATIONS), expected, rtol=1e-5, atol=1e-6)
    assert main(["export", str(tmp_path / "none"), str(tmp_path / "policy.npz")]) == 2


def test_a_place_that_is_none_is_told_in_a_sentence(tmp_path, capsys):
    for place, sentence in (
        (tmp_path / "none" / "policy.npz", f"There is no folder {tmp_path / 'none'}; create it first."),
        (tmp_path, f"{tmp_path} is a folder; give the name of a file."),
    ):
        assert main(["export", str(GOLDEN / "sac_nf"), str(place)]) == 2
        assert capsys.readouterr().err == f"arac: {sentence}\n"
    assert not list(tmp_path.iterdir())
