"""Epochs, rates and how a run went, worked out by hand from blocks and facts."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from profiles import HAND_WORKED, calibration, disturbance, facts, noisy, profile_of, recording_of
from stash.errors import StashError
from stash.results.assemble import Outcome, Recording, assemble
from stash.results.recording import Check, End, Phase, Rate

OUTCOME = Outcome(id="1", created=datetime(2025, 1, 1, tzinfo=timezone.utc), half_width_asked=0.03)


def test_an_epoch_is_start_plus_lead_in_plus_even_iterations() -> None:
    # 10,000 samples on 2 workers, batch 32: 157 iterations, of which 4 lead in and take 2 s.
    profile = profile_of(
        [HAND_WORKED] * 20,
        lead_in_iterations=4,
        lead_in_seconds=(1.5, 2.0),
        machine_changes={"price_usd_per_hour": 7.2},
    )
    first, later = profile.epoch.first, profile.epoch.later
    assert first is not None and later is not None
    assert (first.iterations, later.iterations) == (157, 157)
    assert first.seconds.estimate == pytest.approx(0.5 + 2.0 + 153 * 0.250)
    assert later.seconds.estimate == pytest.approx(2.0 + 153 * 0.200)  # loaders persist
    assert later.device_hours.estimate == pytest.approx(32.6 * 2 / 3600)
    assert later.usd is not None
    assert later.usd.estimate == pytest.approx(32.6 * 7.2 / 3600)


def test_loaders_that_do_not_persist_are_started_in_every_epoch() -> None:
    changes = {"calibration": calibration(loader_persistent=False)}
    later = profile_of([HAND_WORKED] * 20, facts_changes=changes).epoch.later
    assert later is not None
    assert later.seconds.estimate == pytest.approx(0.5 + 157 * 0.200)


def test_an_epoch_shorter_than_its_lead_in_is_a_part_of_it() -> None:
    profile = profile_of(
        [HAND_WORKED] * 20,
        lead_in_iterations=4,
        lead_in_seconds=(1.5, 2.0),
        workload_changes={"samples": 64},
    )
    assert profile.epoch.later is not None
    assert profile.epoch.later.iterations == 1
    assert profile.epoch.later.seconds.estimate == pytest.approx(0.5)


def test_an_epoch_counts_intermittent_waits_in_full() -> None:
    rounds = [
        {**HAND_WORKED, "warm": 0.200 + (0.1 if number % 5 == 0 else 0.0)} for number in range(20)
    ]
    later = profile_of(rounds).epoch.later
    assert later is not None
    assert later.seconds.estimate == pytest.approx(157 * 0.220)


def test_data_without_a_length_has_no_epoch() -> None:
    profile = profile_of(workload_changes={"samples": None})
    assert (profile.epoch.first, profile.epoch.later) == (None, None)


def test_one_round_gives_an_epoch_without_an_interval() -> None:
    later = profile_of([HAND_WORKED]).epoch.later
    assert later is not None
    assert (later.seconds.low, later.seconds.high) == (None, None)


def test_rates_are_samples_per_second_of_each_part_alone() -> None:
    rates = profile_of([HAND_WORKED] * 20).rates
    assert rates.devices is not None and rates.preprocessing is not None and rates.storage
    assert rates.devices.estimate == pytest.approx(2 * 32 / 0.130)
    assert rates.preprocessing.estimate == pytest.approx(320)
    assert rates.storage.estimate == pytest.approx(256)


def test_the_rate_of_the_devices_agrees_with_the_time_of_their_step() -> None:
    # A machine that is slow half of the time does 64 samples in 0.15 s on average, not 64/0.133.
    rounds = [{"node": 0.100 if number % 2 else 0.200} for number in range(40)]
    profile = profile_of(rounds)
    seconds = profile.steps["node"].seconds_per_iteration.estimate
    assert profile.rates.devices is not None
    assert profile.rates.devices.estimate * seconds == pytest.approx(64)


def test_rates_that_were_not_measured_are_absent() -> None:
    changes = {"preprocessing": None, "storage": Rate(samples_per_second=())}
    rates = profile_of([HAND_WORKED] * 3, facts_changes=changes).rates
    assert (rates.preprocessing, rates.storage) == (None, None)


def test_telemetry_is_averaged_over_the_blocks_of_a_step() -> None:
    seen = disturbance(wall_seconds=2.0, cpu_busy_seconds=4.0, disk_read_bytes=10)
    telemetry = profile_of([HAND_WORKED] * 3, disturbance=seen).telemetry["warm"]
    assert telemetry.cpu_percent == pytest.approx(100 * 2 / 8)
    assert telemetry.disk_read_bytes_per_second == pytest.approx(5)


def test_a_recording_without_a_complete_round_is_nothing_to_report() -> None:
    for recording in (Recording(), Recording(facts=[facts()])):
        with pytest.raises(StashError, match="No round was completed"):
            assemble(recording, OUTCOME)


def test_events_are_sorted_by_kind_whatever_their_order() -> None:
    whole = recording_of([[HAND_WORKED] * 3])
    mixed = Recording()
    mixed.add([*whole.ends, *whole.rounds, Phase(launch=0, name="measuring"), *whole.facts])
    assert assemble(mixed, OUTCOME) == assemble(whole, OUTCOME)


def test_how_a_run_ended_is_told_from_the_outside_first() -> None:
    assert profile_of(failure="worker 1 died").run.stopped_because == "failed"
    assert profile_of(failure="worker 1 died").run.message == "worker 1 died"
    assert profile_of(interrupted=True).run.stopped_because == "interrupted"
    assert profile_of().run.stopped_because == "half-width"
    recording = recording_of([[HAND_WORKED] * 3])
    recording.ends.clear()
    assert assemble(recording, OUTCOME).run.stopped_because == "interrupted"


def test_launches_are_counted_and_their_time_is_summed() -> None:
    recording = recording_of([noisy(HAND_WORKED, rounds=4), noisy(HAND_WORKED, rounds=2, seed=1)])
    run = assemble(recording, OUTCOME).run
    assert (run.rounds, run.launches, run.measuring_seconds) == (6, 2, 60.0)
    assert run.half_width_reached is not None


def test_peak_memory_is_a_share_of_the_device_s() -> None:
    end = End(launch=0, reason="rounds", checks=(), peak_device_memory_bytes=(2**32, None, 2**33))
    assert profile_of(end=end).run.peak_device_memory_percent == pytest.approx(50)


def test_emulated_devices_are_never_called_measured() -> None:
    assert profile_of(machine_changes={"device": "emulated:v100"}).provenance.value == "emulated"
    assert profile_of().provenance.value == "measured"


def test_the_last_word_on_a_check_counts() -> None:
    end = End(
        launch=0,
        reason="rounds",
        checks=(Check(name="pinned", status="warn", message="Lost on the way.", next="Pin."),),
        peak_device_memory_bytes=(),
    )
    checks = {check.name: check for check in profile_of(end=end).checks}
    assert checks["pinned"].status == "warn"


def test_launches_that_chose_other_lead_ins_are_each_taken_at_their_own() -> None:
    short = recording_of([[HAND_WORKED] * 5], lead_in_iterations=2, lead_in_seconds=(1.0, 1.0))
    long = recording_of([[HAND_WORKED] * 5], lead_in_iterations=10, lead_in_seconds=(2.6, 2.6))
    for one in long.rounds:
        short.rounds.append(one.model_copy(update={"launch": 1}))
    later = assemble(short, OUTCOME).epoch.later
    assert later is not None
    # Both lead-ins took 0.6 s longer than as many even iterations of 0.2 s.
    assert later.seconds.estimate == pytest.approx(157 * 0.200 + 0.6)
