"""What benchmarks say of their slices, on figures made up so that it can be worked out by hand."""

from __future__ import annotations

from typing import Any

import overhead
import pytest
from side_by_side_summary import summaries


def answer(seconds: float, prep: float) -> dict[str, Any]:
    return {
        "seconds_without_start": seconds,
        "stalls": {"prep": prep},
        "half_widths": {"prep": 0.002},
    }


def repeat(reference: float, stash: float, bursts: bool = False) -> dict[str, Any]:
    """The truth is 10 ms. After 10 iterations and 3 rounds both were off by 2 ms more."""
    first, last = answer(7.5, reference + 0.002), answer(30.0, reference)
    few, all_of_them = answer(6.0, stash + 0.002), answer(21.0, stash)
    return {
        "case": "cpu",
        "bursts": bursts,
        "truth": {"prep": 0.010},
        "reference": {"seconds": 40.0, "answers": {"10": first, "50": last}},
        "stash": {"seconds": 31.0, "answers": {"3": few, "20": all_of_them}},
    }


def test_errors_and_times_of_both_methods_and_of_one_over_the_other() -> None:
    lines = [repeat(0.013, 0.010), repeat(0.006, 0.013)]  # off by 3 and 0 ms; by -4 and 3
    (told,) = summaries(lines)
    assert (told["case"], told["bursts"], told["repeats"]) == ("cpu", False, 2)
    first, last = told["reference"]["10"], told["reference"]["50"]
    assert last["rms_error_ms"]["prep"] == pytest.approx(12.5**0.5, abs=1e-3)
    assert last["mean_error_ms"] == {"prep": -0.5}
    assert (last["seconds"], last["seconds_without_start"]) == (40, 30)
    assert (first["mean_error_ms"], first["seconds_without_start"]) == ({"prep": 1.5}, 7.5)
    assert first["seconds"] == 17.5  # it would have started as often
    own = told["stash"]["20"]
    assert own["rms_error_ms"]["prep"] == pytest.approx(4.5**0.5, abs=1e-3)
    assert own["half_width_ms"] == {"prep": 2.0}
    assert own["inside_interval"] == {"prep": 1}
    assert told["stash"]["3"]["mean_error_ms"] == {"prep": 3.5}
    few, over = (told["stash_over_reference"][count] for count in ("3", "20"))
    assert (over["seconds"], over["seconds_without_start"]) == (0.775, 0.7)
    assert (few["seconds"], few["seconds_without_start"]) == (0.4, 0.2)
    assert over["rms_error"]["prep"] == [0.6, None, None]  # 4.5 over 12.5, squared


def test_an_answer_that_some_repeats_lack_is_held_against_the_other_of_those_that_have_it() -> None:
    lines = [repeat(0.030, 0.010), repeat(0.013, 0.010)]
    del lines[0]["stash"]["answers"]["3"]
    (told,) = summaries(lines)
    assert list(told["stash"]) == ["3", "20"]  # though it came second
    assert [answer["repeats"] for answer in told["stash"].values()] == [1, 2]
    over = told["stash_over_reference"]["3"]
    assert over["rms_error"]["prep"] == [pytest.approx(2 / 3, abs=1e-3), None, None]
    assert (over["seconds"], over["seconds_without_start"]) == (0.4, 0.2)


def test_one_repeat_that_went_wrong_makes_the_mean_of_squares_but_not_the_middle() -> None:
    off = [0.011, 0.008, 0.110]  # by 1, -2 and 100 ms
    (told,) = summaries([repeat(reference, 0.011) for reference in off])
    last, over = told["reference"]["50"], told["stash_over_reference"]["20"]
    assert last["middle_error_ms"]["prep"] == pytest.approx(2.0)
    assert last["rms_error_ms"]["prep"] == pytest.approx((10005 / 3) ** 0.5, abs=1e-3)
    assert over["middle_error"]["prep"][0] == 0.5


def test_repeats_are_drawn_again_in_pairs_where_there_are_enough() -> None:
    lines = [repeat(0.013, 0.010), repeat(0.006, 0.013)] * 5
    (told,) = summaries(lines)
    ratio, low, high = told["stash_over_reference"]["20"]["rms_error"]["prep"]
    assert ratio == 0.6
    assert 0.0 < low < 0.5 and 0.65 < high < 0.75  # 0 over 3 in all draws, or 3 over 4


def test_a_quiet_machine_and_a_loaded_one_are_told_apart() -> None:
    lines = [repeat(0.010, 0.020), repeat(0.010, 0.020, bursts=True)]
    quiet, loaded = summaries(lines)
    assert (quiet["bursts"], loaded["bursts"]) == (False, True)
    assert quiet["stash_over_reference"]["20"]["rms_error"]["prep"][0] == float("inf")


def a_slice(engine: float, peer: float | None = None) -> dict[str, Any]:
    """Six rounds of a drifting machine; the engine and the peer take so much longer."""
    bare = [0.1, 0.2, 0.1, 0.2, 0.1, 0.2]
    sides = {"bare": bare, "engine": [engine * t for t in bare]}
    if peer is not None:
        sides["traceml"] = [peer * t for t in bare]
    name = None if peer is None else "traceml"
    told = {"case": "conv", "peer": name, "block_seconds": 0.5}
    return told | {"seconds": sides, "processor_seconds": sides}


def test_overhead_is_a_ratio_within_rounds() -> None:
    (told,) = overhead.summaries([a_slice(1.005)] * 2)
    assert told["engine"] == {"ratio": 1.005, "low": 1.005, "high": 1.005, "passed": True}
    assert told["engine_processor"] == told["engine"]
    assert (told["pairs"], told["iteration_ms"], told["bound"]) == (12, 150.0, 1.02)
    (told,) = overhead.summaries([a_slice(1.03)] * 2)
    assert not told["engine"]["passed"]
    (told,) = overhead.summaries([a_slice(1.005)])  # of where a model lies it says nothing
    assert not told["engine"]["passed"]


def test_launches_are_the_unit_however_many_rounds_they_have() -> None:
    ratios = [1.00, 1.01, 1.02, 1.03, 1.04]
    (told,) = overhead.summaries([a_slice(r) for r in ratios])
    assert (told["launches"], told["pairs"], told["engine"]["ratio"]) == (5, 30, 1.02)
    # Winsorised: 1.01 1.01 1.02 1.03 1.03; three are kept: 4.303 * 0.01 * sqrt(4 / (3 * 2)).
    half_width = (told["engine"]["high"] - told["engine"]["low"]) / 2
    assert half_width == pytest.approx(0.0351, abs=2e-4)


def test_one_launch_that_the_machine_disturbed_moves_nothing() -> None:
    (told,) = overhead.summaries([a_slice(r) for r in [1.001] * 5 + [1.4]])
    assert told["engine"]["ratio"] == 1.001


def test_an_interval_too_wide_to_tell_shows_nothing() -> None:
    (narrow,) = overhead.summaries([a_slice(r) for r in (1.000, 1.001, 1.002)])
    (wide,) = overhead.summaries([a_slice(r) for r in (0.95, 0.96, 0.97)])
    assert narrow["engine"]["passed"] and narrow["engine_processor"]["passed"]
    assert wide["engine"]["high"] < wide["bound"] and not wide["engine"]["passed"]


def test_a_peer_is_told_beside_the_engine() -> None:
    (told,) = overhead.summaries([a_slice(1.01, peer=1.05)] * 2)
    assert (told["engine"]["ratio"], told["peer"], told["tool"][0]) == (1.01, "traceml", 1.05)
    assert told["engine_less_tool"] == [-0.04, -0.04, -0.04]
    assert told["engine_less_tool_processor"] == [-0.04, -0.04, -0.04]


def test_launches_that_a_peer_brought_down_are_counted_apart() -> None:
    died = {"case": "conv", "peer": "traceml", "block_seconds": 0.5, "died": True}
    (told,) = overhead.summaries([a_slice(1.01, peer=1.05), died, a_slice(1.01, peer=1.05)])
    assert (told["launches"], told["died"], told["engine"]["ratio"]) == (2, 1, 1.01)
    (told,) = overhead.summaries([died])
    assert (told["launches"], told["died"], "engine" in told) == (0, 1, False)


def test_launches_that_were_made_in_another_way_or_elsewhere_are_told_apart() -> None:
    ways = [
        {"block_seconds": 0.15},
        {"block_seconds": 0.5},
        {"block_seconds": 0.5, "cpu": "slow"},
        {"block_seconds": 0.5, "cpu": "fast"},
    ]
    told = list(overhead.summaries([a_slice(1 + n / 100) | way for n, way in enumerate(ways)]))
    assert [(one["block_seconds"], one["cpu"], one["engine"]["ratio"]) for one in told] == [
        (0.15, None, 1.00),
        (0.5, None, 1.01),
        (0.5, "fast", 1.03),
        (0.5, "slow", 1.02),
    ]


def test_whose_model_is_built_first_is_balanced_over_all_slices_that_are_told_together() -> None:
    kept = [a_slice(1.0) | {"first": first} for first in ("bare", "engine", "bare")]
    kept += [a_slice(1.0) | {"first": "engine", "cpu": "another"} for _ in range(4)]
    assert overhead._rarer_first(kept, overhead._key(kept[0])) == "engine"
    assert overhead._rarer_first([], overhead._key(kept[0])) == "bare"
