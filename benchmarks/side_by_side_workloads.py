"""Workloads whose stalls are known: the same for Stash and for the reference protocol.

Delays come from the lab, outside the measuring code. Batches are prepared in the training process
itself, so every iteration waits for them; nothing is read from files, so `fetch` is zero.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

import stash
from stash.lab import delays
from stash.workloads import zoo

BATCH_DELAY, EXCHANGE_DELAY = "STASH_BENCH_BATCH_SECONDS", "STASH_BENCH_EXCHANGE_SECONDS"


class OneBatch(Dataset[Any]):
    """Always the same batch, at once."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        return self._batch

    def __getitems__(self, indices: list[int]) -> Any:
        return self._batch


def emulated() -> stash.Workload:
    """ResNet18's shapes, slow batches and a slow exchange of gradients."""
    return _slowed("resnet18", 32)


def cpu() -> stash.Workload:
    """A small convolutional net, really trained, with slow batches."""
    return _slowed("tinycnn", 8)


def _slowed(model: str, batch_size: int) -> stash.Workload:
    seconds = float(os.environ.get(EXCHANGE_DELAY, "0"))
    if seconds and os.environ.get("WORLD_SIZE", "1") != "1":  # alone, nobody exchanges anything
        delays.slow_exchange(seconds)
    entry = zoo.get(model)
    size = entry.inputs.size  # type: ignore[union-attr]
    batch = (torch.zeros(batch_size, 3, size, size), torch.zeros(batch_size, dtype=torch.long))
    return stash.Workload(
        name=f"known-{model}",
        model=entry.builder,
        data=delays.SlowBatches(OneBatch(batch), float(os.environ.get(BATCH_DELAY, "0"))),
        loss=entry.loss,
        optimizer=entry.optimizer,
        batch_size=batch_size,
        collate=lambda batch: batch,
    )


@dataclass(frozen=True)
class Known:
    """One case: what is trained on what, how much it is slowed, and what that must read as."""

    name: str
    device: str
    batch_seconds: float
    exchange_seconds: float

    @property
    def workload(self) -> str:
        """As the command line names it."""
        return f"{Path(__file__).resolve()}:{self.name}"

    @property
    def environment(self) -> dict[str, str]:
        """What workers must be told."""
        return {
            BATCH_DELAY: repr(self.batch_seconds),
            EXCHANGE_DELAY: repr(self.exchange_seconds),
        }

    def truth(self) -> dict[str, float]:
        """Seconds per iteration of every stall that is known, from closed forms."""
        if not self.device.startswith("emulated"):
            return {"prep": self.batch_seconds, "fetch": 0.0}
        from overlap import recurrence

        from stash.hardware.device_names import parse
        from stash.workloads.emulated import Accelerator

        exposed, _ = recurrence("resnet18", self.device, self.exchange_seconds, float("inf"))
        layers = zoo.layers("resnet18", 32)
        # While a batch is prepared, the device still runs the optimizer of the iteration before.
        hidden = Accelerator(parse(self.device), layers, "fp32").optimizer_seconds
        prep = max(0.0, self.batch_seconds - hidden)
        return {"interconnect": exposed, "prep": prep, "fetch": 0.0}


CASES = {
    # Slowed down, so that a host's milliseconds weigh little beside the device's.
    "emulated": Known("emulated", "emulated:v100:bytes=0.001:time=2", 0.020, 0.016),
    "cpu": Known("cpu", "cpu", 0.010, 0.0),
}
