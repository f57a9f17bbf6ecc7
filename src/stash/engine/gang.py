"""All workers of a launch: they wait for each other and tell each other small numbers.

Runs on a gloo group of its own: waiting there does not spin and does not touch the group measured.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

#: Longer than any hold: a held worker may wait for a whole block of the others. The launcher, or
#: the worker itself where there is none (engine/heartbeat.py), ends a gang that hangs.
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
        # Not `dist.new_group`, which the seams have made switchable.
        new_group = dist.distributed_c10d.new_group
        self._side = new_group(backend="gloo", timeout=SIDE_TIMEOUT)

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


class LooseGang:
    """Workers of one launch whose script has not initialised torch.distributed.

    They meet at the store that torchrun keeps, and the script's own world stays untouched.
    """

    def __init__(self) -> None:
        self.rank = int(os.environ["RANK"])
        self.size = int(os.environ["WORLD_SIZE"])
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        c10d: Any = dist  # these are typed in part only
        store = c10d.TCPStore(address, port, is_master=False, timeout=SIDE_TIMEOUT)
        self._side: Any = dist.ProcessGroupGloo(
            c10d.PrefixStore("stash", store), self.rank, self.size, timeout=SIDE_TIMEOUT
        )

    def barrier(self) -> None:
        """Wait until every worker is here, without spinning."""
        self._side.barrier().wait()

    def gather(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's values, by rank."""
        own = torch.tensor(values, dtype=torch.float64)
        slots = [torch.empty_like(own) for _ in range(self.size)]
        self._side.allgather([slots], [own]).wait()
        return [slot.tolist() for slot in slots]

    def follow(self, value: int) -> int:
        """The first worker's value, for all."""
        shared = torch.tensor([value], dtype=torch.int64)
        self._side.broadcast([shared], dist.BroadcastOptions()).wait()
        return int(shared.item())


def gather_gang() -> Gang:
    """The workers that train together, however the script was started."""
    if dist.is_available() and dist.is_initialized():
        return DistributedGang()
    return LooseGang() if int(os.environ.get("WORLD_SIZE", "1")) > 1 else Alone()
