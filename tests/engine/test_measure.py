"""Scheduling, timing and stopping, in fake time."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from engine.worlds import ALL, World, plan_of, steady
from stash.results.estimates import Times
from stash.results.steps import STALL_BY_NAME

TRUE = {"solo": 0.10, "unsynced": 0.12, "node": 0.15, "warm": 0.20, "cold": 0.30}


def test_known_step_times_come_out_exactly() -> None:
    world = World(steady(**TRUE)).run(plan_of(max_rounds=3))
    for one in world.rounds:
        assert one.seconds_per_iteration() == pytest.approx(TRUE)


def test_every_round_holds_every_step_once_in_an_order_that_changes() -> None:
    world = World(steady(**TRUE)).run(plan_of(max_rounds=12))
    orders = [tuple(block.step for block in one.blocks) for one in world.rounds]
    assert all(sorted(order) == sorted(ALL) for order in orders)
    assert len(set(orders)) > 6


def test_a_block_takes_as_long_as_its_slowest_worker() -> None:
    def durations(rank: int, mode: str, since: int, now: float) -> float:
        return 0.1 if rank == 0 else 0.17

    world = World(durations).run(plan_of("unsynced", "node", max_rounds=2))
    for one in world.rounds:
        assert one.seconds_per_iteration()["unsynced"] == pytest.approx(0.17)
        assert [b.seconds for b in one.blocks if b.step == "node"] == [pytest.approx((0.1, 0.17))]


def test_barriers_heartbeats_and_telemetry_stay_outside_the_timed_part() -> None:
    world = World(steady(**TRUE), overhead=3.0).run(plan_of(max_rounds=3))
    for one in world.rounds:
        assert one.seconds_per_iteration() == pytest.approx(TRUE)


@pytest.mark.parametrize("step", ["unsynced", "node", "warm"])
def test_nobody_waits_for_the_others_inside_a_block(step: str) -> None:
    """Workers leave a barrier one after the other, and the first then waits for the last."""
    world = World(steady(**TRUE)).run(plan_of(step, max_rounds=1))
    calibration = world.facts.calibration
    length = calibration.lead_in_iterations[step] + calibration.block_iterations[step]
    for worker in world.workers:
        before, after = worker.iterations - length, worker.iterations
        assert {before, after} <= worker.met_after
        assert not worker.met_after & set(range(before + 1, after))


def test_every_worker_runs_every_iteration_number_exactly_once() -> None:
    world = World(steady(**TRUE), size=4).run(plan_of(max_rounds=5))
    counts = {worker.iterations for worker in world.workers}
    assert len(counts) == 1 and counts != {0}


def test_workers_left_out_of_solo_run_nothing_while_it_is_timed() -> None:
    world = World(steady(**TRUE)).run(plan_of("solo", "node", max_rounds=4))
    first, second = world.workers
    assert any(entry == "iterate solo" for entry in first.log)
    assert not any(entry == "iterate solo" for entry in second.log)
    assert second.log.count("iterate idle") == first.log.count("iterate solo")


def test_the_first_iterations_after_a_switch_are_not_timed() -> None:
    def durations(rank: int, mode: str, since: int, now: float) -> float:
        return TRUE.get(mode, 0.1) + (1.0 if since == 0 else 0.0)

    world = World(durations).run(plan_of("unsynced", "node", max_rounds=3))
    assert world.rounds[0].seconds_per_iteration() == pytest.approx(
        {"unsynced": 0.12, "node": 0.15}
    )


@pytest.mark.parametrize(("loading", "exposed"), [(0.03, 0.0), (0.13, 0.03), (0.25, 0.15)])
def test_what_a_host_does_while_its_device_is_busy_is_no_stall(
    loading: float, exposed: float
) -> None:
    """Batches made by the loop itself, blocks of one iteration: the device must not run empty."""
    world = World(steady(node=0.001, warm=loading), device_seconds=0.1)
    world.run(plan_of("node", "warm", max_rounds=3))
    assert world.facts.calibration.block_iterations["node"] == 1
    for one in world.rounds:
        times = one.seconds_per_iteration()
        assert times["node"] == pytest.approx(0.1)
        assert times["warm"] - times["node"] == pytest.approx(exposed)


def test_iterations_of_a_device_that_is_behind_its_host_are_as_long_as_the_device_takes() -> None:
    world = World(steady(node=0.001), device_seconds=0.02).run(plan_of("node", max_rounds=2))
    assert world.facts.calibration.block_iterations["node"] == 3  # 3 x 20 ms fill 50 ms
    assert world.rounds[-1].seconds_per_iteration() == pytest.approx({"node": 0.02})


def test_the_device_is_synchronised_at_both_ends_of_a_block_and_not_inside() -> None:
    durations = steady(unsynced=0.02, node=0.02)
    world = World(durations).run(plan_of("node", max_rounds=1))
    log = world.workers[0].log
    last = len(log) - 1 - log[::-1].index("set node")
    block = log[last:]
    timed = world.facts.calibration.block_iterations["node"]
    assert timed == 3  # 3 x 20 ms fill 50 ms
    assert block == [
        "set node",
        "synchronize",
        *["iterate node"] * (1 + 3),
        "synchronize",
    ]


def test_a_loader_block_starts_from_an_empty_queue_after_its_files_are_evicted() -> None:
    world = World(steady(**TRUE)).run(plan_of("node", "cold", max_rounds=2))
    log = world.workers[0].log
    position = len(log) - 1 - log[::-1].index("set cold")
    block = [entry for entry in log[position:] if entry != "synchronize"]
    assert block[:4] == ["set cold", "evict", "open", "iterate cold"]
    assert "drain" in block


def test_warm_blocks_never_evict() -> None:
    world = World(steady(**TRUE)).run(plan_of("node", "warm", max_rounds=2))
    assert "evict" not in world.workers[0].log


def test_loader_blocks_are_multiples_of_the_loader_workers() -> None:
    world = World(steady(**TRUE), unit=4, prefetched=8).run(plan_of(max_rounds=1))
    calibration = world.facts.calibration
    assert calibration.block_iterations["warm"] % 4 == 0
    assert calibration.lead_in_iterations["warm"] % 4 == 0
    assert calibration.lead_in_iterations["warm"] >= 4


def test_bursts_of_a_slow_loader_average_out_over_a_block() -> None:
    """Four loader workers deliver four batches at once; the true cost is the mean over a burst."""

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        if mode != "warm":
            return 0.02
        return 0.24 if since % 4 == 0 else 0.0

    world = World(durations, unit=4, prefetched=8).run(plan_of("node", "warm", max_rounds=3))
    for one in world.rounds:
        assert one.seconds_per_iteration()["warm"] == pytest.approx(0.06)


def test_a_queue_that_takes_long_to_fill_gets_a_longer_lead_in() -> None:
    def durations(rank: int, mode: str, since: int, now: float) -> float:
        return 0.1 + (0.1 if mode in ("warm", "cold") and since < 2 else 0.0)

    world = World(durations, prefetched=0).run(plan_of("node", "warm", max_rounds=3))
    assert world.facts.calibration.lead_in_iterations["warm"] == 1, "nothing to see with no queue"
    world = World(durations, prefetched=1).run(plan_of("node", "warm", max_rounds=3))
    assert world.facts.calibration.lead_in_iterations["warm"] >= 2
    assert world.rounds[0].seconds_per_iteration()["warm"] == pytest.approx(0.1)


def test_a_queue_turns_over_twice_and_a_block_is_as_long_as_it_is_deep() -> None:
    world = World(steady(**{**TRUE, "warm": 0.05}), prefetched=3)
    world.run(plan_of("node", "warm", max_rounds=1))
    calibration = world.facts.calibration
    assert calibration.lead_in_iterations["warm"] == 6
    assert calibration.block_iterations["warm"] == 3


@pytest.mark.parametrize(
    ("loaders_need", "turnovers"),
    [(0.1, 2), (0.4, 2), (0.7, 4), (0.9, 6), (1.1, 6), (3.0, 2)],
)
def test_a_queue_that_fills_slowly_is_given_time(loaders_need: float, turnovers: int) -> None:
    """In parts of an iteration; the first batch is waited for, others are prepared meanwhile."""

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        if mode != "warm":
            return 0.01
        return 0.01 * max(1.0, loaders_need) + (0.01 * min(loaders_need, 1.0) if not since else 0)

    world = World(durations, prefetched=4).run(plan_of("node", "warm", max_rounds=1))
    calibration = world.facts.calibration
    assert calibration.lead_in_iterations["warm"] == turnovers * 4
    assert calibration.block_iterations["warm"] >= turnovers * 2


def test_a_slow_loader_is_not_waited_for_longer_than_some_seconds() -> None:
    world = World(steady(**{**TRUE, "warm": 0.4}), prefetched=20)
    world.run(plan_of("node", "warm", max_rounds=1))
    calibration = world.facts.calibration
    assert calibration.lead_in_iterations["warm"] == 7
    assert calibration.block_iterations["warm"] == 7


def test_a_loader_that_never_runs_evenly_gets_the_lead_in_of_a_trial() -> None:
    """One burst of two seconds, the next of four, for ever: three of them until a queue is full."""

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        return 0.01 if mode != "warm" else 1.0 + (since // 2) % 2

    world = World(durations, unit=2, prefetched=4).run(plan_of("node", "warm", max_rounds=1))
    calibration = world.facts.calibration
    assert calibration.lead_in_iterations["warm"] == 3 * 2
    assert calibration.block_iterations["warm"] == 2 * 2


def test_a_window_is_shortened_to_what_an_epoch_offers() -> None:
    world = World(steady(**TRUE), available=3).run(plan_of("node", "warm", max_rounds=1))
    assert world.facts.calibration.window_batches <= 3


def test_warm_up_goes_on_until_two_halves_agree() -> None:
    count = {"n": 0}

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        count["n"] += 1
        return 0.1 + 1.0 / count["n"]

    world = World(durations, size=1).run(plan_of("node", max_rounds=1))
    assert world.facts.calibration.warm_up_settled
    assert world.facts.calibration.warm_up_iterations > 8


def test_warm_up_that_never_settles_is_given_up_and_said() -> None:
    count = {"n": 0}

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        count["n"] += 1
        return 1.25 ** min(count["n"], 60) * 1e-3

    world = World(durations, size=1).run(plan_of("node", max_rounds=1))
    assert not world.facts.calibration.warm_up_settled


def noisy(seed: int, spread: float):  # type: ignore[no-untyped-def]
    generator = random.Random(seed)
    table = {**TRUE, "idle": 0.1}
    return lambda rank, mode, since, now: table[mode] * generator.uniform(1 - spread, 1 + spread)


def test_it_stops_when_every_stall_is_known_well_enough_and_says_so() -> None:
    world = World(noisy(1, 0.02), size=1).run(plan_of("node", "warm", half_width=0.03))
    assert world.end.reason == "half-width"
    assert len(world.rounds) == 20  # never sooner, however sure
    widest = Times.of(world.rounds).widest_half_width()
    assert widest is not None and widest <= 0.03


def test_noisier_machines_get_more_rounds() -> None:
    world = World(noisy(1, 0.4), size=1).run(plan_of("node", "warm", half_width=0.05))
    assert world.end.reason == "half-width"
    assert len(world.rounds) > 20


def test_it_stops_before_its_time_is_over_and_says_so() -> None:
    world = World(noisy(1, 0.4), size=1).run(
        plan_of("node", "warm", half_width=0.0001, max_seconds=60.0)
    )
    assert world.end.reason == "max-minutes"
    assert 40 < world.rounds[-1].at_seconds <= 60


def test_it_stops_before_its_money_is_spent_and_says_so() -> None:
    world = World(noisy(1, 0.4), size=1).run(
        plan_of("node", "warm", half_width=0.0001, max_usd=0.02, price_usd_per_hour=3.6)
    )
    assert world.end.reason == "max-usd"
    assert world.rounds[-1].at_seconds * 3.6 / 3600 <= 0.02


def test_drift_of_the_machine_cancels_within_rounds() -> None:
    """The machine gets three times slower over the run; the stall's interval hardly notices."""

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        return {**TRUE, "idle": 0.1}[mode] * (1 + now / 10)

    world = World(durations, size=1).run(plan_of("unsynced", "node", max_rounds=60))
    times = Times.of(world.rounds)
    slowest = max(times.by_step["node"][0]) / min(times.by_step["node"][0])
    assert slowest > 1.5
    stall = times.stall(STALL_BY_NAME["communication"])
    step = times.step("node")
    assert stall.half_width is not None and step.half_width is not None
    assert stall.half_width < step.half_width / 3


def test_workers_agree_on_the_order_without_talking() -> None:
    world = World(steady(**TRUE)).run(plan_of(max_rounds=6))
    first, second = (
        [entry for entry in worker.log if entry.startswith("set ") and entry != "set solo"]
        for worker in world.workers
    )
    assert first == second


def test_another_launch_has_another_order() -> None:
    orders = [
        [b.step for one in World(steady(**TRUE)).run(plan).rounds for b in one.blocks]
        for plan in (plan_of(max_rounds=4), plan_of(max_rounds=4, launch=1))
    ]
    assert orders[0] != orders[1]


def test_rounds_are_numbered_and_written_as_they_end() -> None:
    world = World(steady(**TRUE)).run(plan_of(max_rounds=4))
    assert [one.number for one in world.rounds] == [0, 1, 2, 3]
    assert all(a.at_seconds < b.at_seconds for a, b in pairwise(world.rounds))
    kinds = [event.kind for event in world.events]
    assert kinds.index("facts") < kinds.index("round") < kinds.index("end")
