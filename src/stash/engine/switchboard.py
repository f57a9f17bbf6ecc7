"""The switchboard of one worker: feed, gradient exchange and who runs, under an unchanged loop.

The seams call it (a group was made, a loader is iterated, an optimizer stepped); the story decides.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from stash.engine.devices import Device, open_device
from stash.engine.exchange import SwitchableGroup
from stash.engine.facts import gather_facts, unreadable_check
from stash.engine.feed import Feeds
from stash.engine.gang import Alone, DistributedGang, Gang
from stash.engine.measure import Measurement, Sink
from stash.engine.plan import RECORDING, Plan
from stash.engine.telemetry import Telemetry
from stash.results.recording import (
    Calibration,
    Check,
    Disturbance,
    End,
    Facts,
    Phase,
    Rate,
    Recorder,
    Round,
)
from stash.results.steps import Feed, Step


class MeasurementDone(BaseException):
    """Ends the training script from inside; no `except Exception` of a framework stops it."""


class LoopError(Exception):
    """The training loop cannot be measured as it is."""


class Switchboard:
    """One per worker; also the bench on which the measuring story works."""

    def __init__(
        self,
        plan: Plan,
        run_folder: Path,
        iterate: Callable[[DataLoader[Any]], Iterator[Any]],
    ) -> None:
        self.iterate = iterate  # how PyTorch itself iterates a loader, without our seam
        self._plan = plan
        self._run_folder = run_folder
        self._local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self._device: Device = open_device(plan.device, self._local_rank)
        self._groups: list[SwitchableGroup] = []
        self._last_loader: DataLoader[Any] | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._feeds: Feeds | None = None
        self._story: Iterator[None] | None = None
        self._telemetry: Telemetry | None = None
        self._recorder: Recorder | None = None
        self._held_rates: list[Any] = []

    # What the seams tell.

    def group_made(self, group: SwitchableGroup) -> None:
        """A process group now goes through the exchange switch."""
        self._groups.append(group)

    def loader_used(self, loader: DataLoader[Any]) -> None:
        """The script takes a batch of its own from this loader."""
        self._last_loader = loader

    def is_feeding(self, loader: DataLoader[Any]) -> bool:
        """Whether this loader's batches come from us now."""
        return self._feeds is not None and loader is self._feeds.loader

    def fed_batch(self) -> Any:
        """The next batch of the current feed."""
        return self._loaded.next_batch()

    def step_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Hold the learning rate at zero: the same work, and weights that never drift apart."""
        self._held_rates = [group.get("lr") for group in optimizer.param_groups]
        for group, rate in zip(optimizer.param_groups, self._held_rates, strict=True):
            if rate is not None:
                group["lr"] = torch.zeros_like(rate) if isinstance(rate, torch.Tensor) else 0.0

    def step_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """An iteration is over: give the rates back, then let the story go on."""
        for group, rate in zip(optimizer.param_groups, self._held_rates, strict=True):
            if rate is not None:
                group["lr"] = rate
        if self._story is None:
            self._story = self._begin(optimizer)
        try:
            next(self._story)
        except StopIteration:
            raise MeasurementDone from None

    def close(self) -> None:
        """End what we started in this process."""
        if self._recorder is not None:
            self._recorder.close()
        if self._feeds is not None:
            self._feeds.close()

    def _begin(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        if self._last_loader is None:
            raise LoopError(
                "The training loop took no batch from a torch DataLoader before its first "
                "optimizer step, so its feed cannot be switched."
            )
        self._optimizer = optimizer
        data_folder = None if self._plan.data_folder is None else Path(self._plan.data_folder)
        self._feeds = Feeds(
            self._last_loader,
            self._device,
            run_folder=self._run_folder,
            data_folder=data_folder,
            iterate=self.iterate,
        )
        self._gang: Gang = DistributedGang() if dist.is_initialized() else Alone()
        leads = self._gang.rank == 0
        sink: Sink = _Nowhere()
        if leads:
            sink = self._recorder = Recorder(self._run_folder / RECORDING)
        if self._local_rank == 0:
            self._telemetry = Telemetry(self._device.index)
        return Measurement(self._plan, self._gang, self, self._feeds, sink).story()

    # What the story asks.

    def set(self, step: Step) -> None:
        """Turn feed and exchange."""
        self._turn(step.feed, step.exchange)

    def idle(self) -> None:
        """For workers that catch up."""
        self._turn(Feed.REPLAY, False)

    def _turn(self, feed: Feed, exchange: bool) -> None:
        self._loaded.switch(feed)
        for group in self._groups:
            group.on = exchange

    @property
    def _loaded(self) -> Feeds:
        assert self._feeds is not None
        return self._feeds

    def synchronize(self) -> None:
        """Wait until the device is done."""
        self._device.synchronize()

    def start_telemetry(self) -> None:
        """Begin to watch the machine."""
        if self._telemetry is not None:
            self._telemetry.start()

    def stop_telemetry(self) -> Disturbance:
        """What the machine did since; other workers leave that to the first of the node."""
        return _NOTHING_SEEN if self._telemetry is None else self._telemetry.stop()

    def heartbeat(self, doing: str) -> None:
        """A file that the launcher looks at: what this worker is at, and since when."""
        beat = self._run_folder / f"heartbeat-{self._gang.rank}"
        beat.write_text(f"{os.getpid()} {time.time():.3f} {doing}")

    def facts(self, calibration: Calibration, rates: tuple[Rate | None, Rate | None]) -> Facts:
        """All that is known about workload and machine."""
        assert self._optimizer is not None
        return gather_facts(
            self._plan, self._gang, self._device, self._loaded, self._optimizer, calibration, rates
        )

    def final_checks(self) -> tuple[Check, ...]:
        """What only the end can tell."""
        return unreadable_check(self._run_folder)

    def peak_bytes(self) -> int | None:
        """Most device memory used."""
        return self._device.peak_bytes()


class _Nowhere:
    """The sink of workers that do not record."""

    def write(self, event: Facts | Phase | Round | End) -> None:
        """Only the first worker keeps events."""


_NOTHING_SEEN = Disturbance(
    wall_seconds=0.0,
    cpu_busy_seconds=0.0,
    cpu_steal_seconds=0.0,
    disk_read_bytes=0,
    network_bytes=0,
    memory_used_bytes=0,
    clock_mhz=None,
    device_busy_percent=None,
    device_memory_used_bytes=None,
)
