"""Tables on the page of benchmarks are those of the slices that are kept beside the code."""

from __future__ import annotations

from pathlib import Path

import bench_tables
import pytest

PAGE = Path(__file__).parents[2] / "docs" / bench_tables.PAGE


def test_the_page_has_the_tables_that_its_slices_give() -> None:
    text = PAGE.read_text()
    assert bench_tables.with_tables(text) == text
    assert bench_tables.MARKED.findall(text)


@pytest.mark.parametrize(
    ("low", "high", "processor_high", "verdict"),
    [
        (1.001, 1.009, 1.5, "met"),
        (0.95, 1.03, 1.009, "met in processor time"),
        (0.95, 1.019, 1.5, "below it, interval too wide"),
        (0.95, 1.03, 1.5, "missed"),
    ],
)
def test_a_case_is_met_by_the_clock_or_else_in_processor_time(
    low: float, high: float, processor_high: float, verdict: str
) -> None:
    import overhead

    one = {
        "bound": 1.02,
        "engine": {"high": high, "passed": overhead._shows(low, high, "conv", 9)},
        "engine_processor": {"passed": overhead._shows(1.0, processor_high, "conv", 9)},
    }
    assert bench_tables._verdict(one) == verdict
