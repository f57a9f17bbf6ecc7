"""Every derived figure of a profile beside the stalls, worked out by hand."""

from __future__ import annotations

import math
from datetime import datetime, timezone

import pytest
from scipy import stats

from profiles import (
    HAND_WORKED,
    block,
    calibration,
    disturbance,
    facts,
    machine,
    profile_of,
    recording_of,
    workload,
)
from stash.results import statistics
from stash.results.assemble import Outcome, Recording, _scatter, assemble, interval
from stash.results.profile import Profile
from stash.results.recording import Block, Check, End, Rate, Round

OUTCOME = Outcome(id="1", created=datetime(2025, 1, 1, tzinfo=timezone.utc), half_width_asked=0.03)


def of_rounds(rounds: list[tuple[Block, ...]], **changes: object) -> Profile:
    """The profile of one launch from whole blocks."""
    recording = Recording(
        facts=[facts(**changes)],
        rounds=[
            Round(launch=0, number=number, at_seconds=1.0 + number, blocks=blocks)
            for number, blocks in enumerate(rounds)
        ],
    )
    return assemble(recording, OUTCOME)


def test_telemetry_adds_up_over_the_blocks_of_a_step() -> None:
    quiet = disturbance(
        wall_seconds=1.0,
        cpu_busy_seconds=2.0,
        cpu_steal_seconds=0.4,
        disk_read_bytes=100,
        network_bytes=10,
        memory_used_bytes=7,
        device_busy_percent=40.0,
        device_memory_used_bytes=50,
    )
    loud = disturbance(
        wall_seconds=3.0,
        cpu_busy_seconds=6.0,
        cpu_steal_seconds=0.0,
        disk_read_bytes=300,
        network_bytes=70,
        memory_used_bytes=9,
        device_busy_percent=80.0,
        device_memory_used_bytes=20,
    )
    silent = disturbance(wall_seconds=0.0)
    rounds = [
        (block("node", 0.1, disturbance=one), block("warm", 0.1, disturbance=silent))
        for one in (quiet, loud)
    ]
    telemetry = of_rounds(rounds).telemetry
    assert set(telemetry) == {"node"}  # nothing can be told of blocks without any time
    seen = telemetry["node"]
    assert seen.cpu_percent == pytest.approx(100 * 8 / 4 / 8)
    assert seen.steal_percent == pytest.approx(100 * 0.4 / 4 / 8)
    assert seen.disk_read_bytes_per_second == pytest.approx(100)
    assert seen.network_bytes_per_second == pytest.approx(20)
    assert (seen.memory_used_bytes, seen.device_memory_used_bytes) == (9, 50)
    assert seen.device_busy_percent == pytest.approx(60)


def test_a_machine_without_a_gpu_tells_nothing_of_one() -> None:
    seen = of_rounds([(block("node", 0.1),)]).telemetry["node"]
    assert (seen.device_busy_percent, seen.device_memory_used_bytes) == (None, None)


def test_the_devices_rate_has_the_interval_of_their_step() -> None:
    profile = profile_of([{"node": seconds} for seconds in (0.10, 0.12, 0.14, 0.12)])
    rate, seconds = profile.rates.devices, profile.steps["node"].seconds_per_iteration
    assert rate is not None and seconds.low is not None and seconds.high is not None
    assert rate.estimate == pytest.approx(64 / 0.12)
    assert (rate.low, rate.high) == pytest.approx((64 / seconds.high, 64 / seconds.low))


def test_a_rate_whose_step_may_take_no_time_has_no_upper_end() -> None:
    rate = profile_of([{"node": 0.1}, {"node": 0.9}]).rates.devices
    assert rate is not None and rate.estimate == pytest.approx(128)
    assert (rate.low, rate.high) == (None, None)
    assert profile_of([{"solo": 0.1}] * 3).rates.devices is None


def test_a_rate_of_a_very_slow_step_has_its_interval_too() -> None:
    rate = profile_of([{"node": seconds} for seconds in (0.5, 0.5001, 0.5)]).rates.devices
    assert rate is not None and rate.low is not None and rate.high is not None


def test_rates_of_several_launches_are_taken_over_launches() -> None:
    recording = recording_of([[HAND_WORKED] * 3] * 2)
    recording.facts = [
        facts(launch=0, preprocessing=Rate(samples_per_second=(100.0, 100.0)), storage=None),
        facts(launch=1, preprocessing=Rate(samples_per_second=(300.0,))),
    ]
    rates = assemble(recording, OUTCOME).rates
    assert rates.preprocessing is not None and rates.storage is not None
    assert rates.preprocessing.estimate == pytest.approx(200)
    assert rates.storage.estimate == pytest.approx(256)


def test_a_percentage_needs_its_base_and_a_price_its_hour() -> None:
    profile = profile_of([{"unsynced": 0.11, "node": 0.13}] * 3)
    stall = profile.stalls["communication"]
    assert stall.percent is None and stall.percent_of == "solo"
    assert stall.share is not None and stall.share.estimate == pytest.approx(2 / 13)
    assert stall.share_of_first_epoch is None
    assert stall.usd_per_hour_of_training is None
    assert (profile.waiting.later, profile.waiting.first) == (None, None)
    cold = profile_of([{"cold": 0.2, "warm": 0.1}] * 3, machine_changes={"price_usd_per_hour": 4.0})
    usd = cold.stalls["fetch"].usd_per_hour_of_training
    assert usd is not None and usd.estimate == pytest.approx(2.0)


def test_the_headline_is_what_is_left_beside_compute() -> None:
    waiting = profile_of([{"solo": 0.1, "warm": 0.4, "cold": 0.5}] * 3).waiting
    assert waiting.later is not None and waiting.first is not None
    assert (waiting.later.estimate, waiting.first.estimate) == pytest.approx((0.75, 0.8))
    assert profile_of([{"solo": 0.1}] * 3).waiting.later is None


def test_how_long_and_how_far_a_run_went() -> None:
    end = End(launch=0, reason="rounds", checks=(), peak_device_memory_bytes=(1, 3))
    changes = {"machine": machine(device_memory_bytes=4)}
    run = profile_of([HAND_WORKED] * 3, end=end, facts_changes=changes).run
    assert (run.rounds, run.launches, run.measuring_seconds) == (3, 1, 30.0)
    assert run.peak_device_memory_bytes == (1, 3)
    assert run.peak_device_memory_percent == pytest.approx(75)
    assert (run.half_width_asked, run.half_width_reached) == (0.03, pytest.approx(0))
    for unknown in (None, 0):
        changes = {"machine": machine(device_memory_bytes=unknown)}
        run = profile_of([HAND_WORKED] * 3, end=end, facts_changes=changes).run
        assert run.peak_device_memory_percent is None
    assert profile_of([HAND_WORKED] * 3).run.peak_device_memory_percent is None


def test_the_last_launch_says_why_the_run_ended() -> None:
    recording = recording_of([[HAND_WORKED] * 2] * 3)
    recording.ends = [
        End(launch=launch, reason=reason, checks=(), peak_device_memory_bytes=())
        for launch, reason in enumerate(("rounds", "half-width", "max-minutes"))
    ]
    assert assemble(recording, OUTCOME).run.stopped_because == "max-minutes"


def test_of_every_check_the_worst_word_stands_where_it_was_first_said() -> None:
    passed = Check(name="a", status="pass", message="fine")
    warned = Check(name="a", status="warn", message="not fine", next="mend")
    other = Check(name="b", status="pass", message="fine")
    for first, last in ((passed, warned), (warned, passed)):
        end = End(launch=0, reason="rounds", checks=(last,), peak_device_memory_bytes=())
        changes = {"checks": (first, other)}
        checks = profile_of([HAND_WORKED] * 2, end=end, facts_changes=changes).checks
        assert [check.name for check in checks] == ["a", "b", "steal"]
        assert checks[0] == warned


def test_an_epoch_s_interval_is_that_of_its_even_iterations_and_of_its_filling() -> None:
    # 10 iterations; each block has 1 iteration, 2 of lead-in that take 1, 2 and 3 s.
    evens, leads = (1.0, 2.0, 3.0), (1.0, 2.0, 3.0)
    rounds = [
        (
            block(
                "warm",
                even,
                iterations=1,
                lead_in_iterations=2,
                lead_in_seconds=(lead / 2, lead),
            ),
        )
        for even, lead in zip(evens, leads, strict=True)
    ]
    later = of_rounds(
        rounds,
        workload=workload(iterations_per_epoch=10),
        calibration=calibration(loader_start_seconds=7.0, loader_persistent=False),
    ).epoch.later
    assert later is not None and later.iterations == 10
    assert later.seconds.low is not None and later.seconds.high is not None
    # 10 iterations of 2 s, of which 2 took 2 s together instead of 4, and 7 s of start.
    assert later.seconds.estimate == pytest.approx(20 - 2 + 7)
    t = float(stats.t.ppf(0.975, 2))
    of_evens = 8 * t * math.sqrt(1 / 3 + 1 / 8)  # variance 1: our own doubt, and 8 to come
    of_filling = t * math.sqrt(1 / 3) * math.sqrt(4)  # one more of a kind with variance 1
    half = math.hypot(of_evens, of_filling)
    assert later.seconds.low == pytest.approx(25 - half)
    assert later.seconds.high == pytest.approx(25 + half)
    assert later.usd is None


def test_an_epoch_that_is_all_lead_in_has_no_interval() -> None:
    rounds = [
        (block("warm", 1.0, iterations=1, lead_in_iterations=4, lead_in_seconds=(2.0, 4.0)),)
    ] * 3
    later = of_rounds(rounds, workload=workload(iterations_per_epoch=4)).epoch.later
    assert later is not None and later.seconds.estimate == pytest.approx(4.0)
    assert (later.seconds.low, later.seconds.high) == (None, None)
    longer = of_rounds(rounds, workload=workload(iterations_per_epoch=5)).epoch.later
    assert longer is not None and longer.seconds.low == pytest.approx(5.0)


def test_loaders_that_are_not_timed_start_at_no_cost_and_launches_share_theirs() -> None:
    recording = recording_of([[HAND_WORKED] * 3] * 2)
    recording.facts = [
        facts(launch=launch, calibration=calibration(loader_start_seconds=seconds))
        for launch, seconds in enumerate((None, 3.0))
    ]
    first = assemble(recording, OUTCOME).epoch.first
    assert first is not None
    assert first.seconds.estimate == pytest.approx(157 * 0.250 + 1.5)


def test_an_estimate_is_scaled_with_both_ends_of_its_interval() -> None:
    found = interval(statistics.estimate([[1.0, 3.0]]), 2.0)
    whole = interval(statistics.estimate([[1.0, 3.0]]))
    assert whole.low is not None and whole.high is not None
    assert (whole.estimate, whole.high - 2.0) == pytest.approx((2.0, 12.7062), rel=1e-4)
    ends = (found.estimate, found.low, found.high)
    assert ends == pytest.approx((4.0, 2 * whole.low, 2 * whole.high))


def test_two_values_are_enough_to_tell_how_far_a_third_may_lie() -> None:
    assert _scatter([5.0]) == 0.0
    # Mean 2, standard error 1, one degree of freedom.
    assert _scatter([1.0, 3.0]) == pytest.approx(12.7062 * math.sqrt(3), rel=1e-4)
