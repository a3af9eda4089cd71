"""Counts and files of the benchmarks; their times are not tested."""

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from arac.errors import EnvironmentFailure, exit_status
from arac.learning import jit
from benchmarks.speed import parts as bench
from benchmarks.speed.__main__ import main
from benchmarks.speed.picture import draw
from benchmarks.speed.products import Product, products_loop, products_of
from benchmarks.speed.profile import NAMES, parts_of, watched
from benchmarks.speed.turns import ours, processes_by_turns
from benchmarks.speed.updates import cases_of


def test_products_are_counted_once_and_only_where_they_are_needed():
    x, weight = jnp.ones((4, 3)), jnp.ones((3, 2))

    def step():
        unused = x.T @ x
        del unused
        once, again = x @ weight, x @ weight
        batched = jax.vmap(jnp.matmul)(jnp.ones((5, 4, 3)), jnp.ones((5, 3, 2)))
        return once + again, batched

    assert sorted(products_of(step)) == [Product(1, 4, 3, 2), Product(5, 4, 3, 2)]


def test_a_gradients_products_are_those_of_backpropagation():
    x, weights = jnp.ones((4, 3)), (jnp.ones((3, 8)), jnp.ones((8, 2)))
    found = products_of(lambda: jax.grad(lambda w: jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]).sum())(weights))
    as_they_are = {(4, 3, 8), (4, 8, 2)}
    for_weights, for_hidden = {(3, 4, 8), (8, 4, 2)}, {(4, 2, 8)}
    expected = as_they_are | for_weights | for_hidden
    assert len(found) == len(expected)
    either_way = {tuple(p[1:]) for p in found} | {tuple(p.mirrored[1:]) for p in found}
    assert expected <= either_way


def test_a_products_floating_point_operations():
    assert Product(2, 3, 5, 7).flops == 2 * 2 * 3 * 5 * 7


def test_the_products_alone_run():
    jax.block_until_ready(products_loop([Product(1, 4, 3, 2), Product(2, 4, 4, 4)])(3))


@pytest.mark.slow
def test_an_operation_belongs_to_the_function_that_it_comes_from():
    cases = {case.name: case for case in cases_of("Hopper")}
    parts = parts_of(cases["5 actors with AR"].text())
    assert set(parts.values()) == set(NAMES)
    products = [name for name, part in parts.items() if part == "products"]
    assert len(products) >= len(set(cases["5 actors with AR"].products))
    without = parts_of(cases["critic"].text())
    assert len(without) < len(parts)
    flows = [sum(part == "flows" for part in of.values()) for of in (parts, without)]
    assert flows[0] > 2 * flows[1] > 0, "each elite inverts its archived policies' flows, the critic has one policy's"


def test_operations_are_watched_as_often_as_they_run():
    weight = jnp.full((64, 64), 0.01)
    loop = jit.compiled(lambda n, x: jax.lax.fori_loop(0, n, lambda _, x: jnp.tanh(x @ weight), x), static=())
    start = jnp.ones((64, 64))
    jax.block_until_ready(loop(1, start))
    parts = parts_of(loop.lower(1, start).compile().as_text())
    [product] = [name for name, part in parts.items() if part == "products"]
    times = [nanoseconds for name, nanoseconds in watched(lambda: loop(7, start)) if name == product]
    assert len(times) == 7
    assert all(time > 0 for time in times)


@pytest.mark.slow
def test_contenders_take_turns():
    task = ours(
        "Pendulum-v1", "sac", stretch=200, warmup=200, hidden_size=8, batch_size=8, replay_capacity=1000,
        eval_interval=10**9, eval_episodes=1, workers=0,
    )  # fmt: skip
    [turns] = processes_by_turns({"arac": task}, 2).values()
    assert [turn.steps for turn in turns] == [200, 200]
    assert all(turn.seconds > 0 and turn.peak_bytes > 10**6 for turn in turns)


@pytest.mark.slow
def test_a_contenders_memory_is_its_own():
    held = b"x" * 800_000_000
    command = [sys.executable, "-c", "from benchmarks.speed.contender import peak_bytes; print(peak_bytes())"]
    peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert 10**6 < peak < len(held)


def test_a_contender_that_fails_says_why():
    with pytest.raises(EnvironmentFailure, match="NoSuchTask"):
        processes_by_turns({"arac": ours("NoSuchTask-v0", "sac", stretch=1, warmup=1)}, 1)


def test_rows_are_printed_and_kept_and_other_parts_stay(tmp_path, monkeypatch, capsys):
    part = bench.Part(
        "title", "head", lambda row: f"line {row['start']}", lambda *_: iter([{"start": 1, "seconds": 2}])
    )
    monkeypatch.setitem(bench.PARTS, "start", part)
    (tmp_path / "bench.json").write_text(json.dumps({"other": {"rows": []}}))
    bench.run(["start"], tmp_path, tmp_path / "python", bench.QUICK)
    said = capsys.readouterr().out
    assert "1 of 1: title" in said
    assert "line 1" in said
    kept = json.loads((tmp_path / "bench.json").read_text())
    assert kept["start"]["rows"] == [{"start": 1, "seconds": 2}]
    assert kept["start"]["quick"]
    assert kept["start"]["machine"]["versions"]["jax"] == jax.__version__
    assert "other" in kept
    assert (tmp_path / "bench.png").stat().st_size > 1000


def test_a_picture_of_everything(tmp_path):
    names = "collect", "critic", "actors", "evaluate", "save", "other"
    rows = {
        "updates": [{"task": "Hopper", "update": kind, "ratio": 0.9} for kind in ("critic", "5 actors")],
        "peers": [{"task": "Hopper-v5", "what": "SAC", "library": name, "ms_per_step": 5.0}
                  for name in ("arac", "sbx", "stable_baselines3")],
        "growth": [{"what": what, "size": size, "ratio": 1.0} for what in ("members", "replay", "workers")
                   for size in (1, 2)],
        "profile": [{"task": "Hopper", "update": "critic", "shares": dict.fromkeys(NAMES, 1 / len(NAMES))}],
        "start": [{"start": 1, "seconds": 8.0}, {"start": 2, "seconds": 3.0}],
        "phases": [{"task": "Hopper-v5", "shares": dict.fromkeys(names, 1 / 6)}],
    }  # fmt: skip
    draw({name: {"rows": of} for name, of in rows.items()}, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "said"),
    [(["nonsense"], "nonsense"), (["peers", "--peers", "no/python"], "`make bench-peers` sets the peers up")],
)
def test_a_mistake_is_one_sentence(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench.updates, "peak_gflops", lambda rounds: 1.0)
    assert exit_status(lambda: main(words)) == 2
    assert said in capsys.readouterr().err


def test_what_is_compiled_is_kept_where_the_user_wants_it(tmp_path, monkeypatch):
    set_ = {}
    monkeypatch.setattr(jax.config, "update", lambda name, value: set_.update({name: value}))
    jit.keep_between_runs()
    assert set_ == {}, "a folder that is set already stays"
    monkeypatch.setattr(type(jax.config), "jax_compilation_cache_dir", None, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jit.keep_between_runs()
    folder = set_["jax_compilation_cache_dir"]
    assert folder.startswith(str(tmp_path / "arac" / "compiled-"))
    set_.clear()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    jit.keep_between_runs()
    assert set_ == {}, "without a folder nothing is kept"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", raising(RuntimeError("Could not determine home directory.")))
    jit.keep_between_runs()
    assert set_ == {}, "nor does it need a home"


def raising(error):
    def function():
        raise error

    return function


def test_an_option_that_xla_does_not_know_is_left_out(monkeypatch):
    jit._known_options.cache_clear()
    monkeypatch.setattr(jit, "_OPTIONS", {"xla_no_such_option": "1"})
    try:
        assert jit._known_options() is None
    finally:
        jit._known_options.cache_clear()


@pytest.mark.parametrize("name", ["demonstration", "saving", "scaling", "against_sb3"])
def test_every_benchmark_is_a_module(name):
    """Each runs as `python -m benchmarks.NAME`; `against_sb3` needs Stable-Baselines3."""
    assert importlib.util.find_spec(f"benchmarks.{name}") is not None
    if name != "against_sb3":
        importlib.import_module(f"benchmarks.{name}")
