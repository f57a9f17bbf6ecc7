"""Who is slow, worked by hand from blocks in which nobody waits for anybody."""

from __future__ import annotations

import pytest

from profiles import block
from stash.results.pace import Worker, workers_of
from stash.results.recording import Block
from stash.results.student import quantile


def blocks(*seconds: tuple[float | None, ...]) -> list[Block]:
    """Blocks of two iterations, one row a round."""
    return [block("unsynced", 0.1, iterations=2, seconds=row) for row in seconds]


def second_of(*seconds: tuple[float | None, ...]) -> Worker:
    found = workers_of("unsynced", blocks(*seconds))
    assert found is not None
    return found.workers[1]


def test_a_lag_is_over_the_mean_of_all_workers_in_the_same_round() -> None:
    found = workers_of("unsynced", blocks((1.0, 3.0), (3.0, 5.0)))
    assert found is not None and found.step == "unsynced"
    assert [worker.number for worker in found.workers] == [0, 1]
    assert [worker.lag.estimate for worker in found.workers] == [-0.5, 0.5]
    assert [worker.seconds_per_iteration.estimate for worker in found.workers] == [1.0, 2.0]
    assert found.mean_seconds_per_iteration == 1.5


def test_two_workers_in_two_rounds_are_the_least() -> None:
    assert workers_of("unsynced", blocks((1.0, 3.0))) is None
    assert workers_of("unsynced", blocks((1.0,), (1.0,))) is None
    assert workers_of("unsynced", []) is None
    assert workers_of("unsynced", blocks((1.0, None), (1.0, 2.0), (1.0, None))) is None


def test_a_worker_is_slow_only_where_that_is_worth_a_word() -> None:
    # The mean is 100 s an iteration, so a second is a hundredth of it.
    assert not second_of(*[(198.0, 202.0)] * 3).slow
    assert second_of(*[(197.0, 203.0)] * 3).slow
    assert not second_of(*[(202.0, 198.0)] * 3).slow


def test_a_worker_is_slow_only_where_that_is_sure_for_all_workers_at_once() -> None:
    """Two questions are asked, so each has half of the five percent."""
    lags = [1.0, 2.0, 3.0, 4.0, 5.0]  # trimmed: 3; winsorised 2 2 3 4 4, kept 3
    error = (4 / (3 * 2)) ** 0.5 * 1.0
    for sure, slow in ((quantile(1 - 0.025 / 2, 2), True), (quantile(1 - 0.025, 2), False)):
        moved = sure * error - 3.0 + 0.01  # the lower end of that interval is 0.01
        worker = second_of(*[(20 - 2 * (lag + moved), 20 + 2 * (lag + moved)) for lag in lags])
        assert worker.lag.estimate == pytest.approx(3.0 + moved)
        assert worker.lag.estimate > 0.1  # a hundredth of the mean
        assert worker.slow is slow
