"""Several nodes in fake time: who runs which step, who waits, and what comes out."""

from __future__ import annotations

import pytest

from engine.worlds import World, plan_of, steady
from stash.results.estimates import Times
from stash.results.steps import STALL_BY_NAME

TRUE = {
    "solo": 0.10,
    "unsynced": 0.12,
    "node": 0.15,
    "cluster": 0.25,
    "spread": 0.11,
    "scaleout": 0.30,
    "warm": 0.20,
    "cold": 0.30,
}
RUNS = {
    "solo": [0],
    "unsynced": [0, 1],
    "node": [0, 1],
    "warm": [0, 1],
    "cold": [0, 1],
    "cluster": [0, 2],
    "spread": [0, 2],
    "scaleout": [0, 1, 2, 3],
}


def two_nodes(rounds: int = 3, **options: float) -> World:
    world = World(steady(**TRUE), size=4, **options)  # type: ignore[arg-type]
    return world.run(plan_of(*TRUE, nodes=2, max_rounds=rounds))


def test_known_times_of_two_nodes_come_out_exactly() -> None:
    for one in two_nodes(overhead=2.0).rounds:
        assert one.seconds_per_iteration() == pytest.approx(TRUE)


def test_stalls_of_two_nodes_are_those_worked_by_hand() -> None:
    times = Times.of(two_nodes().rounds)
    found = {name: times.stall(STALL_BY_NAME[name]).value for name in ("network", "links")}
    assert found == pytest.approx({"network": 0.10, "links": 0.11})
    assert times.stall(STALL_BY_NAME["relief"]).value == pytest.approx(-0.01)
    assert times.stall(STALL_BY_NAME["scale-out"]).value == pytest.approx(0.15)


def test_only_the_workers_of_a_step_run_it_and_the_others_catch_up() -> None:
    world = two_nodes()
    for one in world.rounds:
        for block in one.blocks:
            ran = [rank for rank, seconds in enumerate(block.seconds) if seconds is not None]
            held = [rank for rank, seconds in enumerate(block.held_seconds) if seconds is not None]
            assert ran == RUNS[block.step]
            assert sorted(ran + held) == [0, 1, 2, 3]
    assert len({worker.iterations for worker in world.workers}) == 1


def test_workers_of_other_nodes_touch_no_data_and_no_page_cache() -> None:
    world = two_nodes()
    first, _, other, _ = world.workers
    assert "evict" in first.log and "open" in first.log
    assert not {"evict", "open", "set warm", "set cold", "set node"} & set(other.log)
    assert world.facts.preprocessing is not None
    # Two workers prepare 4 batches of 8 samples each in a second.
    assert world.facts.preprocessing.samples_per_second[0] == pytest.approx(64)


def test_blocks_inside_a_node_are_long_enough_also_beside_a_slow_network() -> None:
    quick = {**dict.fromkeys(TRUE, 0.01), "cluster": 0.2, "scaleout": 0.2}
    world = World(steady(**quick), size=4).run(plan_of(*TRUE, nodes=2, max_rounds=1))
    lengths = world.facts.calibration.block_iterations
    assert lengths["node"] == lengths["solo"] == lengths["spread"] == 5
    assert lengths["cluster"] == lengths["scaleout"] == 1


def test_what_held_workers_take_afterwards_is_their_own_pace() -> None:
    def durations(rank: int, mode: str, since: int, now: float) -> float:
        return 0.3 if mode == "idle" and rank == 3 else 0.1

    world = World(durations, size=4).run(plan_of("unsynced", "node", nodes=2, max_rounds=2))
    for one in world.rounds:
        for block in one.blocks:
            assert block.held_seconds == pytest.approx((None, None, 0.1, 0.3))


def test_rounds_go_on_where_an_earlier_profile_ended() -> None:
    before = two_nodes(rounds=2).rounds
    world = World(steady(**TRUE), size=4)
    world.run(plan_of(*TRUE, nodes=2, max_rounds=5, earlier_rounds=2), earlier=before)
    assert [one.number for one in world.rounds] == [2, 3, 4]
    assert world.rounds[0].at_seconds > before[-1].at_seconds


def test_workers_that_only_wait_have_no_say_in_how_long_loader_blocks_are() -> None:
    quick = {**TRUE, "node": 0.01, "warm": 0.01}
    steps = ("node", "warm", "scaleout")
    alone = World(steady(**quick)).run(plan_of("node", "warm", max_rounds=1))
    beside = World(steady(**quick), size=4).run(plan_of(*steps, nodes=2, max_rounds=1))
    for told in ("lead_in_iterations", "block_iterations"):
        lengths = [getattr(world.facts.calibration, told)["warm"] for world in (alone, beside)]
        assert lengths[0] == lengths[1]


def test_workers_that_were_held_catch_up_after_a_trial_and_not_beside_it() -> None:
    ran: list[tuple[int, str, float, float]] = []

    def durations(rank: int, mode: str, since: int, now: float) -> float:
        ran.append((rank, mode, now, now + 0.1))
        return 0.1

    World(durations, size=4).run(plan_of("node", "warm", "scaleout", nodes=2, max_rounds=1))
    tried = [(begin, end) for rank, mode, begin, end in ran if rank == 0 and mode != "scaleout"]
    after = [(begin, end) for rank, mode, begin, end in ran if rank == 2 and mode == "idle"]
    assert tried and after
    for begin, end in after:
        assert not any(begin < other_end and other_begin < end for other_begin, other_end in tried)
