"""All workers of a launch: they wait for each other and tell each other small numbers.

Runs on a gloo group of its own: waiting there does not spin and does not touch the group measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist

#: Longer than any hold: a held worker may wait for a whole block of the others. The launcher's
#: own time-out ends a gang that hangs, and knows which worker did.
SIDE_TIMEOUT = timedelta(hours=24)


class Gang(Protocol):
    """What the measuring story needs from the workers together."""

    rank: int
    size: int

    def barrier(self) -> None:
        """Wait until every worker is here."""

    def gather(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's values, by rank. Also a barrier."""

    def follow(self, value: int) -> int:
        """The first worker's value, for all."""


class Alone:
    """A gang of one."""

    rank = 0
    size = 1

    def barrier(self) -> None:
        """Nobody to wait for."""

    def gather(self, values: Sequence[float]) -> list[list[float]]:
        """Only our own."""
        return [list(values)]

    def follow(self, value: int) -> int:
        """We lead."""
        return value


class DistributedGang:
    """A gang over torch.distributed, which the script has initialised."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._side = dist.new_group(backend="gloo", timeout=SIDE_TIMEOUT)

    def barrier(self) -> None:
        """Wait until every worker is here, without spinning."""
        dist.barrier(self._side)

    def gather(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's values, by rank."""
        own = torch.tensor(values, dtype=torch.float64)
        slots = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(slots, own, group=self._side)
        return [slot.tolist() for slot in slots]

    def follow(self, value: int) -> int:
        """The first worker's value, for all."""
        shared = torch.tensor([value], dtype=torch.int64)
        dist.broadcast(shared, src=0, group=self._side)
        return int(shared.item())
