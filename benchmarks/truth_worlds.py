"""Worlds whose stalls are known: a training job with delays put in, and closed forms of them.

The factory `truth_worlds.py:job` builds the job of the world that the variable `STASH_TRUTH_WORLD`
describes. The device is emulated.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from recurrence import exchange_stall, messages
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import Dataset

import stash
from stash.hardware.device_names import parse
from stash.lab import delays, resources
from stash.lab.network import Link
from stash.workloads import emulated, train, zoo
from stash.workloads.emulated import Accelerator

VARIABLE = "STASH_TRUTH_WORLD"
FACTORY = f"{Path(__file__).resolve()}:job"

WORKERS = 2


@dataclass(frozen=True, kw_only=True)
class World:
    """What one iteration does, and what was put into it; all times in seconds."""

    iteration_seconds: float = 0.2  # in the mean
    exchange_seconds: float = 0.0  # every message between workers takes so much longer
    neighbour_seconds: float = 0.0  # an iteration beside another worker's
    slow_worker_seconds: float = 0.0  # every iteration of the last worker
    #: By how much iterations are shorter or longer: drawn evenly, anew each time, by all alike.
    uneven_seconds: float = 0.0
    seed: int = 0  # of what is drawn
    prepare_seconds: float = 0.0  # a batch, beside reading it
    read_seconds: float = 0.0  # a batch, at the rate of the disk
    loader_workers: int = 0
    #: Whether the host waits for its device after every step, as a script does that reads its loss.
    #: A batch that it makes itself is then there so long after that moment, whatever its loader
    #: does beside (0.2 ms).
    reads_loss: bool = False
    samples_per_batch: int = 2
    batches: int = 16  # of one epoch and worker; more than a window of the engine's takes
    #: Whether the backward pass ends with a layer without gradients. What an exchange really takes,
    #: less than a millisecond, then hides there instead of blurring what is put in.
    tail: bool = True
    model: str | None = None  # of the zoo; otherwise a small net
    byte_scale: float = 1.0
    link_bytes_per_second: float | None = None  # of an all-reduce; none: as fast as it gets
    network_bytes_per_second: float | None = None  # the same between hosts; none: one host
    burst_seconds: float = 0.0  # of the link, which passes at once after a pause
    files: str | None = None  # folder with what is read
    #: Every sample is a file of its own, small enough to be read by one request to the disk.
    file_bytes: int = 1 << 16
    marks: str | None = None  # file by which neighbours know of each other

    def __post_init__(self) -> None:
        # An iteration that varies must stay on one side of the disk's pace.
        from_the_mean = abs(self.read_seconds - self.iteration_seconds)
        assert not self.read_seconds or from_the_mean >= self.uneven_seconds

    @cached_property
    def accelerator(self) -> Accelerator:
        """The emulated device, slowed so that an iteration lasts as long as it should."""
        layers = train.layers_of(_workload(self))
        scale = f"emulated:v100:bytes={self.byte_scale:.12g}"
        plain = Accelerator(parse(scale), layers, "fp32")
        shortest = self.iteration_seconds - self.uneven_seconds
        time_scale = shortest / iteration_seconds(plain)
        return Accelerator(parse(f"{scale}:time={time_scale:.12g}"), layers, "fp32")

    @property
    def device(self) -> str:
        """As `--device` takes it."""
        return str(self.accelerator.name)

    @property
    def disk_bytes_per_second(self) -> int | None:
        """The rate at which a batch takes as long to read as it should; none: not throttled."""
        if not self.read_seconds:
            return None
        return round(self.samples_per_batch * self.file_bytes / self.read_seconds)

    @property
    def samples(self) -> int:
        """Of one epoch of all workers."""
        return WORKERS * self.batches * self.samples_per_batch

    @property
    def tail_seconds(self) -> float:
        """What is left of the backward pass when the last message can be sent."""
        device = self.accelerator
        return device.backward_seconds - messages(device)[-1].ready_seconds

    @property
    def queued_seconds(self) -> float:
        """What the device still has to do when the host goes on to the next batch."""
        if self.reads_loss:
            return 0.0
        backward = max(0.0, self.tail_seconds - self.exchange_seconds)
        return backward + self.neighbour_seconds + self.accelerator.optimizer_seconds

    def truth(self) -> dict[str, float]:
        """Seconds per iteration of every stall, in closed form."""
        solo = self.iteration_seconds
        unsynced = solo + self.neighbour_seconds + self.slow_worker_seconds
        node = unsynced + self._exchange(self.link_bytes_per_second)
        warm = self._fed(node, self.prepare_seconds)
        cold = self._fed(node, self.prepare_seconds + self.read_seconds)
        known = {
            "contention": unsynced - solo,
            "communication": node - unsynced,
            "prep": warm - node,
            "fetch": cold - warm,
        }
        if self.network_bytes_per_second is not None:
            known["network"] = unsynced + self._exchange(self.network_bytes_per_second) - node
        return known

    def on_link(self, link: Link) -> World:
        """The same, its workers joined by this link."""
        burst = link.burst_seconds
        return replace(self, link_bytes_per_second=link.goodput, burst_seconds=burst)

    def between_hosts(self, link: Link) -> World:
        """The same, its hosts joined by such links."""
        burst = link.burst_seconds
        return replace(self, network_bytes_per_second=link.goodput, burst_seconds=burst)

    def _exchange(self, bytes_per_second: float | None) -> float:
        """What is left of exchanging gradients after overlap."""
        return exchange_stall(
            messages(self.accelerator),
            self.accelerator.backward_seconds,
            latency_seconds=self.exchange_seconds,
            bytes_per_second=bytes_per_second or float("inf"),
            burst_seconds=self.burst_seconds,
        )

    def _fed(self, node: float, batch_seconds: float) -> float:
        """One loader worker prepares a batch meanwhile. Without any, the host makes it, and the
        device waits for what is left of that when it has done what was queued."""
        if self.loader_workers:
            return max(node, batch_seconds)
        return node + max(0.0, batch_seconds - self.queued_seconds)

    def exported(self) -> str:
        """The value of `VARIABLE` that brings this world about."""
        return json.dumps(asdict(self))


def iteration_seconds(device: Accelerator) -> float:
    """Of one iteration that waits for nothing."""
    return device.forward_seconds + device.backward_seconds + device.optimizer_seconds


def world_here() -> World:
    """The world that this process is in."""
    return World(**json.loads(os.environ.get(VARIABLE, "{}")))


def job() -> stash.Workload:
    """The training job of the world that this process is in, with its delays in place."""
    world = world_here()
    if "RANK" in os.environ:  # a worker, not the launcher that only looks at shapes
        _install(world)
    return _workload(world)


def write_files(world: World, folder: Path) -> None:
    """What an epoch of all workers reads."""
    folder.mkdir(exist_ok=True)
    for number in range(world.samples):
        (folder / str(number)).write_bytes(os.urandom(world.file_bytes))
    os.sync()


def _install(world: World) -> None:
    if world.exchange_seconds:
        delays.slow_exchange(world.exchange_seconds)
    if world.neighbour_seconds:
        assert world.marks is not None
        delays.slow_neighbours(world.neighbour_seconds, Path(world.marks))
    if world.slow_worker_seconds:
        delays.slow_forward(world.slow_worker_seconds, only_rank=WORKERS - 1)
    if world.uneven_seconds:
        delays.uneven_iterations(world.uneven_seconds, world.seed)
    if world.reads_loss:
        register_optimizer_step_post_hook(_wait_for_device)
    if world.read_seconds:
        resources.enter_own_group()


_IDLE_SINCE = [0.0]


def _wait_for_device(*step: Any) -> None:
    accelerator = emulated.current()
    assert accelerator is not None
    accelerator.clock.synchronize()
    _IDLE_SINCE[:] = [time.perf_counter()]


def _idle_since() -> float:
    return _IDLE_SINCE[0]


def _workload(world: World) -> stash.Workload:
    if world.model is not None:
        return _zoo_workload(world.model, world.batches)
    samples = world.samples
    data: Dataset[Any] = _Instant(samples)
    if world.files is not None:
        data = _Files(samples, Path(world.files), world.file_bytes)
    if world.prepare_seconds:
        own = world.reads_loss and not world.loader_workers
        since = _idle_since if own else time.perf_counter
        data = delays.SlowBatches(data, world.prepare_seconds, since)
    return stash.Workload(
        name="truth",
        model=partial(_Net, tail=world.tail),
        data=data,
        loss=_loss,
        optimizer=_sgd,
        batch_size=world.samples_per_batch,
        collate=len,  # a number: passing tensors from a loader worker takes a millisecond
    )


def _zoo_workload(model: str, batches: int) -> stash.Workload:
    entry = zoo.get(model)
    return stash.Workload(
        name=model,
        model=entry.builder,
        data=_Images(WORKERS * batches * entry.batch_size),
        loss=entry.loss,
        optimizer=entry.optimizer,
        batch_size=entry.batch_size,
    )


class _Net(nn.Module):
    """Three layers. The first, which is the last in the backward pass, may be frozen: the tail."""

    def __init__(self, *, tail: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(4, 4, 3, padding=1).requires_grad_(not tail)
        self.body = nn.Conv2d(4, 8, 3, padding=1)
        self.head = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.stem(pictures)))


def _loss(model: nn.Module, batch: int) -> torch.Tensor:
    return model(torch.empty(8, 4, 64, 64)).mean()  # not zeros: writing them would be a layer


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


class _Instant(Dataset[Any]):
    """Samples that cost nothing."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> int:
        return index


class _Files(_Instant):
    """Samples that have to be read."""

    def __init__(self, samples: int, folder: Path, file_bytes: int) -> None:
        super().__init__(samples)
        self._folder = folder
        self._file_bytes = file_bytes

    def __getitem__(self, index: int) -> int:
        with (self._folder / str(index)).open("rb", buffering=0) as file:
            return len(file.read(self._file_bytes))


class _Images(_Instant):
    """Black pictures for a net of the zoo, which wants their shape."""

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3, 224, 224), 0
