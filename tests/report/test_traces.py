"""What raw blocks tell: drift, slow workers, load over the run."""

from __future__ import annotations

import numpy as np
import pytest

from profiles import HAND_WORKED, noisy, profile_of
from stash.report.traces import at_seconds, drift, load_over_time, workers
from stash.results.profile import Profile


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
