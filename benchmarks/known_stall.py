"""A workload whose preprocessing takes a known time: `known_stall.py:prep`.

The delay comes from the data set, outside the measuring code. Batches are prepared in the training
process itself (no loader workers), so every iteration waits for exactly the delay, except for the
part that hides under the device's own tail.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch.utils.data import Dataset

import stash
from stash.workloads import zoo

BATCH = 32
DELAY = "KNOWN_STALL_SECONDS"


def wait_exactly(seconds: float) -> None:
    """Sleep for most of it, then watch the clock: a plain sleep overshoots by a tenth of a ms."""
    end = time.perf_counter() + seconds
    time.sleep(max(0.0, seconds - 0.0005))
    while time.perf_counter() < end:
        pass


class SlowBatches(Dataset[Any]):
    """Always the same batch, after the delay."""

    def __init__(self, delay_seconds: float) -> None:
        self._delay_seconds = delay_seconds
        self._batch = (torch.zeros(BATCH, 3, 224, 224), torch.zeros(BATCH, dtype=torch.long))

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        return self._batch

    def __getitems__(self, indices: list[int]) -> Any:
        wait_exactly(self._delay_seconds)
        return self._batch


def prep() -> stash.Workload:
    """ResNet18's shapes; the delay comes from the environment."""
    entry = zoo.get("resnet18")
    return stash.Workload(
        name="known-prep",
        model=entry.builder,
        data=SlowBatches(float(os.environ.get(DELAY, "0"))),
        loss=entry.loss,
        optimizer=entry.optimizer,
        batch_size=BATCH,
        collate=lambda batch: batch,
    )
