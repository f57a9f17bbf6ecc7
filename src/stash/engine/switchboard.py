"""The switchboard of one worker: feed, gradient exchange and who runs, under an unchanged loop.

The seams call it (a group was made, a loader is iterated, an optimizer stepped); the story decides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from stash.engine.devices import Device, Moment, open_device
from stash.engine.exchange import SwitchableGroup
from stash.engine.facts import gather_facts, unreadable_check
from stash.engine.feed import Feeds, Unfed
from stash.engine.gang import gather_gang
from stash.engine.heartbeat import Heartbeat, OnHang
from stash.engine.intermission import Intermission
from stash.engine.limits import evaluation_check, in_place_check, possible_steps
from stash.engine.measure import Measurement, Sink
from stash.engine.observe import Loop, Observer
from stash.engine.plan import RECORDING, Plan
from stash.engine.recorder import WorkerRecorder
from stash.engine.sources import IteratorSource, LoaderSource, Source
from stash.engine.telemetry import Telemetry
from stash.errors import StashError
from stash.results.recording import (
    Calibration,
    Check,
    Disturbance,
    End,
    Facts,
    Phase,
    Rate,
    RecordingReader,
    Round,
)
from stash.results.steps import Feed, Step, Who


class MeasurementDone(BaseException):
    """The story is over. Raised where nobody has said how to leave the script."""


def _raise(error: Exception | None) -> None:
    raise MeasurementDone if error is None else error


class Switchboard:
    """One per worker; also the bench on which the measuring story works."""

    def __init__(
        self,
        plan: Plan,
        run_folder: Path,
        iterate: Callable[[DataLoader[Any]], Iterator[Any]],
        leave: Callable[[Exception | None], None] = _raise,
        on_hang: OnHang | None = None,
    ) -> None:
        self.iterate = iterate  # how PyTorch itself iterates a loader, without our seam
        self.steps = 0  # of all optimizers, those included that a gradient scaler skipped
        self._plan = plan
        self._run_folder = run_folder
        self._leave = leave
        self._on_hang = on_hang  # where no launcher of ours watches
        self._process = os.getpid()
        self._local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self._device: Device = open_device(plan.device, self._local_rank)
        self._groups: list[SwitchableGroup] = []
        self._observer = Observer()
        self._loop: Loop | None = None
        self._feeds: Feeds | None = None
        self._story: Iterator[None] | None = None
        self._telemetry: Telemetry | None = None
        self._recorder: WorkerRecorder | None = None
        self._intermission = Intermission(run_folder)
        rank = int(os.environ.get("RANK", "0"))
        self._heartbeat = Heartbeat(run_folder, rank, plan.timeout_seconds)
        # By optimizer; a step that calls another step of the same one is hooked twice.
        self._held_rates: dict[int, list[list[Any]]] = {}
        self._natural_batches = 0  # of other loaders, since measuring began

    # What the seams tell.

    @property
    def is_here(self) -> bool:
        """Whether this is the worker itself, and not a process that the script has forked."""
        return os.getpid() == self._process

    def group_made(self, group: SwitchableGroup) -> None:
        """A process group now goes through the exchange switch."""
        self._groups.append(group)
        if self._story is None:
            self._observer.watch(group)

    def batch_taken(self, origin: Any) -> None:
        """The script takes a batch of its own from this loader or iterator."""
        if self._story is None:
            self._observer.batch_taken(origin)
        else:
            self._heartbeat.moved()
            self._natural_batches += 1

    def autocast_entered(self, dtype: torch.dtype) -> None:
        """The script computes in this precision."""
        if self._story is None:
            self._observer.autocast_entered(dtype)

    def is_feeding(self, origin: Any) -> bool:
        """Whether the batches of this loader or iterator come from us now."""
        return self._feeds is not None and self._feeds.source.is_same(origin)

    def fed_batch(self) -> Any:
        """The next batch of the current feed."""
        return self._loaded.next_batch()

    def step_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Hold the learning rate at zero: the same work, and weights that never drift apart."""
        rates = [group.get("lr") for group in optimizer.param_groups]
        self._held_rates.setdefault(id(optimizer), []).append(rates)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if rate is not None:
                group["lr"] = torch.zeros_like(rate) if isinstance(rate, torch.Tensor) else 0.0

    def step_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped: give the rates back, then let the story go on."""
        held = self._held_rates[id(optimizer)]
        rates = held.pop()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if rate is not None:
                group["lr"] = rate
        if not held:
            self.iteration_ended(optimizer)

    def iteration_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Also where a step was skipped: a gradient scaler found an overflow."""
        self.steps += 1
        self._heartbeat.moved()
        if self._loop is None:
            self._loop = self._observer.step_ended(optimizer)
        if self._loop is None or optimizer is not self._loop.optimizer:
            return
        try:
            if self._story is None:
                self._story = self._begin(self._loop)
            next(self._story)
        except StopIteration:
            self._leave(None)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Leave at once: a script that catches errors would only go on unmeasured."""
        self._leave(error)

    def close(self) -> None:
        """End what we started in this process."""
        self._heartbeat.close()
        self._observer.close()
        if self._recorder is not None:
            self._recorder.close()
        if self._feeds is not None:
            self._feeds.close()

    def _begin(self, loop: Loop) -> Iterator[None]:
        self._heartbeat.watch(self._on_hang)
        self._gang = gather_gang()
        processes = self._processes_here()
        self._follow_device(loop)
        steps = possible_steps(loop, self._plan.steps, self._gang.size, self._plan.nodes)
        self._plan = self._plan.model_copy(update={"steps": steps})
        self._feeds = self._make_feeds(loop)
        sink: Sink = _Nowhere()
        if self._gang.rank == 0:
            sink = self._recorder = WorkerRecorder(self._run_folder / RECORDING)
        if self._local_rank == 0:
            self._telemetry = Telemetry(self._device.index, processes)
        return Measurement(
            self._plan, self._gang, self, self._feeds, sink, earlier=self._earlier_rounds()
        ).story()

    def _processes_here(self) -> list[int]:
        """Of all workers of this node; whatever started them need not be the same process."""
        numbers = [int(number) for (number,) in self._gang.gather([os.getpid()])]
        per_node = max(1, self._gang.size // self._plan.nodes)
        first = self._gang.rank - self._gang.rank % per_node
        return numbers[first : first + per_node]

    def _earlier_rounds(self) -> list[Round]:
        """Those of a profile that is continued: the launcher has put them into the recording."""
        if self._gang.rank != 0 or not self._plan.earlier_rounds:
            return []
        events = RecordingReader(self._run_folder / RECORDING).new_events()
        return [event for event in events if isinstance(event, Round)]

    def _ranks_of(self, who: Who) -> tuple[int, ...]:
        nodes, size = self._plan.nodes, self._gang.size
        return tuple(
            rank
            for rank in range(size)
            if who.includes(rank, nodes=nodes, workers_per_node=max(1, size // nodes))
        )

    def _follow_device(self, loop: Loop) -> None:
        """The script decides where it trains; an emulated accelerator looks like a CPU.

        A GPU's number need not be the worker's: launchers may show each worker only its own.
        """
        if not self._is_real:
            return
        actual = loop.optimizer.param_groups[0]["params"][0].device
        if actual.type not in ("cpu", "cuda"):
            raise StashError(
                f"The script trains on {actual.type!r}, and Stash cannot tell when that is done: "
                "it can time CPUs and CUDA devices, ROCm's among them"
            )
        self._plan = self._plan.model_copy(update={"device": actual.type})
        number = self._local_rank if actual.index is None else actual.index
        self._device = open_device(actual.type, number)

    @property
    def _is_real(self) -> bool:
        return not self._plan.device.startswith("emulated")

    def _make_feeds(self, loop: Loop) -> Feeds:
        if loop.origin is None:
            return Unfed(self._device, run_folder=self._run_folder, batch_size=loop.samples or 1)
        loaded = isinstance(loop.origin, DataLoader)
        source: Source = (
            LoaderSource(loop.origin, self.iterate) if loaded else IteratorSource(loop.origin)
        )
        data = self._plan.data_folder
        return Feeds(
            source,
            self._device,
            run_folder=self._run_folder,
            data_folder=None if data is None else Path(data),
            per_iteration=self._gang.follow(loop.per_iteration),
            moved=self._heartbeat.moved,
        )

    # What the story asks.

    def set(self, step: Step) -> None:
        """Turn feed and exchange."""
        self._turn(step.feed, step.exchange, self._ranks_of(step.who))

    def idle(self) -> None:
        """For workers that catch up."""
        self._turn(Feed.REPLAY, False, ())

    def _turn(self, feed: Feed, exchange: bool, among: tuple[int, ...]) -> None:
        self._loaded.switch(feed)
        for group in self._groups:
            group.turn(exchange, among)

    @property
    def _loaded(self) -> Feeds:
        assert self._feeds is not None
        return self._feeds

    def moment(self) -> Moment:
        """When the device is done with what it has been given so far."""
        return self._device.moment()

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

    def heartbeat(self, doing: str, *, waits_for: int = 0) -> None:
        """Others may take as long for each iteration as a worker may take to move on."""
        self._heartbeat.tell(doing, waits_for * self._plan.timeout_seconds)

    def rest(self) -> None:
        """Let the launcher show what was written."""
        self._intermission.take()

    def facts(self, calibration: Calibration, rates: tuple[Rate | None, Rate | None]) -> Facts:
        """All that is known about workload and machine."""
        assert self._loop is not None
        return gather_facts(
            self._plan, self._gang, self._device, self._loaded, self._loop, calibration, rates
        )

    def final_checks(self) -> tuple[Check, ...]:
        """What only the end can tell."""
        assert self._loop is not None
        checks = unreadable_check(self._run_folder)
        if self._natural_batches and not self._loop.other_loaders:
            checks += (evaluation_check(self._natural_batches),)
        return (*checks, in_place_check()) if self._loaded.changed_in_place else checks

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
