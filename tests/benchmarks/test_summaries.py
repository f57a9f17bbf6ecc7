"""What benchmarks say of their slices, on figures made up so that it can be worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import overhead
import pytest
from side_by_side_summary import summaries


def answer(seconds: float, prep: float) -> dict[str, Any]:
    return {
        "seconds": 10 + seconds,
        "seconds_without_start": seconds,
        "rounds": 3,
        "stalls": {"prep": prep},
        "half_widths": {"prep": 0.002},
    }


def repeat(reference: float, stash: float, bursts: bool = False) -> dict[str, Any]:
    """The truth is 10 ms; Stash takes 6 s, the other method 30 s. It was off by more earlier on."""
    earlier = {"10": {"seconds_without_start": 7.5, "stalls": {"prep": reference + 0.002}}}
    return {
        "case": "cpu",
        "bursts": bursts,
        "truth": {"prep": 0.010},
        "reference": {**answer(30.0, reference), "earlier": earlier},
        "stash": answer(6.0, stash),
    }


def test_errors_and_times_of_both_methods_and_of_one_over_the_other() -> None:
    lines = [repeat(0.013, 0.010), repeat(0.006, 0.013)]  # off by 3 and 0 ms; by -4 and 3
    (told,) = summaries(lines)
    assert (told["case"], told["bursts"], told["repeats"]) == ("cpu", False, 2)
    assert told["reference"]["rms_error_ms"]["prep"] == pytest.approx(12.5**0.5, abs=1e-3)
    assert told["reference"]["mean_error_ms"] == {"prep": -0.5}
    assert told["reference"]["spread_ms"] == {"prep": 3.5}
    assert (told["reference"]["seconds"], told["reference"]["seconds_without_start"]) == (40, 30)
    earlier = told["reference"]["earlier"]["10"]
    assert (earlier["mean_error_ms"], earlier["seconds_without_start"]) == ({"prep": 1.5}, 7.5)
    assert told["stash"]["rms_error_ms"]["prep"] == pytest.approx(4.5**0.5, abs=1e-3)
    assert told["stash"]["half_width_ms"] == {"prep": 2.0}
    assert told["stash"]["inside_interval"] == {"prep": 1}
    over = told["stash_over_reference"]
    assert (over["seconds"], over["seconds_without_start"]) == (0.4, 0.2)
    # 4.5 over 12.5, squared. With one pair drawn twice it is 0 over 3, or 3 over 4.
    assert over["rms_error"]["prep"] == [0.6, 0.0, 0.75]


def test_a_quiet_machine_and_a_loaded_one_are_told_apart() -> None:
    lines = [repeat(0.010, 0.020), repeat(0.010, 0.020, bursts=True)]
    quiet, loaded = summaries(lines)
    assert (quiet["bursts"], loaded["bursts"]) == (False, True)
    assert quiet["stash_over_reference"]["rms_error"]["prep"][0] == float("inf")


def told_by(slices: list[dict[str, Any]], folder: Path, capsys: Any) -> list[dict[str, Any]]:
    path = folder / "slices.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in slices))
    overhead._summarize(path)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def a_slice(engine: float, peer: float | None = None) -> dict[str, Any]:
    """Six rounds of a drifting machine; the engine and the peer take so much longer."""
    bare = [0.1, 0.2, 0.1, 0.2, 0.1, 0.2]
    sides = {"bare": bare, "engine": [engine * t for t in bare]}
    if peer is not None:
        sides["traceml"] = [peer * t for t in bare]
    name = None if peer is None else "traceml"
    return {"case": "conv", "peer": name, "seconds": sides, "processor_seconds": sides}


def test_overhead_is_a_ratio_within_rounds(tmp_path: Path, capsys: Any) -> None:
    (told,) = told_by([a_slice(1.005)] * 2, tmp_path, capsys)
    assert (told["ratio"], told["low"], told["high"]) == (1.005, 1.005, 1.005)
    assert (told["pairs"], told["iteration_ms"], told["bound"]) == (12, 150.0, 1.02)
    assert told["passed"] and told["processor_ratio"] == 1.005
    (told,) = told_by([a_slice(1.03)] * 2, tmp_path, capsys)
    assert not told["passed"]
    (told,) = told_by([a_slice(1.005)], tmp_path, capsys)  # of where a model lies it says nothing
    assert not told["passed"]


def test_launches_are_the_unit_however_many_rounds_they_have(tmp_path: Path, capsys: Any) -> None:
    ratios = [1.00, 1.01, 1.02, 1.03, 1.04]
    (told,) = told_by([a_slice(r) for r in ratios], tmp_path, capsys)
    assert (told["launches"], told["pairs"], told["ratio"]) == (5, 30, 1.02)
    # Five launches with a standard deviation of 0.0158: 2.776 * 0.0158 / sqrt(5).
    assert (told["high"] - told["low"]) / 2 == pytest.approx(0.0196, abs=2e-4)


def test_an_interval_too_wide_to_tell_shows_nothing(tmp_path: Path, capsys: Any) -> None:
    (narrow,) = told_by([a_slice(r) for r in (1.000, 1.001, 1.002)], tmp_path, capsys)
    (wide,) = told_by([a_slice(r) for r in (0.95, 0.96, 0.97)], tmp_path, capsys)
    assert narrow["passed"] and narrow["processor_passed"]
    assert wide["high"] < wide["bound"] and not wide["passed"]


def test_a_peer_is_told_beside_the_engine(tmp_path: Path, capsys: Any) -> None:
    engine, peer = told_by([a_slice(1.01, peer=1.05)], tmp_path, capsys)
    assert (engine["ratio"], peer["peer"], peer["ratio"]) == (1.01, "traceml", 1.05)
    assert peer["engine_less_peer"] == [-0.04, -0.04, -0.04]
