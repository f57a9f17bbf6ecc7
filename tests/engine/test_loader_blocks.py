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
