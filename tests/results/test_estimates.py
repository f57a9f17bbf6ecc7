"""From rounds to estimates: drift within rounds, several launches, and what is least sure."""

from __future__ import annotations

import pytest

from profiles import HAND_WORKED, rounds_of
from stash.results import statistics
from stash.results.estimates import Times


def spread(step: str, by: float, rounds: int = 10) -> list[dict[str, float]]:
    """The hand-worked steps, one of which is by turns longer and shorter."""
    return [
        {**HAND_WORKED, step: HAND_WORKED[step] + (by if number % 2 else -by)}
        for number in range(rounds)
    ]


def test_the_least_sure_stall_is_the_one_that_counts() -> None:
    times = Times.of(rounds_of([spread("cold", 0.05)]))
    widths = {name: stall.half_width for name, stall in times.stalls().items()}
    assert widths["prep"] == pytest.approx(0) and widths["fetch"] is not None
    # A whole iteration is `warm`, 200 ms.
    assert times.widest_half_width() == pytest.approx(widths["fetch"] / 0.200)
    assert widths["fetch"] > 0.01


def test_without_an_interval_for_every_stall_none_is_the_widest() -> None:
    assert Times.of(rounds_of([[HAND_WORKED]])).widest_half_width() is None
    assert Times.of(rounds_of([[{"node": 0.1}] * 5])).widest_half_width() is None


def test_rounds_are_grouped_by_launch_and_stay_in_order() -> None:
    first, second = [{"node": 1.0}, {"node": 2.0}], [{"node": 3.0}]
    times = Times.of(rounds_of([first, second]))
    assert times.by_step == {"node": [[1.0, 2.0], [3.0]]}
    assert times.steps == {"node"}


def test_a_combination_is_taken_within_each_round_of_each_launch() -> None:
    launches = [[{"node": 1.0, "solo": 0.5}, {"node": 3.0, "solo": 1.0}]] * 2
    combined = Times.of(rounds_of(launches)).combine(((+1, "node"), (-1, "solo")))
    assert combined == [[0.5, 2.0], [0.5, 2.0]]


def test_drift_that_all_steps_share_widens_no_stall() -> None:
    rounds = [
        {step: seconds + 0.01 * number for step, seconds in HAND_WORKED.items()}
        for number in range(12)
    ]
    times = Times.of(rounds_of([rounds]))
    assert times.step("node").half_width > 0.01  # type: ignore[operator]
    assert times.widest_half_width() == pytest.approx(0, abs=1e-9)


def test_a_step_is_told_by_its_mean_only_where_it_holds_an_intermittent_stall() -> None:
    rounds = [
        {**HAND_WORKED, "warm": HAND_WORKED["warm"] + (0.2 if number % 5 == 0 else 0.0)}
        for number in range(40)
    ]
    times = Times.of(rounds_of([rounds]))
    assert times.step("warm").value == pytest.approx(0.240)
    assert times.step("node").value == pytest.approx(0.130)
    assert times.stalls()["prep"].intermittent and not times.stalls()["interconnect"].intermittent
    # Compute itself is the base of everything and is never taken by its mean.
    uneven = [{**one, "solo": 0.3 if number % 5 == 0 else 0.1} for number, one in enumerate(rounds)]
    assert Times.of(rounds_of([uneven])).step("solo").value == pytest.approx(
        statistics.trimmed_mean([one["solo"] for one in uneven])
    )


def test_without_a_step_of_compute_nothing_is_called_intermittent() -> None:
    rounds = [{"warm": 0.4 if number % 5 == 0 else 0.2} for number in range(40)]
    assert Times.of(rounds_of([rounds])).step("warm").value == pytest.approx(0.2)


def test_an_intermittent_stall_is_found_also_where_compute_itself_varies() -> None:
    """Iterations vary by half; one in five waits for 50 ms: in the difference that stands out."""
    rounds = [
        {"solo": (solo := 0.1 + 0.01 * (7 * number % 11)), "node": solo + 0.05 * (number % 5 == 0)}
        for number in range(40)
    ]
    times = Times.of(rounds_of([rounds]))
    assert times.difference(((+1, "node"), (-1, "solo"))).intermittent
    assert not times.difference(((+1, "node"), (+1, "solo"))).intermittent
    mean = sum(one["node"] for one in rounds) / len(rounds)
    assert times.step("node").value == pytest.approx(mean)
