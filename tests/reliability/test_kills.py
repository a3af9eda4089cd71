"""The short version of `make torture`: a run is killed in a torn write, and again before it saved anything.

It has one algorithm of each kind; `make torture` has all of them.
"""

import numpy as np
import pytest
from torture import Torturer

from arac.algorithms.registry import ALGORITHMS

LETTER = ("--preset", "paper-letter", "--noise-hold", "8")
ARCHIVE = ("--ar-from", "archive", "--ar-base", "own", "--noise-hold", "8")


@pytest.mark.parametrize(
    ("algorithm", "options", "steps"),
    [
        ("sac", (), 500),  # less than replay holds, to be quick
        *(
            pytest.param(name, options, 1100, marks=pytest.mark.slow)  # more than replay holds
            for name, options in (("arac", ()), ("arac", LETTER), ("arac", ARCHIVE), ("cem_td3", ()), ("cerl", ()))
        ),
    ],
)
def test_a_run_that_was_killed_anywhere_ends_with_the_same_bytes(algorithm, options, steps, tmp_path):
    rng = np.random.default_rng(list(ALGORITHMS).index(algorithm))
    torturer = Torturer(algorithm, tmp_path, rng, steps=steps, workers=1, options=options)
    torturer.reference()
    torturer.run_to_its_end("run1", ["in a torn write", "early"])
    report = torturer.report
    assert report.faults == []
    assert report.kills == {"in a torn write": 1, "early": 1}
    assert report.in_a_row >= 1
    assert (report.identical, report.orphans) == (1, 0)
