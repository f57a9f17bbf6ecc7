"""Profiles against each other, and what raw blocks tell: drift and slow workers."""

from __future__ import annotations

import numpy as np
import pytest

from profiles import HAND_WORKED, noisy, profile_of
from stash.report.traces import at_seconds, drift, load_over_time, workers
from stash.results.comparison import compare, difference, unlike
from stash.results.document import derived
from stash.results.profile import Profile


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


def test_drift_is_found_where_there_is_some_and_not_where_there_is_none() -> None:
    steady = noisy(HAND_WORKED, rounds=60)
    slowing = [
        {step: seconds * (1.2 if number >= 30 else 1.0) for step, seconds in one.items()}
        for number, one in enumerate(steady)
    ]
    found = drift(profile_of(slowing))
    assert found is not None and found.low is not None and found.low > 0
    assert found.estimate == pytest.approx(0.2, abs=0.02)
    quiet = drift(profile_of(steady))
    assert quiet is not None and abs(quiet.estimate) < 0.02
    assert drift(profile_of(steady[:8])) is None


def with_worker_times(own: tuple[float, ...], noise: float) -> Profile:
    """Workers at their own pace in step unsynced."""
    random = np.random.default_rng(0)
    made = profile_of(noisy(HAND_WORKED, rounds=30), machine_changes={"workers_per_node": len(own)})
    step = made.steps["unsynced"]
    blocks = tuple(
        block.model_copy(
            update={
                "seconds": tuple(
                    2 * (seconds + noise * float(random.standard_normal())) for seconds in own
                )
            }
        )
        for block in step.blocks
    )
    steps = {**made.steps, "unsynced": step.model_copy(update={"blocks": blocks})}
    return made.model_copy(update={"steps": steps})


def test_a_slow_worker_is_named_and_only_it() -> None:
    found = workers(with_worker_times((0.1, 0.1, 0.115, 0.1), noise=0.004))
    assert found is not None and found.step == "unsynced"
    assert [one.slow for one in found.workers] == [False, False, True, False]
    assert found.workers[2].seconds_per_iteration.estimate == pytest.approx(0.115, abs=0.003)


def test_among_many_equal_workers_chance_names_none() -> None:
    found = workers(with_worker_times((0.1,) * 64, noise=0.01))
    assert found is not None and not any(one.slow for one in found.workers)


def test_a_difference_that_holds_nobody_up_is_no_slowness() -> None:
    found = workers(with_worker_times((0.1, 0.1002), noise=1e-6))
    assert found is not None and not any(one.slow for one in found.workers)


def test_launches_follow_each_other_and_load_is_their_rounds() -> None:
    made = profile_of(noisy(HAND_WORKED, rounds=4))
    loads = load_over_time(made)
    assert [load.at_seconds for load in loads] == [10.0, 20.0, 30.0, 40.0]
    assert {round(load.cpu_percent, 6) for load in loads} == {50.0}  # half of 8 cores
    step = made.steps["warm"]
    again = tuple(block.model_copy(update={"launch": 1}) for block in step.blocks)
    two = step.model_copy(update={"blocks": step.blocks + again})
    when = at_seconds(made.model_copy(update={"steps": {"warm": two}}))
    assert [when(block) for block in two.blocks] == [10.0 * n for n in range(1, 9)]
