"""Profiles against each other: differences, ratios, and what may not be compared."""

from __future__ import annotations

import numpy as np
import pytest

from profiles import HAND_WORKED, noisy, profile_of
from stash.results.comparison import compare, difference, ratio, unlike
from stash.results.document import derived


def test_a_difference_and_its_interval_by_hand() -> None:
    found = difference(derived(10, 7, 14), derived(20, 16, 23))
    assert found.estimate == 10
    assert found.low == pytest.approx(10 - np.hypot(4, 4))
    assert found.high == pytest.approx(10 + np.hypot(3, 3))


def test_an_estimate_without_interval_makes_a_difference_without_one() -> None:
    found = difference(derived(10), derived(20, 16, 23))
    assert (found.estimate, found.low, found.high) == (10, None, None)


def test_the_same_thing_measured_twice_seldom_differs() -> None:
    alarms = 0
    for seed in range(40):
        one = profile_of(noisy(HAND_WORKED, seed=2 * seed, noise_seconds=0.01))
        other = profile_of(noisy(HAND_WORKED, seed=2 * seed + 1, noise_seconds=0.01))
        change = compare([one, other], ["prep"])[1][0]
        assert change is not None
        alarms += change.significant
    assert alarms <= 7  # 5 % are 2


def test_a_real_difference_is_found_with_its_sign() -> None:
    slower = profile_of(noisy({**HAND_WORKED, "warm": 0.26}, seed=1))
    change = compare([profile_of(), slower], ["prep"])[1][0]
    assert change is not None and change.difference is not None
    assert change.significant and change.difference.estimate == pytest.approx(0.15, abs=0.02)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"workload_changes": {"batch_per_worker": 8}}, "workload.batch_per_worker is 32"),
        ({"workload_changes": {"dtype": "bf16"}}, "workload.dtype is fp32"),
        ({"machine_changes": {"torch": "2.6.0"}}, "machine.torch is 2.13.0"),
    ],
)
def test_unlike_profiles_are_not_subtracted(changes: dict[str, object], field: str) -> None:
    other = profile_of(**changes)  # type: ignore[arg-type]
    assert field in str(unlike(profile_of(), other))
    change = compare([profile_of(), other], ["prep"])[1][0]
    assert change is not None and change.difference is None and not change.significant


def test_another_machine_is_what_one_wants_to_compare() -> None:
    changes = {"host": "other", "cores": 64, "workers_per_node": 2, "device": "emulated:v100"}
    assert unlike(profile_of(), profile_of(machine_changes=changes)) is None


def test_unlike_profiles_are_subtracted_where_somebody_insists() -> None:
    other = profile_of(workload_changes={"batch_per_worker": 8})
    change = compare([profile_of(), other], ["prep"], anyway=True)[1][0]
    assert change is not None and change.difference is not None


def test_a_ratio_ends_where_its_difference_may_be_zero() -> None:
    one, other = derived(10, 8, 11), derived(20, 17, 24)
    found = ratio(one, other)
    assert found.estimate == 2 and found.low is not None and found.high is not None
    for end, which in ((found.low, "low"), (found.high, "high")):
        scaled = derived(end * 10, end * 8, end * 11)
        assert getattr(difference(scaled, other), which) == pytest.approx(0, abs=1e-9)
    assert found.low < 2 < found.high


def test_a_ratio_holds_the_true_one_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        means = random.normal([10.0, 15.0], [0.4, 0.3])
        one, other = (
            derived(mean, mean - 1.96 * sd, mean + 1.96 * sd)
            for mean, sd in zip(means, (0.4, 0.3), strict=True)
        )
        found = ratio(one, other)
        assert found.low is not None and found.high is not None
        held += found.low <= 1.5 <= found.high
    assert 0.92 < held / 400 < 0.98


def test_a_ratio_to_what_may_be_nothing_has_no_interval() -> None:
    assert ratio(derived(1, -1, 3), derived(5, 4, 6)).low is None
