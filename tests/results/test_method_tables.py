"""The two tables of the method, whole: also the steps and stalls that a usual profile lacks."""

from __future__ import annotations

import pytest

from profiles import HAND_WORKED, profile_of
from stash.results.steps import (
    DEFAULT_STEPS,
    STALLS,
    STEPS,
    Who,
    compute_step,
    stalls_of,
    usual_steps,
    whole_iteration,
)
from stash.results.whole import iteration_seconds

ALL_STEPS = {
    **HAND_WORKED,
    "staged": 0.150,
    "again": 0.1365,
    "cluster": 0.169,
    "spread": 0.105,
    "scaleout": 0.195,
}
# name: ms of the steps above, what it is a percentage of, the percentage, what it is a part of
BY_HAND = {
    "interconnect": (30.0, "solo", 30.0, None),
    "contention": (10.0, "solo", 10.0, "interconnect"),
    "communication": (20.0, "solo", 20.0, "interconnect"),
    "network": (39.0, "node", 30.0, None),
    "links": (44.0, "node", 440 / 13, "network"),
    "relief": (-5.0, "node", -50 / 13, "network"),
    "scale-out": (65.0, "node", 50.0, None),
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
        "unsynced": ("node", "replay", False),
        "node": ("node", "replay", True),
        "staged": ("node", "staged", True),
        "warm": ("node", "warm", True),
        "cold": ("node", "cold", True),
        "cluster": ("spread", "replay", True),
        "spread": ("spread", "replay", False),
        "scaleout": ("all", "replay", True),
        "again": ("node", "replay", True),
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
        ({"solo", "unsynced", "node", "warm", "cold"}, "warm", "solo"),
        ({"node", "cold"}, "node", "node"),
        ({"unsynced", "solo"}, "unsynced", "solo"),
        ({"solo", "cold"}, "solo", "solo"),
        ({"cold"}, "cold", None),
        ({"solo", "node", "scaleout", "cluster"}, "scaleout", "solo"),
    ],
)
def test_what_a_whole_iteration_is_and_what_compute_is(
    steps: set[str], whole: str, alone: str | None
) -> None:
    assert (whole_iteration(steps), compute_step(steps)) == (((1, whole),), alone)


def test_on_several_nodes_an_iteration_is_that_of_all_and_what_data_adds_on_one() -> None:
    assert whole_iteration(set(ALL_STEPS)) == ((1, "scaleout"), (1, "warm"), (-1, "node"))
    assert whole_iteration(set(ALL_STEPS), "cold") == ((1, "scaleout"), (1, "cold"), (-1, "node"))
    assert whole_iteration({"node", "scaleout"}, "cold") is None


def test_shares_of_an_iteration_on_several_nodes_add_up_to_the_wait() -> None:
    profile = profile_of([ALL_STEPS] * 4, machine_changes={"nodes": 2})
    assert profile.iteration is not None and profile.iteration.later is not None
    assert 1e3 * profile.iteration.later.estimate == pytest.approx(195 + 200 - 130)
    parts = ("contention", "communication", "scale-out", "prep")
    shares = [profile.stalls[name].share for name in parts]
    assert profile.waiting.later is not None
    assert sum(share.estimate for share in shares if share) == pytest.approx(
        profile.waiting.later.estimate
    )
    assert profile.stalls["network"].share is None


def test_an_epoch_on_several_nodes_takes_the_iterations_of_all_with_the_data_of_one() -> None:
    profile = profile_of([ALL_STEPS] * 4, machine_changes={"nodes": 2})
    later = profile.epoch.later
    assert later is not None
    assert later.iterations == 79  # 10,000 samples over 4 workers, 32 at a time
    assert later.seconds.estimate == pytest.approx(79 * 0.265)


@pytest.mark.parametrize(
    "missing", [{"scaleout"}, {"node"}, {"scaleout", "node"}, {"scaleout", "warm", "cold"}]
)
def test_no_step_of_one_node_stands_for_an_epoch_of_several(missing: set[str]) -> None:
    steps = {name: seconds for name, seconds in ALL_STEPS.items() if name not in missing}
    profile = profile_of([steps] * 4, machine_changes={"nodes": 2, "price_usd_per_hour": 3.0})
    assert (profile.epoch.first, profile.epoch.later, profile.iteration) == (None, None, None)
    assert (profile.waiting.first, profile.waiting.later) == (None, None)
    assert iteration_seconds(profile) is None and iteration_seconds(profile, first=True) is None
    assert profile.stalls
    for stall in profile.stalls.values():
        assert (stall.share, stall.share_of_first_epoch) == (None, None)
        assert stall.usd_per_hour_of_training is None
    assert "epochs" in {check.name for check in profile.checks if check.status == "warn"}
    alone = profile_of([steps] * 4)
    assert alone.waiting.later is not None
    assert "epochs" not in {check.name for check in alone.checks}


@pytest.mark.parametrize(
    ("who", "nodes", "workers_per_node", "running"),
    [
        (Who.FIRST, 2, 2, [0]),
        (Who.NODE, 2, 2, [0, 1]),
        (Who.SPREAD, 2, 2, [0, 2]),
        (Who.SPREAD, 2, 3, [0, 1, 3]),
        (Who.SPREAD, 4, 4, [0, 4, 8, 12]),
        (Who.SPREAD, 3, 2, [0, 2]),
        (Who.SPREAD, 1, 2, [0, 1]),
        (Who.ALL, 2, 2, [0, 1, 2, 3]),
    ],
)
def test_as_many_workers_run_spread_as_on_one_node(
    who: Who, nodes: int, workers_per_node: int, running: list[int]
) -> None:
    found = [
        rank
        for rank in range(nodes * workers_per_node)
        if who.includes(rank, nodes=nodes, workers_per_node=workers_per_node)
    ]
    assert found == running


@pytest.mark.parametrize(
    ("workers", "cuda", "nodes", "steps"),
    [
        (1, False, 1, ("node", "warm", "cold")),
        (2, False, 1, ("solo", "unsynced", "node", "warm", "cold")),
        (1, True, 1, ("node", "warm", "cold", "staged")),
        (1, False, 2, ("node", "warm", "cold", "scaleout")),
        (
            2,
            False,
            2,
            ("solo", "unsynced", "node", "warm", "cold", "cluster", "spread", "scaleout"),
        ),
    ],
)
def test_one_worker_of_a_node_has_nobody_to_wait_for_there(
    workers: int, cuda: bool, nodes: int, steps: tuple[str, ...]
) -> None:
    assert usual_steps(workers, has_cuda=cuda, nodes=nodes) == steps
