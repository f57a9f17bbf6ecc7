"""Who runs when, in fake time: workers that are left out of a block disturb nobody."""

from __future__ import annotations

import pytest

from engine.worlds import World, plan_of

Span = tuple[float, float]


def spans_of(size: int, rounds: int) -> dict[tuple[int, str], list[Span]]:
    """When each worker ran iterations of each step, by worker and step."""
    spans: dict[tuple[int, str], list[Span]] = {}

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        spans.setdefault((rank, mode), []).append((now, now + 0.1))
        return 0.1

    World(durations, size=size).run(plan_of("solo", "node", max_rounds=rounds))
    return spans


def overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] - 1e-9 and other[0] < one[1] - 1e-9


@pytest.mark.parametrize("size", [2, 3])
def test_nobody_runs_beside_a_worker_that_is_timed_alone(size: int) -> None:
    spans = spans_of(size, rounds=4)
    alone = spans[0, "solo"]
    assert len(alone) == 4 * 2  # a lead-in and a timed one in every round
    beside = [span for (rank, _), own in spans.items() if rank != 0 for span in own]
    assert not any(overlap(one, other) for one in alone for other in beside)


@pytest.mark.parametrize("size", [2, 3])
def test_every_worker_that_was_left_out_catches_up_between_the_blocks(size: int) -> None:
    spans = spans_of(size, rounds=4)
    for rank in range(1, size):
        caught_up = spans[rank, "idle"]
        assert len(caught_up) == len(spans[0, "solo"])
        others = spans[0, "node"]
        assert not any(overlap(one, other) for one in caught_up for other in others)
    assert (0, "idle") not in spans


def test_the_device_is_idle_again_after_catching_up() -> None:
    world = World(lambda rank, mode, since, now: 0.1).run(plan_of("solo", "node", max_rounds=3))
    log = world.workers[1].log
    ends = [i for i, entry in enumerate(log) if entry == "iterate idle"]
    followers = [log[i + 1] for i in ends if log[i + 1] != "iterate idle"]
    assert followers == ["synchronize"] * 3  # at the end of each block
