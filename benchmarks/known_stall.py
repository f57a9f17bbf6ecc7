"""A workload whose preprocessing takes a known time: `known_stall.py:prep`.

The delay is the lab's, outside the measuring code. Batches are prepared in the training process
itself (no loader workers), so every iteration waits for exactly the delay, except for the part that
hides under the device's own tail.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.utils.data import Dataset

import stash
from stash.lab.delays import SlowBatches
from stash.workloads import zoo

BATCH = 32
DELAY = "KNOWN_STALL_SECONDS"


class OneBatch(Dataset[Any]):
    """Always the same batch, at once."""

    def __init__(self) -> None:
        self._batch = (torch.zeros(BATCH, 3, 224, 224), torch.zeros(BATCH, dtype=torch.long))

    def __len__(self) -> int:
        return 1 << 20

    def __getitems__(self, indices: list[int]) -> Any:
        return self._batch


def prep() -> stash.Workload:
    """ResNet18's shapes; the delay comes from the environment."""
    entry = zoo.get("resnet18")
    return stash.Workload(
        name="known-prep",
        model=entry.builder,
        data=SlowBatches(OneBatch(), float(os.environ.get(DELAY, "0"))),
        loss=entry.loss,
        optimizer=entry.optimizer,
        batch_size=BATCH,
        collate=lambda batch: batch,
    )
