"""Blocks that really load, in fake time: a loader that makes batches while others wait."""

from __future__ import annotations

import pytest

from engine.worlds import World, plan_of

COMPUTE, MAKING = 0.1, 0.3


def slow_loader(**settings: float) -> World:
    """A loader makes a batch in 0.3 s from when it is opened; the device needs 0.1 s for one."""

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        if mode not in ("warm", "cold"):
            return COMPUTE
        made = world.workers[rank].opened_at + MAKING * (since + 1)
        return max(0.0, made - now) + COMPUTE

    world = World(durations, **settings)  # type: ignore[arg-type]
    return world


@pytest.mark.parametrize("meeting", [0.0, 5.0])
def test_no_batch_is_made_before_its_block_or_while_workers_meet(meeting: float) -> None:
    world = slow_loader(meeting=meeting).run(plan_of("node", "warm", "cold", max_rounds=4))
    for one in world.rounds:
        assert one.seconds_per_iteration() == pytest.approx(
            {"node": COMPUTE, "warm": MAKING, "cold": MAKING}
        )


def test_the_lead_in_is_told_from_the_opening_of_the_loader_on() -> None:
    world = slow_loader().run(plan_of("node", "warm", max_rounds=2))
    lead = world.facts.calibration.lead_in_iterations["warm"]
    for one in world.rounds:
        warm = next(block for block in one.blocks if block.step == "warm")
        assert warm.lead_in_iterations == lead
        assert warm.lead_in_seconds == pytest.approx((MAKING * lead + COMPUTE,) * 2)


def test_a_loader_is_drained_before_the_next_block_begins() -> None:
    world = slow_loader().run(plan_of("node", "warm", "cold", max_rounds=3))
    for worker in world.workers:
        opened = False
        for entry in worker.log:
            if entry == "open":
                assert not opened
                opened = True
            elif entry == "drain":
                opened = False
            elif entry.startswith("iterate") and entry not in ("iterate warm", "iterate cold"):
                assert not opened


def test_a_gang_loads_and_reads_as_fast_as_its_slowest_worker() -> None:
    world = slow_loader()
    world.workers[1].prepare_seconds = 2.0
    world.workers[0].read_seconds = 0.4
    facts = world.run(plan_of("node", "warm", max_rounds=1)).facts
    assert facts.preprocessing is not None and facts.storage is not None
    # Two workers with 4 batches of 8 samples each, and with 32 samples each.
    assert facts.preprocessing.samples_per_second == pytest.approx([64 / 2.0] * 5)
    assert facts.storage.samples_per_second == pytest.approx([64 / 0.4] * 5)


def test_rates_are_repeated_for_20_seconds_but_at_least_twice() -> None:
    counts = []
    for seconds in (1.0, 9.0, 30.0):
        world = slow_loader()
        for worker in world.workers:
            worker.prepare_seconds = seconds
        facts = world.run(plan_of("node", "warm", max_rounds=1)).facts
        assert facts.preprocessing is not None
        counts.append(len(facts.preprocessing.samples_per_second))
    assert counts == [5, 3, 2]


def test_files_that_nobody_reads_have_no_rate() -> None:
    world = slow_loader()
    world.workers[1].file_bytes = 0
    facts = world.run(plan_of("node", "warm", max_rounds=1)).facts
    assert facts.preprocessing is not None and facts.storage is None


def test_what_is_left_of_a_window_is_drained_without_training_on_it() -> None:
    world = slow_loader().run(plan_of("node", "warm", "cold", max_rounds=2))
    for worker in world.workers:
        drains = [i for i, entry in enumerate(worker.log) if entry == "drain"]
        assert len(drains) == 2 + 2 * 2  # two trials, then two loader blocks a round
        assert all(worker.log[i - 1] == "set node" for i in drains)
