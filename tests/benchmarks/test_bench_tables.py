"""Tables on the page of benchmarks are those of the slices that are kept beside the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bench_tables
import overhead
import pytest
import side_by_side

PAGE = Path(__file__).parents[2] / "docs" / bench_tables.PAGE


def test_the_page_has_the_tables_that_its_slices_give() -> None:
    text, made = PAGE.read_text(), bench_tables.tables()
    command = "python benchmarks/bench_tables.py --write docs"
    assert bench_tables.with_tables(text, made) == text, command
    assert {name for _, name, _ in bench_tables.MARKED.findall(text)} == set(made)


@pytest.mark.parametrize(
    ("low", "high", "processor_high", "verdict"),
    [
        (1.001, 1.009, 1.5, "met"),
        (0.95, 1.03, 1.009, "met in processor time"),
        (0.95, 1.019, 1.5, "below it, interval too wide"),
        (0.95, 1.03, 1.5, "missed"),
        (1.029, 1.031, 1.009, "missed"),  # the clock is sure of it
        (1.025, 1.065, 1.009, "missed"),
        (None, None, 1.5, "missed"),
    ],
)
def test_a_case_is_met_by_the_clock_or_else_in_processor_time(
    low: float | None, high: float | None, processor_high: float, verdict: str
) -> None:
    one = {
        "case": "conv",
        "bound": 1.02,
        "engine": {"low": low, "high": high, "passed": overhead._shows(low, high, "conv", 9)},
        "engine_processor": {"passed": overhead._shows(1.0, processor_high, "conv", 9)},
    }
    assert bench_tables._verdict(one) == verdict


def a_launch(engine: float | None, tool: float = 1.1) -> dict[str, Any]:
    """One in which all iterations of a side last equally long; or one that crashed."""
    told = {"case": "conv", "peer": "torch-profiler", "block_seconds": 0.5}
    if engine is None:
        return told | {"died": True}
    seconds = {"bare": [1.0] * 4, "engine": [engine] * 4, "torch-profiler": [tool] * 4}
    return told | {"seconds": seconds, "processor_seconds": seconds}


@pytest.mark.parametrize(
    ("launches", "row"),
    [
        ([None], "| 0 | 1 | | | | | |"),
        ([1.02], "| 1 | 0 | 1.1000 | 1.0200 | -0.0800 | -0.0800 | |"),
        (
            [1.02, 1.02],
            "| 2 | 0 | 1.1000 (1.1000 to 1.1000) | 1.0200 (1.0200 to 1.0200) "
            "| -0.0800 (-0.0800 to -0.0800) | -0.0800 (-0.0800 to -0.0800) | no |",
        ),
        (
            [1.2, None, 1.2],
            "| 2 | 1 | 1.1000 (1.1000 to 1.1000) | 1.2000 (1.2000 to 1.2000) "
            "| +0.1000 (+0.1000 to +0.1000) | +0.1000 (+0.1000 to +0.1000) | yes |",
        ),
    ],
)
def test_other_tools_are_told_with_the_launches_that_crashed(
    launches: list[float | None], row: str
) -> None:
    costs = list(overhead.summaries([a_launch(engine) for engine in launches]))
    *_, last = bench_tables.tools(costs).splitlines()
    assert last == "| `tinycnn` on CPUs, batch 8 | `torch.profiler` | not noted " + row


def test_an_answer_that_no_repeat_has_leaves_its_cell_empty_and_fewer_repeats_are_told() -> None:
    answer = {"rms_error_ms": {"prep": 2.0}, "repeats": 2}
    over = {"rms_error": {"prep": [0.5, 0.25, 0.75]}}
    one = {"repeats": 3, "stash": {"4": answer}, "stash_over_reference": {"4": over}}
    assert bench_tables._error(one, "3", "prep", "rms") == ""
    told = "2.00 ms; 0.50 (0.25 to 0.75)"
    assert bench_tables._error(one, "4", "prep", "rms") == f"{told} in 2 repeats"
    answer["repeats"] = 3
    assert bench_tables._error(one, "4", "prep", "rms") == told
    told_after = bench_tables._counts([{"stash": {"20": answer}}, {"stash": {"4": answer}}])
    assert told_after == ["4", "20"]


def test_times_are_told_of_repeats_whose_workers_were_started_as_now() -> None:
    now, before = {"start": side_by_side.START}, {"start": "torchrun"}
    assert bench_tables.started_as_now([before, now]) == [now]


def test_only_a_signal_that_torchrun_did_not_send_is_a_crash() -> None:
    line = "  exitcode  : {} (pid: 7)"
    assert overhead._crashed(line.format(-11))
    assert overhead._crashed(line.format(-15) + "\n" + line.format(-11))
    assert not overhead._crashed(line.format(1) + "\n" + line.format(-15))
    assert not overhead._crashed("")
