"""The short version of `make torture`: a few kills of every algorithm."""

import pytest
from torture import torture

from arac.algorithms import ALGORITHMS


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_that_was_killed_anywhere_ends_with_the_same_bytes(algorithm):
    report = torture(algorithm, kills=2, seed=list(ALGORITHMS).index(algorithm))
    assert report.faults == []
    assert report.kills.total() == 2
    assert (report.identical, report.orphans) == (report.runs, 0)
