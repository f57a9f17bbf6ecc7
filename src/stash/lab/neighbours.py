"""How workers of one machine know whether others compute at the same time: one small mapped file.

Each worker has a slot with the moments at which it last began and ended to compute. The clock is
the machine's own, so moments of different processes can be compared.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import time
from pathlib import Path

_SLOT = struct.Struct("<2d")
_SLOTS = 256


class Neighbours:
    """The slots of all workers, seen from one of them."""

    def __init__(self, marks: Path, rank: int) -> None:
        if not 0 <= rank < _SLOTS:
            raise ValueError(f"Rank {rank} has no slot: there are {_SLOTS}.")
        self._rank = rank
        self._began = 0.0
        descriptor = os.open(marks, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, _SLOTS * _SLOT.size)  # all workers set the same size
            self._slots = mmap.mmap(descriptor, _SLOTS * _SLOT.size)
        finally:
            os.close(descriptor)
        _SLOT.pack_into(self._slots, rank * _SLOT.size, 0.0, 0.0)  # what an earlier launch left

    def begin(self) -> None:
        """This worker begins to compute."""
        self._began = time.monotonic()
        _SLOT.pack_into(self._slots, self._rank * _SLOT.size, self._began, math.inf)

    def end(self) -> None:
        """This worker has ended to compute."""
        _SLOT.pack_into(self._slots, self._rank * _SLOT.size, self._began, time.monotonic())

    def any_since_begin(self) -> bool:
        """Whether another worker has computed at any moment since this one began."""
        return any(
            ended > self._began
            for rank, (_, ended) in enumerate(_SLOT.iter_unpack(self._slots))
            if rank != self._rank
        )
