"""Estimates, shares and their doubts on a few numbers, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from stash.results import statistics
from stash.results.statistics import Estimate


def sure(value: float, error: float | None, freedom: int = 10) -> Estimate:
    return Estimate(value, value, False, error, freedom)


def test_an_interval_and_the_smallest_detectable_follow_from_the_standard_error() -> None:
    found = sure(5.0, 2.0)
    t, power = float(stats.t.ppf(0.975, 10)), float(stats.t.ppf(0.8, 10))
    assert found.half_width == pytest.approx(2 * t)
    assert (found.low, found.high) == pytest.approx((5 - 2 * t, 5 + 2 * t))
    assert found.detectable == pytest.approx(2 * (t + power))


@pytest.mark.parametrize(
    ("value", "error", "significant"),
    [(0.0, 0.0, False), (1.0, 0.0, True), (-1.0, 0.0, True), (0.5, 1.0, False), (9.0, 1.0, True)],
)
def test_only_what_excludes_zero_is_significant(
    value: float, error: float, significant: bool
) -> None:
    assert sure(value, error).significant is significant


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_interval_that_ends_at_zero_holds_it(sign: float) -> None:
    error = 0.5
    edge = sure(0.0, error).half_width
    assert edge is not None and not sure(sign * edge, error).significant


def test_one_round_is_a_value_and_nothing_else() -> None:
    assert statistics.estimate([[3.0]]) == Estimate(3.0, 3.0, False, None, 0)
    assert statistics.plain_mean([[3.0]]) == Estimate(3.0, 3.0, False, None, 0)
    assert statistics.estimate([[3.0]], iteration_seconds=1.0) == Estimate(3.0, 3.0, False, None, 0)


def test_two_rounds_have_an_interval() -> None:
    for found in (statistics.estimate([[1.0, 3.0]]), statistics.plain_mean([[1.0, 3.0]])):
        assert (found.value, found.mean, found.standard_error) == pytest.approx((2.0, 2.0, 1.0))
        assert found.degrees_of_freedom == 1


def test_a_plain_mean_counts_everything_and_calls_nothing_intermittent() -> None:
    found = statistics.plain_mean([[0.0, 0.0, 0.0, 0.0, 10.0]])
    assert (found.value, found.standard_error) == pytest.approx((2.0, 2.0))
    assert (found.degrees_of_freedom, found.intermittent) == (4, False)


def test_launches_without_rounds_count_for_nothing() -> None:
    found = statistics.estimate([[], [1.0, 1.0], [], [3.0]])
    assert (found.value, found.standard_error, found.degrees_of_freedom) == (2.0, 1.0, 1)


def test_two_launches_are_enough_to_be_the_unit() -> None:
    found = statistics.estimate([[1.0] * 6, [5.0] * 6])
    assert (found.value, found.standard_error) == pytest.approx((3.0, 2.0))
    assert found.degrees_of_freedom == 1


def test_a_trimmed_mean_leaves_out_a_fifth_at_each_end() -> None:
    assert statistics.trimmed_mean([9.0, 0.0]) == 4.5  # two: nobody
    assert statistics.trimmed_mean([9.0, 0.0, 1.0]) == 1.0  # three: one each
    assert statistics.trimmed_mean([9.0, 0.0, 1.0, 2.0]) == 1.5
    assert statistics.trimmed_mean([9.0, 0.0, 1.0, 2.0, 3.0]) == 2.0  # five: one each
    assert statistics.trimmed_mean([0.0] * 2 + [4.0] * 6 + [100.0] * 2) == 4.0


def test_the_doubt_of_a_share_is_that_of_its_residuals() -> None:
    # 2 of 6, the medians, is a third; each numerator less a third of its denominator: -1/3, 0, 0.
    found = statistics.ratio([[1.0, 2.0, 3.0]], [[4.0, 6.0, 9.0]])
    assert (found.value, found.mean) == pytest.approx((1 / 3, 6 / 19))
    assert found.standard_error == pytest.approx(1.1602 * (1 / 18) / math.sqrt(3) / math.sqrt(3))
    assert (found.degrees_of_freedom, found.intermittent) == (2, False)


@pytest.mark.parametrize("of", ["numerator", "denominator"])
def test_a_share_whose_one_part_is_intermittent_keeps_its_whole_spread(of: str) -> None:
    rare, steady = [0.0, 0.0, 0.0, 0.0, 10.0], [2.0] * 5
    if of == "numerator":
        found = statistics.ratio([rare], [steady], intermittent=True)
        value, residuals = 1.0, [(t - 2.0) / 2.0 for t in rare]
    else:
        found = statistics.ratio([steady], [rare], base_intermittent=True)
        value, residuals = 1.0, [(2.0 - b) / 2.0 for b in rare]
    assert found.value == pytest.approx(value)
    assert found.standard_error == pytest.approx(np.std(residuals, ddof=1) / math.sqrt(5))
    assert found.intermittent is (of == "numerator")


PARTED = [0.01, 0.02, 0.0, 0.03, 0.01, 0.02, 0.9, 0.0]


def gap_and_error(values: list[float]) -> tuple[float, float]:
    """Mean less trimmed mean, and the standard error of that, from their influence functions."""
    ordered = sorted(values)
    count, cut = len(values), len(values) // 5
    kept = ordered[cut : count - cut]
    gap = sum(values) / count - sum(kept) / len(kept)
    pulled_in = [min(max(v, kept[0]), kept[-1]) for v in values]
    influence = [v - w * count / len(kept) for v, w in zip(values, pulled_in, strict=True)]
    return gap, float(np.std(influence, ddof=1)) / math.sqrt(count)


@pytest.mark.parametrize("values", [PARTED, [*PARTED, *PARTED], [-v for v in PARTED]])
def test_mean_and_trimmed_mean_part_by_standard_errors_of_their_difference(
    values: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    gap, error = gap_and_error(values)
    for factor, parted in ((1 - 1e-6, True), (1 + 1e-6, False)):
        monkeypatch.setattr(statistics, "PARTED_STANDARD_ERRORS", abs(gap) / error * factor)
        assert statistics.estimate([values], iteration_seconds=1.0).intermittent is parted


def test_mean_and_trimmed_mean_part_by_a_hundredth_of_an_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statistics, "PARTED_STANDARD_ERRORS", 0.5)
    gap, error = gap_and_error(PARTED)
    assert gap > 0.5 * error
    for iteration, parted in ((gap * 100 * (1 - 1e-6), True), (gap * 100 * (1 + 1e-6), False)):
        assert statistics.estimate([PARTED], iteration_seconds=iteration).intermittent is parted


def test_fewer_than_five_rounds_have_nothing_to_trim_and_part_with_nothing() -> None:
    assert not statistics.estimate([[0.0, 0.0, 0.0, 9.0]], iteration_seconds=0.1).intermittent


def test_two_standard_errors_and_a_hundredth_are_what_is_asked_for() -> None:
    assert (statistics.PARTED_STANDARD_ERRORS, statistics.PARTED_FRACTION) == (2.0, 0.01)
    assert (statistics.TRIM, statistics.CONFIDENCE, statistics.POWER) == (0.2, 0.95, 0.8)
