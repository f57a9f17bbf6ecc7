"""The three kinds of device as the engine sees them: when is it done, where do batches live.

A GPU works beside its host, which hands it one iteration while it is still busy with the one
before. So a moment is read on the device's side: when it is done with what it has been given.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from stash.hardware.machine import available_memory_bytes, usable_memory_bytes
from stash.workloads import emulated
from stash.workloads.workload import move


class Moment(Protocol):
    """When a device is done with all that it had been given; known once it has come to it."""

    def seconds_after(self, earlier: Moment) -> float:
        """Since another moment of the same device."""


@dataclass(frozen=True)
class HostMoment:
    """Read from the host's own clock."""

    seconds: float

    def seconds_after(self, earlier: Moment) -> float:
        """By that clock."""
        assert isinstance(earlier, HostMoment)
        return self.seconds - earlier.seconds


class Device(Protocol):
    """What differs between devices."""

    index: int | None

    def moment(self) -> Moment:
        """When everything handed to the device so far is done; does not wait for it."""

    def synchronize(self) -> None:
        """Wait until everything handed to the device is done."""

    def resident(self, batch: Any) -> Any:
        """The batch in the device's own memory."""

    def staged(self, batch: Any) -> Any:
        """The batch in host memory from which the device copies fastest."""

    def free_bytes(self) -> int:
        """Memory that recorded batches may use a part of."""

    def peak_bytes(self) -> int | None:
        """The most memory that training has used."""

    def total_bytes(self) -> int | None:
        """All memory of the device."""


class Cpu:
    """The processor itself."""

    index: int | None = None

    def moment(self) -> Moment:
        """Now."""
        return HostMoment(time.perf_counter())

    def synchronize(self) -> None:
        """CPU work is done when it returns."""

    def resident(self, batch: Any) -> Any:
        """Host memory is device memory."""
        return batch

    def staged(self, batch: Any) -> Any:
        """Host memory is device memory."""
        return batch

    def free_bytes(self) -> int:
        """What the machine can give without swapping."""
        return available_memory_bytes()

    def peak_bytes(self) -> int | None:
        """This process's largest resident set."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def total_bytes(self) -> int | None:
        """All memory of the machine: workers share it."""
        return usable_memory_bytes()


class Emulated(Cpu):
    """An accelerator whose kernels are deadlines; its batches stay in host memory."""

    def moment(self) -> Moment:
        """The last deadline."""
        accelerator = emulated.current()
        return super().moment() if accelerator is None else HostMoment(accelerator.clock.done_at())

    def synchronize(self) -> None:
        """Wait for the last deadline."""
        accelerator = emulated.current()
        if accelerator is not None:
            accelerator.clock.synchronize()

    def peak_bytes(self) -> int | None:
        """Nothing is really allocated there."""
        return None

    def total_bytes(self) -> int | None:
        """The memory of the GPU that is emulated."""
        accelerator = emulated.current()
        return None if accelerator is None else accelerator.gpu.memory_bytes


@dataclass(frozen=True)
class CudaMoment:
    """Read from the GPU's own clock. Never run by its authors."""

    event: torch.cuda.Event

    def seconds_after(self, earlier: Moment) -> float:
        """By that clock."""
        assert isinstance(earlier, CudaMoment)
        return float(earlier.event.elapsed_time(self.event)) / 1e3  # it tells milliseconds


class Cuda:
    """An NVIDIA GPU. Never run by its authors: there was none to run it on."""

    def __init__(self, index: int) -> None:
        self.index: int | None = index
        self._device = torch.device("cuda", index)

    def moment(self) -> Moment:
        """An event behind all work of the stream that the script uses."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return CudaMoment(event)

    def synchronize(self) -> None:
        """Wait for every stream of the device."""
        torch.cuda.synchronize(self._device)

    def resident(self, batch: Any) -> Any:
        """Copied once, before anything is timed."""
        return move(batch, self._device)

    def staged(self, batch: Any) -> Any:
        """Pinned, so that copies run at the link's own speed."""
        return _pinned(batch)

    def free_bytes(self) -> int:
        """As the driver sees it."""
        return int(torch.cuda.mem_get_info(self._device)[0])

    def peak_bytes(self) -> int | None:
        """PyTorch's own high-water mark."""
        return int(torch.cuda.max_memory_allocated(self._device))

    def total_bytes(self) -> int | None:
        """As the driver sees it."""
        return int(torch.cuda.mem_get_info(self._device)[1])


def open_device(name: str, index: int) -> Device:
    """The device of one worker, by the name in the plan; a GPU by its number among those seen."""
    if name == "cuda":
        return Cuda(index)
    return Emulated() if name.startswith("emulated") else Cpu()


def _pinned(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.pin_memory()
    if isinstance(batch, dict):
        return {key: _pinned(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        parts = [_pinned(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch
