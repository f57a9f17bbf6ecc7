"""Some of the workers exchange among themselves: which real group gets what."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from stash.engine.exchange import SwitchableGroup


class Real:
    """A group that keeps what it was asked to do."""

    def __init__(self, name: str = "whole", rank: int = 0, size: int = 0) -> None:
        self.name, self.rank, self.size = name, rank, size
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> str:
            self.calls.append((method, args))
            return f"{method} of {self.name}"

        return call


class Made:
    """A switchable group of four workers, and the real groups that it made."""

    def __init__(self, rank: int, global_ranks: tuple[int, ...] = ()) -> None:
        self.whole = Real()
        self.parts: list[Real] = []
        size = len(global_ranks) or 4
        self.group = SwitchableGroup(rank, size, self.whole, global_ranks, self.make)

    def make(self, name: str, rank: int, size: int) -> Real:
        self.parts.append(Real(name, rank, size))
        return self.parts[-1]


ONES = torch.ones(4)


def test_all_workers_use_the_whole_group_and_none_is_made() -> None:
    made = Made(0)
    made.group.turn(True, (0, 1, 2, 3))
    assert made.group.allreduce([ONES]) == "allreduce of whole"
    assert made.parts == []


def test_some_workers_use_a_group_of_their_own_which_is_made_once() -> None:
    made = Made(2)
    for _ in range(2):
        made.group.turn(True, (0, 2))
        assert made.group.allreduce([ONES]) == "allreduce of part-0-2"
    (part,) = made.parts
    assert (part.rank, part.size) == (1, 2)
    made.group.turn(True, (0, 1, 2, 3))
    assert made.group.allreduce([ONES]) == "allreduce of whole"


def test_workers_that_are_held_make_no_group_and_exchange_nothing() -> None:
    made = Made(3)
    made.group.turn(False, ())
    assert made.group.allreduce([ONES]).is_completed()
    assert made.whole.calls == [] and made.parts == []


def test_one_worker_alone_has_nobody_to_exchange_with() -> None:
    made = Made(0)
    made.group.turn(True, (0,))
    assert made.group.allreduce([ONES]).is_completed()
    assert made.whole.calls == [] and made.parts == []


def test_a_broadcast_comes_from_the_same_worker_in_a_smaller_group() -> None:
    made = Made(2)
    made.group.turn(True, (1, 2))
    options = dist.BroadcastOptions()
    options.rootRank = 2
    made.group.broadcast([ONES], options)
    ((_, (_, passed)),) = made.parts[0].calls
    assert passed.rootRank == 1
    assert options.rootRank == 2


def test_a_broadcast_from_a_worker_that_is_held_leaves_values_as_they_are() -> None:
    made = Made(2)
    made.group.turn(True, (1, 2))
    options = dist.BroadcastOptions()
    options.rootRank = 0
    assert made.group.broadcast([ONES], options).is_completed()
    assert made.parts[0].calls == []


def test_what_is_laid_out_by_rank_stays_local_among_some_workers() -> None:
    made = Made(0)
    made.group.turn(True, (0, 1))
    slots = [torch.zeros(4) for _ in range(4)]
    assert made.group.allgather([slots], [ONES]).is_completed()
    assert all(torch.equal(slot, ONES) for slot in slots)
    assert made.parts[0].calls == []


def test_a_group_of_a_scripts_own_is_cut_by_the_ranks_of_all() -> None:
    made = Made(1, global_ranks=(1, 2, 3))
    made.group.turn(True, (0, 1, 2))
    assert made.group.allreduce([ONES]) == "allreduce of part-0-1"
    assert (made.parts[0].rank, made.parts[0].size) == (1, 2)


@pytest.mark.parametrize("among", [(0,), (5, 6)])
def test_a_group_with_at_most_one_running_member_completes_at_once(among: tuple[int, ...]) -> None:
    made = Made(0, global_ranks=(0, 3))
    made.group.turn(True, among)
    assert made.group.allreduce([ONES]).is_completed()
