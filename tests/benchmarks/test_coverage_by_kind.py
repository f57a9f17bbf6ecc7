"""What is said of intervals, and of time stolen meanwhile, on figures made up for the purpose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import slices
from coverage_by_kind import UNEVEN, _experiment, by_stolen, summaries

from stash.hardware.machine import this_machine

KINDS = ("communication", "contention", "prep")


def launch(
    stolen: Sequence[float] | None, errors_ms: Sequence[float], bursts: bool = False
) -> dict[str, Any]:
    """The truth is 12 ms; all kinds are off by as much, and intervals are 1 ms to either side."""
    values = [0.012 + error / 1e3 for error in errors_ms]
    found = [[value, value - 0.001, value + 0.001] for value in values]
    return {
        "world": "delays",
        "bursts": bursts,
        "uneven": 0.05,
        "rounds": 20,
        "kinds": {kind: {"truth": 0.012, "found": found} for kind in KINDS},
        **({} if stolen is None else {"stolen": list(stolen)}),
    }


def kept(folder: Path, *launches: dict[str, Any]) -> Path:
    path = folder / "coverage.jsonl"
    for one in launches:
        slices.keep(one, path)
    return path


def test_what_is_kept_names_the_processor_that_it_was_measured_on(tmp_path: Path) -> None:
    (line,) = slices.read(kept(tmp_path, launch([0.0], [0.1])))
    assert line.pop("cpu") == this_machine().cpu
    assert line == launch([0.0], [0.1])


def test_intervals_that_hold_the_truth_are_counted(tmp_path: Path) -> None:
    path = kept(tmp_path, launch([0.03] * 3, [0.5, -0.9, 1.1]), launch([0.05] * 3, [0.0, 2.0, 0.3]))
    told = {one["kind"]: one for one in summaries(path)}
    assert set(told) == set(KINDS)
    assert (told["prep"]["covered"], told["prep"]["profiles"]) == (4, 6)
    assert told["prep"]["covered_by_launch"] == [2, 2]
    assert told["prep"]["mean_error_ms"] == pytest.approx(0.5)
    assert told["prep"]["stolen_percent"] == pytest.approx(4.0)


def test_launches_that_lost_less_than_a_profile_warns_of_are_told_apart(tmp_path: Path) -> None:
    quiet = launch([0.0, 0.03], [0.1, 0.2])  # 1.5 % in the mean
    stolen_from = launch([0.01, 0.05], [0.1, 3.0])
    unseen = launch(None, [0.1, 3.0])
    told = summaries(kept(tmp_path, quiet, stolen_from, unseen))
    of_prep = {one["undisturbed"]: one for one in told if one["kind"] == "prep"}
    assert (of_prep[True]["covered"], of_prep[True]["profiles"]) == (2, 2)
    assert (of_prep[False]["covered"], of_prep[False]["profiles"]) == (2, 4)


def test_errors_are_told_by_what_was_stolen_from_profiles_of_all_launches(tmp_path: Path) -> None:
    first = launch([0.01, 0.20, 0.05, 0.11], [0.1, 2.0, 0.3, 0.8])
    second = launch([0.21, 0.06, 0.02, 0.10], [2.2, 0.5, 0.3, 0.6])
    groups = by_stolen(kept(tmp_path, first, second))
    spans = [tuple(round(end) for end in one["stolen_percent"]) for one in groups]
    assert spans == [(1, 2), (5, 6), (10, 11), (20, 21)]
    assert [one["profiles"] for one in groups] == [2, 2, 2, 2]
    means = [one["error_ms"]["contention"][0] for one in groups]
    assert means == pytest.approx([0.2, 0.4, 0.7, 2.1])


def test_profiles_on_a_loaded_machine_or_without_a_look_at_it_are_left_out(tmp_path: Path) -> None:
    loaded = launch([0.3] * 8, [9.0] * 8, bursts=True)
    unseen = launch(None, [9.0] * 8)
    seen = launch([0.01 * at for at in range(8)], [0.1] * 8)
    groups = by_stolen(kept(tmp_path, loaded, unseen, seen))
    assert sum(one["profiles"] for one in groups) == 8


def test_a_hidden_stall_is_told_apart_from_one_of_its_kind_that_is_not(tmp_path: Path) -> None:
    shown = launch([0.0] * 2, [0.5, 0.5])
    hidden = launch([0.0] * 2, [0.0, 0.0]) | {"world": "hidden"}
    hidden["kinds"] = {
        "prep": {"truth": 0.0, "found": [[0.0, -0.001, 0.001], [0.002, 0.001, 0.003]]}
    }
    told = [one for one in summaries(kept(tmp_path, shown, hidden)) if one["kind"] == "prep"]
    assert [(one["world"], one["truth_ms"], one["covered"]) for one in told] == [
        ("delays", 12.0, 2),
        ("hidden", 0.0, 1),
    ]


def test_what_is_hidden_is_zero_and_hides_with_what_an_exchange_really_takes() -> None:
    hidden = _experiment("hidden", UNEVEN, seed=3)
    assert set(hidden.steps) == {"unsynced", "node", "warm"}
    assert hidden.world.truth() == dict.fromkeys(
        ("contention", "communication", "prep", "fetch"), 0
    )
    assert hidden.world.exchange_seconds + 0.002 < hidden.world.tail_seconds
