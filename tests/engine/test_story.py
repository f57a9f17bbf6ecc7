"""The story in detail, in fake time: what it tells, when it decides, how long it makes blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from engine.worlds import ALL, QUIET, FakeWorker, ThreadGang, World, plan_of, steady
from profiles import rounds_of
from stash.engine.feed import Window
from stash.engine.measure import (
    Measurement,
    _block_of,
    _bursts_to_fill,
    _even_after,
    _settled,
    elapsed_per_round,
)
from stash.results.recording import Phase
from stash.results.steps import STEP_BY_NAME

TRUE = {"solo": 0.10, "unsynced": 0.12, "node": 0.15, "warm": 0.20, "cold": 0.30}


# What is told.


def test_every_phase_is_told_once_in_order_and_beats() -> None:
    world = World(steady(**TRUE)).run(plan_of(max_rounds=1))
    phases = [event.name for event in world.events if isinstance(event, Phase)]
    assert phases == ["recording", "warming up", "calibrating", "loader rates", "measuring"]
    for worker in world.workers:
        assert [beat for beat in dict.fromkeys(worker.beats) if beat in phases] == phases


def test_a_worker_beats_whatever_it_does() -> None:
    world = World(steady(**TRUE)).run(plan_of(max_rounds=2))
    first, second = (worker.beats for worker in world.workers)
    assert first.count("warming up") == 1 + world.facts.calibration.warm_up_iterations
    assert first.count("loader rates") == 1 + 5
    lead = world.facts.calibration.lead_in_iterations
    for step in ALL:  # at its begin, in its lead-in, and where others have caught up after it
        assert first.count(step) == 2 * (1 + lead[step] + (step == "solo"))
    assert second.count("held") == 2 and "held" not in first
    assert second.count("catching up") == 2 and "catching up" not in first
    assert first.count("waiting") == 2 and "waiting" not in second


SLOW = {"solo": 4.0, "spread": 4.0, "node": 4.0, "cluster": 4.0, "scaleout": 4.0, "warm": 4.0}


def test_a_slow_run_is_never_silent_for_longer_than_it_tells() -> None:
    """Two nodes, iterations of 4 s, a time-out of 5 s: blocks take longer than that, and go on."""
    world = World(steady(**SLOW), unit=4, prefetched=8, timeout=5.0)
    world.run(plan_of("solo", "node", "warm", "scaleout", max_rounds=2, nodes=2))
    assert world.facts.calibration.lead_in_iterations["warm"] * 4.0 > 5.0
    assert max(worker.longest_silence for worker in world.workers) <= 5.0


def test_not_all_workers_say_that_others_hold_them() -> None:
    """Somebody must be found to hang where nobody moves on."""
    world = World(steady(**SLOW), size=4)
    world.run(plan_of("solo", "node", "warm", "scaleout", max_rounds=2, nodes=2))
    assert not world.all_held and "held" in world.workers[3].beats


def test_workers_are_watched_in_every_block_and_only_there() -> None:
    watched: list[tuple[str, int]] = []

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        watched.append((mode, world.workers[rank].watched))
        return {**TRUE, "idle": 0.1}[mode]

    world = World(durations)
    world.run(plan_of("solo", "unsynced", max_rounds=3))
    assert {count for mode, count in watched if mode in ("solo", "unsynced")} == {1}
    assert {count for mode, count in watched if mode == "idle"} == {0}


@pytest.mark.parametrize(("peaks", "told"), [((7, None), (7, None)), ((0, 3), (0, 3))])
def test_the_end_tells_everybodys_peak(peaks: tuple[Any, ...], told: tuple[Any, ...]) -> None:
    world = World(steady(**TRUE))
    for worker, peak in zip(world.workers, peaks, strict=True):
        worker.peak = peak
    assert world.run(plan_of("node", max_rounds=1)).end.peak_device_memory_bytes == told


def test_what_loaders_read_is_counted_over_all_workers() -> None:
    def durations(rank: int, mode: str, since: int, now: float) -> float:
        world.workers[rank].bytes_read += (rank + 1) * 100 * (mode == "cold")  # type: ignore[operator]
        return 0.1

    world = World(durations)
    world.run(plan_of("node", "warm", "cold", max_rounds=2))
    blocks = {block.step: block for block in world.rounds[-1].blocks}
    cold, calibration = blocks["cold"], world.facts.calibration
    iterations = calibration.lead_in_iterations["cold"] + calibration.block_iterations["cold"]
    assert cold.loader_read_bytes == 300 * iterations
    assert (cold.loader_file_bytes, blocks["warm"].loader_read_bytes) == (2 * 4096, 0)
    assert (blocks["node"].loader_read_bytes, blocks["node"].loader_file_bytes) == (None, None)


@pytest.mark.parametrize("unknown", ["counter", "files"])
def test_what_one_worker_cannot_count_is_not_claimed_for_all(unknown: str) -> None:
    world = World(steady(**TRUE))
    if unknown == "counter":
        world.workers[1].bytes_read = None
    else:
        world.workers[1].file_bytes = 0
    world.run(plan_of("node", "cold", max_rounds=1))
    cold = next(block for block in world.rounds[0].blocks if block.step == "cold")
    assert (cold.loader_read_bytes, cold.loader_file_bytes) == (None, None)


def test_a_block_keeps_zeros_and_leaves_out_who_was_held() -> None:
    made = _block_of(
        STEP_BY_NAME["cold"], 2, 3, [[0.0, 0.5, -1.0, 0, 8], [-1.0, -1.0, 0.7, 5, 8]], QUIET
    )
    assert made.held_seconds == (None, 0.7)
    assert (made.seconds, made.lead_in_seconds) == ((0.0, None), (0.5, None))
    assert (made.loader_read_bytes, made.loader_file_bytes) == (5, 16)
    assert (made.iterations, made.lead_in_iterations) == (3, 2)
    zero = _block_of(STEP_BY_NAME["cold"], 1, 1, [[1.0, 0.0, -1.0, -1, 8]], QUIET)
    assert zero.held_seconds == ()
    assert (zero.lead_in_seconds, zero.loader_read_bytes) == ((0.0,), None)


# When it goes on.


def test_warm_up_runs_with_exchange_and_waits_for_the_device_after_every_chunk() -> None:
    world = World(steady(node=0.1)).run(plan_of("node", max_rounds=1))
    assert world.workers[0].log[:11] == [
        "set node",
        *["iterate node"] * 4,
        "synchronize",
        *["iterate node"] * 4,
        "synchronize",
    ]
    assert world.facts.calibration.warm_up_iterations == 8


def rising(by: float, first: float) -> Callable[[int, str, int, float], float]:
    """Iterations that never settle: each takes longer than the one before."""
    seconds = {"next": first}

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        seconds["next"] *= by
        return seconds["next"]

    return durations


def test_warm_up_is_given_up_after_half_a_minute_or_200_iterations() -> None:
    slow = World(rising(1.3, 0.5), size=1).run(plan_of("node", max_rounds=1)).facts.calibration
    # 0.5 * (1.3 + 1.3^2 + ...): 8 iterations take 15.5 s, 12 take 48.3 s.
    assert (slow.warm_up_iterations, slow.warm_up_settled) == (12, False)
    long = World(rising(1.06, 1e-6), size=1).run(plan_of("node", max_rounds=1)).facts.calibration
    assert (long.warm_up_iterations, long.warm_up_settled) == (200, False)


def test_one_worker_that_has_not_settled_keeps_all_warming_up() -> None:
    count = {0: 0, 1: 0}

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        count[rank] += 1
        return 0.1 if rank == 0 else 0.1 + 2.0 / count[rank]

    calibration = World(durations).run(plan_of("node", max_rounds=1)).facts.calibration
    assert calibration.warm_up_settled and calibration.warm_up_iterations > 8


@pytest.mark.parametrize(
    ("times", "settled"),
    [
        ([1.0] * 7, False),  # too few to tell
        ([1.0] * 8, True),
        ([9.0] * 4 + [1.0] * 4, True),  # only the later half counts
        ([1.0] * 6 + [1.1] * 2, True),  # 1 and 1.1 differ by 9.5 % of their mean
        ([1.0] * 6 + [1.12] * 2, False),
        ([1.0] * 4 + [1.12] * 2 + [1.0] * 2, False),
        # 1.0 and 1.3 by turns, then 1.2 and 1.5: apart by 0.2, two standard errors are 0.42.
        ([1.0] * 4 + [1.0, 1.3, 1.2, 1.5], True),
        # As far apart, with a spread of 0.02: two standard errors are 0.028.
        ([1.0] * 4 + [1.0, 1.02, 1.2, 1.22], False),
    ],
)
def test_two_halves_agree_within_a_tenth_or_two_standard_errors(
    times: list[float], settled: bool
) -> None:
    assert _settled(times) is settled


@pytest.mark.parametrize(
    ("at", "seconds"),
    [([], 0.0), ([9.0], 0.0), ([1.0, 3.0], 2.0), ([0.0, 50.0, 51.0, 53.0, 56.0], 2.0)],
)
def test_a_round_takes_what_the_last_few_took(at: list[float], seconds: float) -> None:
    rounds = [
        one.model_copy(update={"at_seconds": when})
        for one, when in zip(rounds_of([[{"node": 1.0}] * len(at)]), at, strict=True)
    ]
    assert elapsed_per_round(rounds) == pytest.approx(seconds)


def test_money_is_counted_for_every_node_and_with_the_next_round() -> None:
    # A round takes 0.2 s and costs 0.0002 dollars an hour's 3.6 on one node, twice that on two.
    counts = []
    for nodes in (1, 2):
        plan = plan_of(
            "unsynced", "node", max_usd=0.01, price_usd_per_hour=3.6, nodes=nodes, half_width=1e-9
        )
        ended = World(uneven(), size=nodes).run(plan)
        assert ended.end.reason == "max-usd"
        spent = ended.rounds[-1].at_seconds / 3600 * 3.6 * nodes
        a_round = elapsed_per_round(ended.rounds) / 3600 * 3.6 * nodes
        assert spent <= 0.01 < spent + a_round
        counts.append(len(ended.rounds))
    assert counts[0] > 2 * counts[1] > 0


@pytest.mark.parametrize("limit", ["max_usd", "max_seconds"])
def test_a_limit_is_for_the_end_of_the_next_round(limit: str) -> None:
    exact = steady(unsynced=0.125, node=0.25)  # sums of these have no rounding

    def run(**limits: float) -> World:
        # At 3600 dollars an hour, a second costs a dollar.
        plan = plan_of("unsynced", "node", min_rounds=1000, price_usd_per_hour=3600.0, **limits)
        return World(exact, size=1).run(plan)

    whole = run(max_rounds=40).rounds
    next_end = whole[-1].at_seconds + elapsed_per_round(whole)
    assert len(run(**{limit: next_end}).rounds) == 41
    assert len(run(**{limit: next_end * (1 - 1e-5)}).rounds) == 40


def uneven() -> Callable[[int, str, int, float], float]:
    """Steps whose difference is never the same, so that nothing is ever sure."""
    turn: Counter[int] = Counter()

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        turn[rank] += 1
        return 0.05 + 0.01 * (turn[rank] * 7 % 5)

    return durations


def test_a_limit_that_is_reached_exactly_is_kept() -> None:
    plan = plan_of("unsynced", "node", max_rounds=5, max_seconds=1e6, max_usd=1e6)
    world = World(uneven(), size=1).run(plan.model_copy(update={"price_usd_per_hour": 1.0}))
    assert (world.end.reason, len(world.rounds)) == ("rounds", 5)


def test_sure_enough_is_at_most_what_was_asked() -> None:
    exact = steady(unsynced=0.125, node=0.25)  # sums of these have no rounding
    for least in (20, 3):
        plan = plan_of("unsynced", "node", half_width=0.0, min_rounds=least, max_seconds=60.0)
        world = World(exact, size=1).run(plan)
        assert (world.end.reason, len(world.rounds)) == ("half-width", least)


# How long blocks are.


@pytest.mark.parametrize(
    ("bursts", "most", "lead"),
    [
        ([1.0, 1.0, 1.0, 1.0], 2, 1),
        ([3.0, 2.0, 1.0, 1.0], 3, 2),
        ([3.0, 2.0, 1.5, 1.0, 1.0], 3, 3),
        ([3.0, 2.0, 1.5, 1.0, 1.0], 2, 2),  # never more than there is
        ([1.0, 1.09, 1.0, 1.0], 3, 1),
        ([1.0, 1.11, 1.0, 1.0], 3, 2),
        ([2.0, 2.15, 2.0, 2.0], 3, 1),
        ([0.5, 0.56, 0.5, 0.5], 3, 2),
        ([2.0, 2.0, 1.0, 2.0], 3, 3),  # even is the mean of the last two: 1.5
        ([1.0], 1, 1),
    ],
)
def test_the_lead_in_ends_where_every_later_burst_is_even(
    bursts: list[float], most: int, lead: int
) -> None:
    assert _even_after(bursts, most=most) == lead


@pytest.mark.parametrize(
    ("first", "turnovers"),
    [
        (1.0, 2),  # loaders are far faster: twice is enough to forget the start
        (1.5, 2),  # half as long as training
        (1.7, 4),  # 1 / 0.3
        (1.78, 5),  # 1 / 0.22
        (1.9, 6),  # 1 / 0.1, and no more than six
        (2.5, 6),
    ],
)
def test_the_nearer_loaders_are_to_training_the_longer_a_queue_takes(
    first: float, turnovers: int
) -> None:
    assert _bursts_to_fill([first, 9.0, 1.0], depth=3) == 3 * turnovers
    assert _bursts_to_fill([2 * first, 9.0, 2.0], depth=1) == turnovers


def fitted(window: Window, *, unit: int, available: int | None) -> tuple[int, int, int]:
    world = World(steady(**TRUE), size=1, unit=unit, available=available)
    own: FakeWorker = world.workers[0]
    story = Measurement(plan_of(), ThreadGang(0, world), own, own, world, clock=lambda: 0.0)
    made = story._fitted(window)
    return made.lead, made.timed, made.tail


@pytest.mark.parametrize(
    ("window", "unit", "available", "expected"),
    [
        ((4, 4, 4), 2, None, (4, 4, 4)),
        ((4, 4, 4), 2, 12, (4, 4, 4)),
        ((4, 4, 4), 2, 11, (4, 4, 3)),  # first the tail
        ((4, 4, 4), 2, 8, (4, 4, 0)),
        ((4, 4, 4), 2, 7, (4, 2, 0)),  # then the timed part, by bursts
        ((4, 4, 4), 2, 5, (2, 2, 0)),  # then the lead-in
        ((6, 4, 0), 2, 8, (4, 4, 0)),  # the longer one first
        ((2, 6, 0), 2, 6, (2, 4, 0)),
        ((4, 4, 4), 2, 1, (2, 2, 0)),  # but a burst of each there must be
        ((1, 1, 0), 4, None, (4, 4, 0)),
    ],
)
def test_a_window_is_shortened_by_its_tail_and_then_by_bursts(
    window: tuple[int, int, int], unit: int, available: int | None, expected: tuple[int, int, int]
) -> None:
    assert fitted(Window(*window), unit=unit, available=available) == expected


@pytest.mark.parametrize(
    ("unit", "prefetched", "seconds", "lead", "timed"),
    [
        # A queue's depth in bursts, and the bursts of two and a half seconds.
        (1, 2, 0.2, 4, 2),  # depth 2, 13 of them
        (2, 8, 0.2, 14, 8),  # depth 4, 7 of them
        (2, 3, 0.2, 8, 4),  # depth 2, 7 of them
        (1, 4, 3.0, 1, 1),  # longer than that each
        (1, 2, 0.012, 4, 5),  # 5 to fill 50 ms
        (1, 0, 0.012, 1, 5),  # no queue
        (4, 8, 0.1, 16, 8),  # depth 2, 7 of them
    ],
)
def test_loader_blocks_are_as_long_as_a_queue_is_deep(
    unit: int, prefetched: int, seconds: float, lead: int, timed: int
) -> None:
    world = World(steady(node=0.01, warm=seconds), unit=unit, prefetched=prefetched)
    calibration = world.run(plan_of("node", "warm", max_rounds=1)).facts.calibration
    assert calibration.lead_in_iterations["warm"] == lead
    assert calibration.block_iterations["warm"] == timed
    assert calibration.window_batches == lead + timed + prefetched
    assert calibration.window_samples == 8 * calibration.window_batches
    trial = Window(unit + prefetched, 2 * unit, prefetched)
    for worker in world.workers:
        assert worker.windows == [trial, Window(lead, timed, prefetched)]


@pytest.mark.parametrize(
    ("prefetched", "seconds", "trials"), [(0, 0.06, 0), (0, 0.03, 2), (2, 0.06, 2)]
)
def test_where_nothing_is_queued_and_an_iteration_fills_a_block_there_is_nothing_to_try(
    prefetched: int, seconds: float, trials: int
) -> None:
    world = World(steady(node=seconds, warm=2 * seconds), prefetched=prefetched)
    calibration = world.run(plan_of("node", "warm", max_rounds=1)).facts.calibration
    for worker in world.workers:
        assert worker.log.count("open") == trials + 1  # and the block itself
    if not trials:
        assert calibration.lead_in_iterations["warm"] == calibration.block_iterations["warm"] == 1


def test_the_slowest_worker_of_the_better_trial_decides_on_the_length() -> None:
    """One trial is disturbed, and the second worker is the slower one."""
    opened = {0: 0, 1: 0}

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        if mode != "warm":
            return 0.01
        opened[rank] += since == 0
        return (0.01 if rank == 0 else 0.3) + (5.0 if opened[rank] == 1 else 0.0)

    world = World(durations, prefetched=2).run(plan_of("node", "warm", max_rounds=1))
    calibration = world.facts.calibration
    # Bursts of 0.3 s, 4 a second, of a queue two deep.
    assert (calibration.lead_in_iterations["warm"], calibration.block_iterations["warm"]) == (4, 2)


def test_a_plan_without_real_data_never_opens_a_loader() -> None:
    world = World(steady(**TRUE)).run(plan_of("solo", "unsynced", "node", max_rounds=2))
    assert not {"open", "drain", "evict"} & set(world.workers[0].log)
    facts = world.facts
    assert (facts.preprocessing, facts.storage) == (None, None)
    assert facts.calibration.loader_start_seconds is None
    assert facts.calibration.window_batches == 2  # nobody asks: a batch of each part


def test_a_trial_runs_through_its_window_once() -> None:
    world = World(steady(node=0.01, warm=0.2), unit=2, prefetched=4)
    log = world.run(plan_of("node", "warm", max_rounds=1)).workers[0].log
    opened = log.index("open")
    assert log[opened:].index("synchronize") - 1 == (2 + 4) + 2 * 2  # lead-in and timed part


def test_a_block_is_filled_by_bursts_as_they_are_in_the_end() -> None:
    """Two batches wait to be made; then every iteration takes 10 ms."""

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        return 0.3 if mode == "warm" and since < 2 else 0.01

    calibration = World(durations).run(plan_of("node", "warm", max_rounds=1)).facts.calibration
    assert calibration.block_iterations["warm"] >= 5


def test_only_the_first_worker_rests_so_that_what_was_told_is_shown() -> None:
    world = World(steady(**TRUE)).run(plan_of(max_rounds=3))
    assert [worker.rests for worker in world.workers] == [5 + 3, 0]  # phases and rounds


def test_slow_loaders_are_timed_once_their_batches_come_evenly() -> None:
    """Three batches of 9 s, then 3 s each: longer than a block should last, whatever is queued."""

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        return 0.01 if mode != "warm" else 9.0 if since < 3 else 3.0

    world = World(durations, prefetched=4).run(plan_of("node", "warm", max_rounds=1))
    calibration = world.facts.calibration
    assert calibration.lead_in_iterations["warm"] == 3
    assert calibration.block_iterations["warm"] == 1
