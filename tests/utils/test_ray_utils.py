"""Messages where the extra Ray is not installed; tests/reliability has real clusters."""

import sys

import pytest

import arac
from arac.utils import ray_utils


def test_a_run_is_not_begun_where_there_is_no_ray(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(arac.UserError, match="Ray is not installed"):
        arac.SAC("Pendulum-v1", workers=0, rollouts="ray").learn(20_000, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_ray_it_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(arac.UserError, match=r"pip install 'arac-rl\[ray\]'"), ray_utils.connected(show_output=True):
        pass
