"""The terminal's display of a run: pace, time left, the curve at the end."""

import jax
import jax.numpy as jnp
import pytest

from arac.analysis.run_curve import in_terminal
from arac.learning.jit import timed_compiling
from arac.training import display
from arac.training.display import Pace


class Clock:
    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(display.time, "monotonic", lambda: self.now)


def test_the_time_left_counts_neither_warm_up_nor_compiling(monkeypatch):
    clock, compiled = Clock(monkeypatch), [0.0]
    pace = Pace(0, 10_000, 1000, lambda: compiled[0])
    clock.now += 1
    pace.step(1000)  # a warm-up of a second
    assert pace.seconds_left is None
    clock.now += 40
    compiled[0] += 30
    pace.step(2000)  # ten seconds of work
    assert pace.steps_per_second == pytest.approx(100)
    assert pace.seconds_left == pytest.approx(80)
    clock.now += 5
    assert pace.seconds_left == pytest.approx(75)
    assert str(pace) == "2,000 / 10,000 steps · 100 steps/s · 1:15 left"


def test_compiling_is_timed_while_it_is_asked_for():
    with timed_compiling() as seconds:
        assert seconds() == 0
        jax.jit(lambda x: jnp.sin(x) + 3)(jnp.ones(7)).block_until_ready()
        first = seconds()
        assert first > 0
    jax.jit(lambda x: jnp.sin(x) + 4)(jnp.ones(7)).block_until_ready()
    assert seconds() == first


def test_a_curve_in_characters():
    assert in_terminal([0, 1000, 2000], [0.0, 100.0, 50.0], width=18, height=4).splitlines() == [
        "100 ┤     ▃█▆▃▁   ",
        "    ┤   ▁▆█████▆▃▁",
        "    ┤  ▃██████████",
        "  0 ┤▁▆███████████",
        "    └─────────────",
        "     0 2,000 steps",
    ]


@pytest.mark.parametrize("returns", [[5.0, 5.0], [-3.0, -1000.0], [1e-9, 2e9]])
@pytest.mark.parametrize("width", [1, 40, 80])
def test_any_curve_fits_into_its_width(returns, width):
    lines = in_terminal([10_000, 20_000], returns, width=width).splitlines()
    assert len(lines) == 12
    assert max(map(len, lines)) <= max(width, 40)
