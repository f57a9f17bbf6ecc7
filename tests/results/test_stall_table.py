"""The stall table on step times whose every figure was worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from profiles import HAND_WORKED, noisy, profile_of
from stash.results import statistics, steps
from stash.results.estimates import Times
from stash.results.profile import Profile
from stash.results.statistics import Estimate

# solo 100, unsynced 110, node 130, warm 200, cold 250 ms; an hour costs $10.
#   name            ms  percent  of       share  first  $/h
BY_HAND = {
    "interconnect": (30, 30.0, "solo", 0.15, 0.12, 1.50),
    "contention": (10, 10.0, "solo", 0.05, 0.04, 0.50),
    "communication": (20, 20.0, "solo", 0.10, 0.08, 1.00),
    "prep": (70, 35.0, "warm", 0.35, 0.28, 3.50),
    "fetch": (50, 20.0, "cold", None, 0.20, 2.00),
}


def hand_worked_profile(**machine_changes: Any) -> Profile:
    rounds = [HAND_WORKED] * 20
    return profile_of(rounds, machine_changes={"price_usd_per_hour": 10.0, **machine_changes})


def check_by_hand(profile: Profile) -> None:
    assert set(profile.stalls) == set(BY_HAND)
    for name, (ms, percent, percent_of, share, first, usd) in BY_HAND.items():
        stall = profile.stalls[name]
        assert stall.seconds_per_iteration.estimate == pytest.approx(ms / 1000), name
        assert stall.percent is not None
        assert stall.percent.estimate == pytest.approx(percent), name
        assert stall.percent_of == percent_of
        assert (stall.share is None) == (share is None), name
        if stall.share is not None:
            assert stall.share.estimate == pytest.approx(share), name
        assert stall.share_of_first_epoch is not None
        assert stall.share_of_first_epoch.estimate == pytest.approx(first), name
        assert stall.usd_per_hour_of_training is not None
        assert stall.usd_per_hour_of_training.estimate == pytest.approx(usd), name
    assert profile.waiting.later is not None and profile.waiting.first is not None
    assert profile.waiting.later.estimate == pytest.approx(0.5)
    assert profile.waiting.first.estimate == pytest.approx(0.6)


def test_every_stall_agrees_with_the_hand_worked_table() -> None:
    check_by_hand(hand_worked_profile())


def test_shares_of_an_iteration_add_up_to_the_waiting() -> None:
    stalls = hand_worked_profile().stalls
    later = [stalls[name].share for name in ("contention", "communication", "prep")]
    assert sum(share.estimate for share in later if share is not None) == pytest.approx(0.5)
    first = [stalls[n].share_of_first_epoch for n in ("interconnect", "prep", "fetch")]
    assert sum(share.estimate for share in first if share is not None) == pytest.approx(0.6)


def test_dollars_count_every_node() -> None:
    rounds = [{**HAND_WORKED, "scaleout": HAND_WORKED["node"]}] * 20
    profile = profile_of(rounds, machine_changes={"price_usd_per_hour": 10.0, "nodes": 2})
    usd = profile.stalls["prep"].usd_per_hour_of_training
    assert usd is not None and usd.estimate == pytest.approx(7.0)


def test_a_stall_is_the_slowest_worker_s() -> None:
    # tests/profiles.py gives the first worker nine tenths of the second one's time.
    assert hand_worked_profile().steps["node"].seconds_per_iteration.estimate == pytest.approx(0.13)


def test_a_negative_stall_keeps_its_sign() -> None:
    profile = profile_of([{**HAND_WORKED, "unsynced": 0.095}] * 20)
    contention = profile.stalls["contention"]
    assert contention.seconds_per_iteration.estimate == pytest.approx(-0.005)
    assert contention.share is not None and contention.share.estimate < 0
    assert contention.significant


def test_a_stall_whose_interval_crosses_zero_is_not_significant_but_has_its_sign() -> None:
    rounds = noisy({**HAND_WORKED, "unsynced": 0.0995}, noise_seconds=0.01, seed=3)
    stall = profile_of(rounds).stalls["contention"]
    seconds = stall.seconds_per_iteration
    assert seconds.low is not None and seconds.high is not None
    assert seconds.low < 0 < seconds.high
    assert not stall.significant
    assert stall.detectable_seconds_per_iteration is not None


def test_the_name_of_the_instance_changes_no_number() -> None:
    one, other = (hand_worked_profile(instance=name) for name in ("p3.16xlarge", "p2.8xlarge"))
    assert one.stalls == other.stalls


def test_steps_that_were_not_measured_leave_their_stalls_out() -> None:
    rounds = noisy({step: HAND_WORKED[step] for step in ("node", "warm", "cold")})
    profile = profile_of(rounds, machine_changes={"workers_per_node": 1})
    assert set(profile.stalls) == {"prep", "fetch"}
    assert profile.waiting.later is not None
    assert profile.waiting.later.estimate == pytest.approx(0.35, abs=0.01)


def test_an_intermittent_stall_counts_in_shares_and_in_the_headline() -> None:
    # Warm iterations take 130 ms, every fifth 330: 40 ms a mean iteration of 170, 23.5 %.
    rounds = [
        {**one, "warm": one["warm"] + (0.2 if number % 5 == 0 else 0)}
        for number, one in enumerate(
            noisy({"solo": 0.13, "node": 0.13, "warm": 0.13}, rounds=100, noise_seconds=0.001)
        )
    ]
    profile = profile_of(rounds)
    prep, waiting = profile.stalls["prep"], profile.waiting.later
    assert prep.intermittent and prep.share is not None and waiting is not None
    assert prep.seconds_per_iteration.estimate == pytest.approx(0.040, rel=0.02)
    assert prep.share.estimate == pytest.approx(40 / 170, rel=0.02)
    assert waiting.estimate == pytest.approx(40 / 170, rel=0.02)
    assert profile.steps["warm"].seconds_per_iteration.estimate == pytest.approx(0.170, rel=0.02)


# The mistakes of the paper's released scripts, put back one by one: the table must not survive any.


def put_back(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> None:
    table = tuple(
        replace(stall, **changes) if stall.name == name else stall for stall in steps.STALLS
    )
    monkeypatch.setattr(steps, "STALLS", table)


def fetch_adds_a_whole_synthetic_run(monkeypatch: pytest.MonkeyPatch) -> None:
    put_back(monkeypatch, "fetch", terms=((+1, "cold"), (-1, "warm"), (+1, "node")))


def interconnect_is_divided_by_the_time_of_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    put_back(monkeypatch, "interconnect", percent_of="node")


def stalls_are_scaled_but_their_bases_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    combine = Times.combine
    monkeypatch.setattr(
        Times,
        "combine",
        lambda self, terms: [[value / 2 for value in row] for row in combine(self, terms)],
    )


def repeats_are_summed_and_divided_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "trimmed_mean", lambda values: float(sum(values)))


TRAPS: list[Callable[[pytest.MonkeyPatch], None]] = [
    fetch_adds_a_whole_synthetic_run,
    interconnect_is_divided_by_the_time_of_all_devices,
    stalls_are_scaled_but_their_bases_are_not,
    repeats_are_summed_and_divided_by_one,
]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
def test_the_hand_worked_table_fails_when_a_trap_is_put_back(
    trap: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    trap(monkeypatch)
    with pytest.raises(AssertionError):
        check_by_hand(hand_worked_profile())


def test_the_check_on_signs_fails_when_negative_stalls_are_clamped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = statistics.estimate

    def clamped(launches: statistics.Launches, **options: Any) -> Estimate:
        found = honest(launches, **options)
        return replace(found, value=max(0.0, found.value))

    monkeypatch.setattr(statistics, "estimate", clamped)
    with pytest.raises(AssertionError):
        test_a_negative_stall_keeps_its_sign()


def test_a_run_without_any_storage_stall_reads_zero_and_not_a_synthetic_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = [{**HAND_WORKED, "cold": HAND_WORKED["warm"]}] * 20
    assert profile_of(rounds).stalls["fetch"].seconds_per_iteration.estimate == pytest.approx(0)
    fetch_adds_a_whole_synthetic_run(monkeypatch)
    trapped = profile_of(rounds).stalls["fetch"].percent
    assert trapped is not None and trapped.estimate > 50
