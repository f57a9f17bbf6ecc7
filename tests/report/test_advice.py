"""Advice: only on stalls that are there, with numbers that follow from the measured rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from profiles import HAND_WORKED, noisy, profile_of
from stash.report.advice import Advice, _fetch, _LoaderPlan, advise
from stash.results.document import derived
from stash.results.profile import Profile
from stash.results.recording import Rate

QUIET = {"solo": 0.100, "unsynced": 0.1002, "node": 0.1001, "warm": 0.1003, "cold": 0.1002}


def advice_on(stall: str | None, profile: Profile) -> Advice:
    return next(one for one in advise(profile) if one.stall == stall)


def with_rates(preprocessing: float, storage: float = 256.0, **changes: Any) -> Profile:
    rates = {
        "preprocessing": Rate(samples_per_second=(preprocessing,) * 3),
        "storage": Rate(samples_per_second=(storage,) * 3),
    }
    return profile_of([HAND_WORKED] * 20, facts_changes=rates, **changes)


def test_the_largest_stall_comes_first() -> None:
    assert [one.stall for one in advise(profile_of())][:3] == [
        "prep", "communication", "contention",
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_advised_on_a_stall_that_is_not_significant(seed: int) -> None:
    rounds = noisy({**HAND_WORKED, "unsynced": 0.101, "cold": 0.201}, noise_seconds=0.02, seed=seed)
    profile = profile_of(rounds)
    for one in advise(profile):
        assert one.stall is None or profile.stalls[one.stall].significant
        assert one.stall is None or profile.stalls[one.stall].seconds_per_iteration.estimate > 0


def test_quiet_runs_have_nothing_worth_fixing() -> None:
    (only,) = advise(profile_of(noisy(QUIET, noise_seconds=0.002)))
    assert only.stall is None and only.gain_share == 0
    assert only.sentence.startswith("Nothing worth fixing")


def test_trifles_are_not_worth_fixing_however_sure() -> None:
    (only,) = advise(profile_of(noisy(QUIET, noise_seconds=1e-6)))
    assert only.stall is None


def test_one_round_is_too_little_for_advice() -> None:
    (only,) = advise(profile_of([HAND_WORKED]))
    assert only.sentence.startswith("Too few rounds")


def test_loader_workers_needed_follow_from_the_rates() -> None:
    # Devices take 64/0.130 = 492 samples/s; 4 loader workers prepare 320, so 80 each: 6.2 needed.
    advice = advice_on("prep", with_rates(320, machine_changes={"cores": 16}))
    assert "Use 4 loader workers per worker instead of 2" in advice.sentence
    assert "80 samples/s" in advice.sentence and "492" in advice.sentence
    assert advice.gain_share == pytest.approx(0.35)


def test_too_few_cores_are_said_with_their_number() -> None:
    # 32 samples/s a loader worker: 16 in all are not enough, 8 a worker; 18 cores with training.
    advice = advice_on("prep", with_rates(128))
    assert "takes 8 loader workers per worker" in advice.sentence
    assert "18 cores in all; this machine has 8" in advice.sentence
    assert "Use 3 per worker" in advice.sentence
    # A batch takes 1/2 of a loader's time now, 1/3 with three, 1/7.69 where it is hidden.
    hidden = 0.130 / 1.0
    assert advice.gain_share == pytest.approx(0.35 * (1 / 2 - 1 / 3) / (1 / 2 - hidden))


def test_on_processors_training_needs_its_cores_itself() -> None:
    machine: Mapping[str, Any] = {"device": "cpu", "cores": 4, "threads_per_worker": 2}
    advice = advice_on("prep", with_rates(128, machine_changes=machine))
    assert "this machine has 4" in advice.sentence
    assert "More loader workers will not help here" in advice.sentence
    assert advice.gain_share == pytest.approx(0.35)


def test_loaders_that_are_fast_enough_alone_are_not_multiplied() -> None:
    advice = advice_on("prep", with_rates(1000))
    assert "more will not help" in advice.sentence


def test_no_loader_workers_at_all_are_counted_as_the_worker_itself() -> None:
    profile = with_rates(320, machine_changes={"cores": 16}, workload_changes={"loader_workers": 0})
    assert "Use 2 loader workers per worker instead of 0" in advice_on("prep", profile).sentence


def test_copying_is_named_where_it_is_most_of_prep() -> None:
    rounds = [{**HAND_WORKED, "staged": 0.190}] * 20
    assert "pin_memory=True" in advice_on("prep", profile_of(rounds)).sentence


def test_storage_is_advised_in_samples_and_in_bytes() -> None:
    # 1 GB in 10,000 samples is 100 kB each; preprocessing's 320 samples/s are the pace.
    advice = advice_on("fetch", with_rates(320, 256))
    assert "256 samples/s (26 MB/s), 320 (32 MB/s) are needed" in advice.sentence
    assert "fits in memory" in advice.sentence
    assert advice.only_first_epoch
    assert advice.gain_share == pytest.approx(0.20)
    assert advise(with_rates(320, 256))[-1] == advice


def test_data_that_does_not_fit_in_memory_is_paid_for_in_every_epoch() -> None:
    profile = with_rates(320, 256, workload_changes={"data_bytes": 10**12})
    advice = advice_on("fetch", profile)
    assert "does not fit in memory" in advice.sentence and "every epoch" in advice.sentence
    assert not advice.only_first_epoch


def test_storage_without_known_sizes_is_advised_in_samples_only() -> None:
    profile = with_rates(320, 256, workload_changes={"data_bytes": None})
    sentence = advice_on("fetch", profile).sentence
    assert "256 samples/s, 320 are needed" in sentence and "MB" not in sentence


def test_storage_that_is_fast_enough_alone_points_at_latency() -> None:
    assert "latency" in advice_on("fetch", with_rates(320, 5000)).sentence


def test_interconnect_that_was_not_split_asks_for_the_step_that_splits_it() -> None:
    rounds = noisy({step: HAND_WORKED[step] for step in ("solo", "node", "warm")})
    assert "unsynced" in advice_on("interconnect", profile_of(rounds)).sentence


def test_without_loader_workers_one_that_computes_beside_training_helps() -> None:
    """Preparing takes 1 / 0.45 of computing: one loader worker hides computing, and only that."""
    plan = _LoaderPlan(
        workers=2,
        loader_workers=0,
        needed=3,
        affordable=1,
        cores=4,
        devices_rate=derived(1000.0),
        rate_per_loader_worker=225.0,
        cores_busy=2,
    )
    assert plan.advice(0.4).gain_share == pytest.approx(0.4 * 0.45)


@pytest.mark.parametrize(
    ("nodes", "gigabytes", "fits"), [(1, 60, False), (2, 100, False), (1, 50, True)]
)
def test_what_is_said_of_memory_is_what_files_can_have_of_one_node(
    nodes: int, gigabytes: int, fits: bool
) -> None:
    """Of 64 GB files can have 51 GB; every node reads all samples in time."""
    profile = profile_of(noisy(HAND_WORKED))
    profile = profile.model_copy(
        update={
            "workload": profile.workload.model_copy(update={"data_bytes": gigabytes * 10**9}),
            "machine": profile.machine.model_copy(
                update={"memory_bytes": 64 * 10**9, "nodes": nodes}
            ),
        }
    )
    fetch = _fetch(profile, profile.stalls["fetch"])
    assert fetch is not None and fetch.only_first_epoch is fits
    assert ("fits in memory (51 GB" in fetch.sentence) is fits
    assert ("does not fit in memory (51 GB" in fetch.sentence) is not fits
