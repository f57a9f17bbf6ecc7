"""Workloads whose stalls are known, the same for Stash and for the reference protocol.

On emulated devices it is a world of the truth suite; on CPUs a small net is really trained, and
only its preprocessing is known. Nothing is read from files, so `fetch` is zero.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

import stash
from stash.lab.delays import SlowBatches
from stash.workloads import zoo

BATCH = 16  # as the zoo trains it on CPUs: an iteration fills a block
BATCH_SECONDS = "STASH_BENCH_BATCH_SECONDS"


class SameBatch(Dataset[Any]):
    """Always the same pictures, at once."""

    def __init__(self, size: int) -> None:
        self._batch = (torch.zeros(BATCH, 3, size, size), torch.zeros(BATCH, dtype=torch.long))

    def __len__(self) -> int:
        return 4096

    def __getitems__(self, indices: list[int]) -> Any:
        return self._batch


def small_net() -> stash.Workload:
    """A small convolutional net; the time that a batch takes comes from the environment."""
    entry = zoo.get("tinycnn")
    data = SameBatch(entry.inputs.size)  # type: ignore[union-attr]
    return stash.Workload(
        name="small-net",
        model=entry.builder,
        data=SlowBatches(data, float(os.environ.get(BATCH_SECONDS, "0"))),
        loss=entry.loss,
        optimizer=entry.optimizer,
        batch_size=BATCH,
        collate=lambda batch: batch,
    )


@dataclass(frozen=True)
class Known:
    """One case: what is trained on what, what workers must be told, and what that must read as."""

    name: str
    workload: str  # as the command line names it
    device: str
    environment: dict[str, str]
    environment_alone: dict[str, str]  # of a worker that has nobody to exchange with
    truth: dict[str, float]  # seconds per iteration of every stall that is known


def known(name: str) -> Known:
    """A case by its name."""
    return {"emulated": _emulated, "cpu": _cpu}[name]()


NAMES = ("emulated", "cpu")


def _emulated() -> Known:
    """Iterations of 60 ms, which fill a block; exchange and preprocessing add a fifth each."""
    # Not above: workers of the other case import this module, too, and would wait for scipy.
    from truth_experiments import world_with
    from truth_worlds import FACTORY, VARIABLE

    world = world_with(communication=0.2, prep=0.2, iteration_seconds=0.06)
    truth = world.truth()
    return Known(
        name="emulated",
        workload=FACTORY,
        device=world.device,
        environment={VARIABLE: world.exported()},
        environment_alone={VARIABLE: replace(world, exchange_seconds=0.0).exported()},
        truth={
            "interconnect": truth["contention"] + truth["communication"],
            "prep": truth["prep"],
            "fetch": truth["fetch"],
        },
    )


def _cpu() -> Known:
    """What two workers cost each other is not known here; what a batch costs is."""
    environment = {BATCH_SECONDS: "0.01"}
    workload = f"{Path(__file__).resolve()}:small_net"
    return Known("cpu", workload, "cpu", environment, environment, {"prep": 0.01, "fetch": 0.0})
