"""Errors that have nothing to do with each other are not both at their bounds at once."""

import math

import pytest

from stash.predict.uncertainty import Band, band, product, stall_bounds


def test_squares_of_logarithms_add() -> None:
    found = product(Band(math.exp(-3), math.exp(0.3)), Band(math.exp(-4), math.exp(0.4)))
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((-5, 0.5))


def test_an_exact_factor_leaves_the_bounds_of_the_other() -> None:
    found = product(Band(0.5, 3.0), Band(1.0, 1.0))
    assert (found.low, found.high) == pytest.approx((0.5, 3.0))
    assert stall_bounds(0.5, 0.2, 0.9, Band(1.0, 1.0)) == pytest.approx((0.2, 0.9))
    assert stall_bounds(0.5, 0.5, 0.5, Band(0.6, 2.0)) == pytest.approx((0.3, 1.0))


def test_a_step_from_specifications_is_as_uncertain_as_one_worker_and_what_others_add() -> None:
    made_up = {("blind", "solo"): Band(0.5, 2.0), ("blind over solo", "node"): Band(0.5, 2.0)}
    found = band("blind", "node", made_up)
    assert found.high == pytest.approx(2 ** math.sqrt(2))
    assert found.low == pytest.approx(1 / found.high)


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.9), (-0.2, 0.9), (-0.9, -0.1)])
def test_a_stall_in_seconds_reaches_beyond_either_error_and_not_as_far_as_both(
    low: float, high: float
) -> None:
    middle, solo = (low + high) / 2, Band(0.5, 2.0)
    lowest, highest = stall_bounds(middle, low, high, solo)
    ends = [value * factor for value in (low, high) for factor in (solo.low, solo.high)]
    assert min(ends) < lowest < min(low, middle * solo.low, middle * solo.high)
    assert max(high, middle * solo.low, middle * solo.high) < highest < max(ends)
