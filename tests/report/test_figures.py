"""How numbers are written: the digits that their interval justifies, and no more."""

from __future__ import annotations

import pytest

from stash.report.figures import (
    duration,
    figure,
    format_with_interval,
    large_count,
    plain,
    price_figure,
    size_in_bytes,
    time_unit,
)
from stash.results.document import Interval


@pytest.mark.parametrize(
    ("estimate", "low", "high", "unit", "written"),
    [
        # The half-width's first digit decides; its second one where the first is 1.
        (24.123, 20.0, 28.2, "ms", "24 ms (20 to 28)"),
        (24.123, 23.8, 24.46, "ms", "24.1 ms (23.8 to 24.5)"),
        (24.123, 22.9, 25.3, "ms", "24.1 ms (22.9 to 25.3)"),
        (24.123, 24.111, 24.135, "ms", "24.123 ms (24.111 to 24.135)"),
        (1234.5, 1190.0, 1279.0, "ms", "1230 ms (1190 to 1280)"),
        (1234.5, 434.5, 2034.5, "ms", "1200 ms (400 to 2000)"),
        (5.0, -295.0, 305.0, "ms", "0 ms (-300 to 300)"),
        (-0.2, -4.0, 3.6, "%", "0 % (-4 to 4)"),
        (-3.04, -5.1, -1.0, "%", "-3 % (-5 to -1)"),
        (38.2, 35.1, 41.4, "%", "38 % (35 to 41)"),
        (4.651, 4.3, 5.0, "$", "$4.7 (4.3 to 5.0)"),
        (-4.651, -5.0, -4.3, "$", "-$4.7 (-5.0 to -4.3)"),
        (0.000123, 0.000120, 0.000126, "s", "0.000123 s (0.000120 to 0.000126)"),
        # A number without an interval gets two digits, an exact one three, none more than five.
        (24.123, None, None, "ms", "24 ms"),
        (0.0, None, None, "ms", "0 ms"),
        (24.123, 24.123, 24.123, "ms", "24.1 ms (24.1 to 24.1)"),
        (0.0, 0.0, 0.0, "%", "0 % (0 to 0)"),
        (123.456789, 123.456788, 123.45679, "ms", "123.46 ms (123.46 to 123.46)"),
        (1.23456e15, 1.2e15, 1.3e15, "ms", "1.23e+15 ms (1.2e+15 to 1.3e+15)"),
        (24.0, 20.0, 28.0, "", "24 (20 to 28)"),
    ],
)
def test_digits_follow_the_interval(
    estimate: float, low: float | None, high: float | None, unit: str, written: str
) -> None:
    assert format_with_interval(estimate, low, high, unit) == written


def test_a_lopsided_interval_counts_by_its_wider_side() -> None:
    assert format_with_interval(24.12, 24.0, 32.0, "ms") == "24 ms (24 to 32)"


def test_a_missing_interval_is_said() -> None:
    assert figure(Interval(estimate=1.0, low=None, high=None)).range == "no interval"


@pytest.mark.parametrize(
    ("seconds", "unit"), [(100.0, "s"), (10.0, "s"), (9.9, "ms"), (0.001, "ms"), (0.0009, "us")]
)
def test_tables_choose_a_unit_that_reads_well(seconds: float, unit: str) -> None:
    assert time_unit(seconds)[0] == unit


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 s"), (59.0, "59 s"), (252.0, "4.2 min"), (9000.0, "2.5 h"), (1e6, "12 days")],
)
def test_durations_are_short(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0"), (10_000, "10000"), (128_000, "128 k"), (11_689_512, "11.7 M"), (10**9, "1.00 B")],
)
def test_large_counts_are_short(count: int, words: str) -> None:
    assert large_count(count) == words


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (999, "999 B"), (25_600_000, "26 MB"), (133e9, "133 GB")]
)
def test_sizes_are_in_the_units_that_disks_are_sold_in(count: float, words: str) -> None:
    assert size_in_bytes(count) == words


@pytest.mark.parametrize(
    ("number", "text"), [(153.2, "150"), (0.00421, "0.0042"), (99.7, "100"), (2.0, "2.0")]
)
def test_a_number_without_an_interval_has_no_exponent(number: float, text: str) -> None:
    assert plain(number) == text


@pytest.mark.parametrize(
    ("usd", "text"), [(24.48, "24.48"), (0.0, "0.00"), (0.0042, "0.0042"), (0.12, "0.12")]
)
def test_a_price_is_never_written_as_nothing(usd: float, text: str) -> None:
    assert price_figure(usd) == text
