"""Student's t without scipy, against scipy's."""

from __future__ import annotations

import pytest
from scipy.special import stdtr, stdtrit

from stash.results.student import below, quantile

FREEDOMS = (1, 2, 3, 4, 5, 6, 11, 12, 65, 120, 1999)


@pytest.mark.parametrize("degrees_of_freedom", FREEDOMS)
def test_quantiles_are_those_of_scipy(degrees_of_freedom: int) -> None:
    for probability in (0.025, 0.2, 0.6, 0.8, 0.975, 0.995, 0.9999):
        exact = float(stdtrit(degrees_of_freedom, probability))
        assert quantile(probability, degrees_of_freedom) == pytest.approx(exact, rel=1e-10)
    assert quantile(0.5, degrees_of_freedom) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("degrees_of_freedom", FREEDOMS)
def test_probabilities_are_those_of_scipy(degrees_of_freedom: int) -> None:
    for t in (-9.0, -0.5, 0.0, 0.7, 2.0, 30.0):
        assert below(t, degrees_of_freedom) == pytest.approx(
            float(stdtr(degrees_of_freedom, t)), abs=1e-12
        )
