"""Estimates and intervals: worked by hand where possible, elsewhere simulated with fixed seeds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from stash.results import statistics

Draw = Callable[[np.random.Generator, int], np.ndarray]


def normal(random: np.random.Generator, count: int) -> np.ndarray:
    return random.normal(1.0, 0.25, count)


def contaminated(random: np.random.Generator, count: int) -> np.ndarray:
    """One round in ten is disturbed five times as much as the others."""
    spread = np.where(random.random(count) < 0.1, 1.25, 0.25)
    return 1.0 + spread * random.standard_normal(count)


@pytest.mark.parametrize("draw", [normal, contaminated], ids=["normal", "contaminated"])
@pytest.mark.parametrize("rounds", [3, 4, 5, 20, 36])
def test_the_interval_holds_the_truth_in_95_of_100_runs(draw: Draw, rounds: int) -> None:
    random = np.random.default_rng(rounds)
    runs = 1500
    found = [statistics.estimate([draw(random, rounds).tolist()]) for _ in range(runs)]
    covered = sum(one.low <= 1.0 <= one.high for one in found) / runs  # type: ignore[operator]
    assert 0.935 <= covered <= 0.985


def test_at_most_5_of_100_runs_find_a_stall_where_there_is_none() -> None:
    random = np.random.default_rng(7)
    runs = 1500
    alarms = sum(
        statistics.estimate(
            [random.normal(0, 0.25, 20).tolist()], iteration_seconds=1.0
        ).significant
        for _ in range(runs)
    )
    assert alarms / runs <= 0.065


def test_yuen_s_interval_agrees_with_one_worked_by_hand() -> None:
    values = [3.0, 100.0, 1.0, 8.0, 2.0, 4.0, 7.0, 5.0, 9.0, 6.0]
    found = statistics.estimate([values])
    # Kept: 3..8. Winsorised: 3 3 3 4 5 6 7 8 8 8, sum of squares about 5.5 is 42.5.
    assert found.value == pytest.approx(5.5)
    assert found.standard_error == pytest.approx(math.sqrt(42.5 / (6 * 5)))
    assert found.degrees_of_freedom == 5
    assert found.half_width == pytest.approx(2.570582 * math.sqrt(42.5 / 30), rel=1e-6)
    assert found.mean == pytest.approx(14.5)


@pytest.mark.parametrize("rounds", [[1.0, 40.0, 2.0], [1.0, 40.0, 2.0, 2.0]], ids=["3", "4"])
def test_one_spoiled_round_of_few_does_not_move_the_estimate(rounds: list[float]) -> None:
    found = statistics.estimate([rounds], iteration_seconds=1.0)
    assert found.value == 2.0 and not found.intermittent
    assert found.mean == pytest.approx(sum(rounds) / len(rounds))
    assert found.low is not None and found.low < 0  # how sure that is, all rounds tell


def test_few_rounds_have_the_mean_s_interval_made_wider_for_a_median() -> None:
    three, four = (
        statistics.estimate([[1.0, 2.0, 3.0]]),
        statistics.estimate([[1.0, 2.0, 3.0, 4.0]]),
    )
    # Variances of medians of three and four normal values: 0.4487 and 0.2982.
    assert three.standard_error == pytest.approx(math.sqrt(0.4487) * 1.0, rel=1e-3)
    assert four.standard_error == pytest.approx(math.sqrt(0.2982 * 5 / 3), rel=1e-3)
    assert (three.degrees_of_freedom, four.degrees_of_freedom) == (2, 3)


def test_the_smallest_detectable_stall_is_found_in_4_of_5_runs() -> None:
    random = np.random.default_rng(11)
    runs, rounds = 1500, 20
    noise = random.normal(0, 1, (runs, rounds))
    typical = float(np.median([statistics.estimate([row]).detectable for row in noise.tolist()]))
    again = random.normal(typical, 1, (runs, rounds))
    power = sum(statistics.estimate([row]).significant for row in again.tolist()) / runs
    assert 0.74 <= power <= 0.86


@pytest.mark.parametrize("rounds", [20, 36, 60])
def test_a_stall_of_80_ms_on_every_4th_iteration_reads_20_ms_and_is_called_intermittent(
    rounds: int,
) -> None:
    random = np.random.default_rng(5)
    values = [0.080 * (number % 4 == 0) + random.normal(0, 0.005) for number in range(rounds)]
    found = statistics.estimate([values], iteration_seconds=0.1)
    assert found.intermittent and found.significant
    assert found.value == pytest.approx(0.020, abs=0.003)
    assert found.value == found.mean
    assert statistics.trimmed_mean(values) < 0.010  # what the plain mean is needed for


def test_ordinary_noise_is_seldom_called_intermittent_and_then_still_covered() -> None:
    random = np.random.default_rng(6)
    runs = 1500
    found = [
        statistics.estimate([random.normal(0.02, 0.025, 36).tolist()], iteration_seconds=0.1)
        for _ in range(runs)
    ]
    assert sum(one.intermittent for one in found) / runs < 0.06
    assert sum(one.low <= 0.02 <= one.high for one in found) / runs >= 0.935  # type: ignore[operator]


def test_a_trifle_is_not_called_intermittent_however_sure_it_is() -> None:
    rounds = [0.0004 * (number % 4 == 0) for number in range(400)]
    assert not statistics.estimate([rounds], iteration_seconds=0.1).intermittent


def test_launches_are_the_unit_where_there_are_several() -> None:
    found = statistics.estimate([[10.0] * 50, [12.0] * 50, [14.0] * 20])
    assert found.value == pytest.approx(12.0)
    assert found.standard_error == pytest.approx(2 / math.sqrt(3))
    assert found.degrees_of_freedom == 2


def test_launches_that_differ_widen_the_interval_beyond_that_of_their_rounds() -> None:
    random = np.random.default_rng(8)
    runs, truth, covered, pooled_covered = 600, 1.0, 0, 0
    for _ in range(runs):
        launches = [
            (truth + random.normal(0, 0.2) + random.normal(0, 0.1, 20)).tolist() for _ in range(4)
        ]
        found = statistics.estimate(launches)
        pooled = statistics.estimate([[value for launch in launches for value in launch]])
        covered += found.low <= truth <= found.high  # type: ignore[operator]
        pooled_covered += pooled.low <= truth <= pooled.high  # type: ignore[operator]
    assert covered / runs >= 0.93
    assert pooled_covered / runs < 0.6


def test_the_interval_of_a_share_holds_the_truth_in_95_of_100_runs() -> None:
    random = np.random.default_rng(9)
    runs, covered = 1500, 0
    for _ in range(runs):
        machine_speed = random.normal(1.0, 0.1, 24)  # drift that both steps share
        base = machine_speed * random.normal(0.130, 0.005, 24)
        whole = machine_speed * random.normal(0.200, 0.010, 24)
        found = statistics.ratio([(whole - base).tolist()], [whole.tolist()])
        covered += found.low <= 0.35 <= found.high  # type: ignore[operator]
    assert 0.93 <= covered / runs <= 0.975


def test_a_share_of_two_constants_is_their_ratio() -> None:
    found = statistics.ratio([[1.0] * 5], [[4.0] * 5])
    assert found.value == 0.25
    assert found.standard_error == pytest.approx(0.0)


def test_a_rare_long_wait_is_a_share_of_the_time_that_it_really_takes() -> None:
    waits = [1.0 if number % 5 == 0 else 0.0 for number in range(50)]
    whole = [0.1 + wait for wait in waits]
    found = statistics.ratio([waits], [whole], intermittent=True, base_intermittent=True)
    assert found.value == pytest.approx(0.2 / 0.3)


def test_one_round_has_a_value_but_no_interval_and_nothing_is_significant() -> None:
    for found in (statistics.estimate([[3.0]]), statistics.plain_mean([[3.0]])):
        assert found.value == 3.0
        assert (found.low, found.high, found.half_width, found.detectable) == (None,) * 4
        assert not found.significant and not found.intermittent


def test_no_rounds_are_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="at least one round"):
        statistics.plain_mean([[]])


def test_an_epoch_s_doubt_is_ours_plus_the_scatter_of_its_iterations() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]  # variance 2.5, standard error of the mean sqrt(0.5)
    half = statistics.prediction_half_width([values], iterations_per_block=4, iterations=100)
    quantile = float(stats.t.ppf(0.975, 4))
    assert half == pytest.approx(quantile * math.sqrt(0.5 + 2.5 * 4 / 100))
    assert statistics.prediction_half_width([[1.0]], iterations_per_block=1, iterations=9) is None


def test_a_launch_to_come_may_differ_as_much_as_the_launches_seen() -> None:
    launches = [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]  # between launches: variance 1, error sqrt(1/3)
    half = statistics.prediction_half_width(launches, iterations_per_block=1, iterations=10)
    assert half == pytest.approx(float(stats.t.ppf(0.975, 2)) * math.sqrt(1 / 3 + 1))
    scattered = [[0.5, 1.5], [1.5, 2.5], [2.5, 3.5]]  # the same, and 0.5 within each
    half = statistics.prediction_half_width(scattered, iterations_per_block=4, iterations=10)
    assert half == pytest.approx(float(stats.t.ppf(0.975, 2)) * math.sqrt(1 / 3 + 1 + 0.5 * 0.4))
