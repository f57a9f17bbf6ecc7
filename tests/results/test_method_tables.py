"""The two tables of the method, whole: also the steps and stalls that a usual profile lacks."""

from __future__ import annotations

import pytest

from profiles import HAND_WORKED, profile_of
from stash.results.steps import (
    DEFAULT_STEPS,
    STALLS,
    STEPS,
    compute_step,
    stalls_of,
    whole_iteration,
)

ALL_STEPS = {**HAND_WORKED, "staged": 0.150, "again": 0.1365}
# name: ms of the steps above, what it is a percentage of, the percentage, what it is a part of
BY_HAND = {
    "interconnect": (30.0, "solo", 30.0, None),
    "contention": (10.0, "solo", 10.0, "interconnect"),
    "communication": (20.0, "solo", 20.0, "interconnect"),
    "prep": (70.0, "warm", 35.0, None),
    "copy": (20.0, "warm", 10.0, "prep"),
    "fetch": (50.0, "cold", 20.0, None),
    "noise": (6.5, "node", 5.0, None),
}


def test_every_stall_of_the_method_agrees_with_one_worked_by_hand() -> None:
    stalls = profile_of([ALL_STEPS] * 4).stalls
    assert set(stalls) == set(BY_HAND) == {stall.name for stall in STALLS}
    for name, (ms, base, percent, part_of) in BY_HAND.items():
        stall = stalls[name]
        assert stall.percent is not None
        assert 1e3 * stall.seconds_per_iteration.estimate == pytest.approx(ms), name
        assert (stall.percent_of, stall.part_of) == (base, part_of)
        assert stall.percent.estimate == pytest.approx(percent), name


def test_who_runs_what_and_with_whom() -> None:
    table = {step.name: (step.who.value, step.feed.value, step.exchange) for step in STEPS}
    assert table == {
        "solo": ("first", "replay", False),
        "unsynced": ("all", "replay", False),
        "node": ("all", "replay", True),
        "staged": ("all", "staged", True),
        "warm": ("all", "warm", True),
        "cold": ("all", "cold", True),
        "again": ("all", "replay", True),
    }
    assert [step.name for step in STEPS if step.feed.is_real] == ["warm", "cold"]
    assert DEFAULT_STEPS == ("solo", "unsynced", "node", "warm", "cold")


def test_a_stall_is_told_only_where_all_its_steps_were_measured() -> None:
    for stall in STALLS:
        assert stall in stalls_of(stall.steps)
        for missing in stall.steps:
            assert stall not in stalls_of(set(ALL_STEPS) - {missing})
    assert stalls_of({"node"}) == ()


@pytest.mark.parametrize(
    ("steps", "whole", "alone"),
    [
        (set(ALL_STEPS), "warm", "solo"),
        ({"node", "cold"}, "node", "node"),
        ({"unsynced", "solo"}, "unsynced", "solo"),
        ({"solo", "cold"}, "solo", "solo"),
        ({"cold"}, "cold", None),
    ],
)
def test_what_a_whole_iteration_is_and_what_compute_is(
    steps: set[str], whole: str, alone: str | None
) -> None:
    assert (whole_iteration(steps), compute_step(steps)) == (whole, alone)
