"""Probes links inside each worker: all-reduces over sizes, copies by some devices at once, storage.

Like steps, probes run in rounds, each one block of every probe in random order. A worker that is
left out of a block waits without spinning.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from stash.engine import pagecache
from stash.engine.devices import Device, open_device
from stash.engine.facts import machine_checks, machine_facts
from stash.engine.gang import DistributedGang, Gang
from stash.engine.heartbeat import Heartbeat
from stash.engine.intermission import Intermission
from stash.engine.plan import RECORDING, LinksPlan, Plan
from stash.engine.readers import ColdReader
from stash.engine.recorder import WorkerRecorder
from stash.results.recording import (
    Check,
    End,
    Kind,
    LinkBlock,
    LinkFacts,
    LinkRound,
    Phase,
    Recorder,
    Where,
)

#: A block is repeated to last so long: starts of workers differ by a small part of it.
BLOCK_SECONDS = 0.05
#: Messages that take longer are left out: a round must stay short beside the drift of a machine.
LONGEST_MESSAGE_SECONDS = 1.0
MOST_REPEATS = 2000
COPY_BYTES = 64 << 20  # larger than what caches hold for one worker
READ_SECONDS = 0.25


def probe(plan: Plan, run_folder: Path) -> None:
    """One worker, from joining the others to the last round."""
    assert plan.links is not None
    device = open_device(plan.device, int(os.environ["LOCAL_RANK"]))
    if plan.device == "cuda":
        torch.cuda.set_device(device.index)
    dist.init_process_group("nccl" if plan.device == "cuda" else "gloo")
    gang = DistributedGang()
    recorder = WorkerRecorder(run_folder / RECORDING) if gang.rank == 0 else None
    _Prober(plan, plan.links, gang, device, run_folder, recorder).run()
    gang.barrier()


@dataclass(frozen=True)
class Probe:
    """One kind of block: who takes part, what they do, and how often in a row."""

    what: Where | Kind
    bytes: int
    ranks: range
    move: Callable[[], object]
    reader: ColdReader | None = None
    repeats: int = 1

    @property
    def exchanges(self) -> bool:
        """Whether its workers need each other."""
        return self.what in ("node", "between", "cluster")


class _Prober:
    def __init__(
        self,
        plan: Plan,
        links: LinksPlan,
        gang: Gang,
        device: Device,
        run_folder: Path,
        recorder: Recorder | None,
    ) -> None:
        self._plan = plan
        self._links = links
        self._gang = gang
        self._device = device
        self._run_folder = run_folder
        self._recorder = recorder
        self._intermission = Intermission(run_folder)
        self._heartbeat = Heartbeat(run_folder, gang.rank, plan.timeout_seconds)
        self._per_node = gang.size // plan.nodes
        self._checks: list[Check] = []

    def run(self) -> None:
        """Calibrate, then rounds until there are enough or the time is over."""
        self._say(Phase(launch=0, name="calibrating"))
        probes = self._calibrated(self._probes())
        machine = machine_facts(self._plan, self._gang, self._device)
        checks = (*machine_checks(machine), *self._checks)
        self._say(LinkFacts(machine=machine, checks=checks))
        self._say(Phase(launch=0, name="probing"))
        began, number, reason = time.perf_counter(), 0, 0
        while not reason:
            blocks = self._round(probes, number)
            at = time.perf_counter() - began
            self._say(LinkRound(number=number, at_seconds=at, blocks=blocks))
            number += 1
            reason = self._gang.follow(self._reason_to_stop(number, at))
        words = ("rounds", "max-minutes")[reason - 1]
        self._say(
            End.model_validate(
                {"launch": 0, "reason": words, "checks": (), "peak_device_memory_bytes": ()}
            )
        )

    def _reason_to_stop(self, rounds: int, seconds: float) -> int:
        if self._plan.max_rounds is not None and rounds >= self._plan.max_rounds:
            return 1
        over = self._plan.max_seconds is not None and seconds >= self._plan.max_seconds
        return 2 if over else 0

    def _say(self, event: Phase | LinkFacts | LinkRound | End) -> None:
        if self._recorder is not None:
            self._recorder.write(event)
            self._intermission.take()

    def _round(self, probes: Sequence[Probe], number: int) -> tuple[LinkBlock, ...]:
        order = list(probes)
        random.Random(f"{self._plan.seed} {number}").shuffle(order)  # the same on every worker
        return tuple(self._block(one) for one in order)

    def _block(self, probe: Probe) -> LinkBlock:
        """The workers of a probe repeat it; the others wait at the gathering."""
        self._heartbeat.tell(probe.what)
        takes_part = self._gang.rank in probe.ranks
        if takes_part and probe.reader is not None:
            probe.reader.evict()
        self._gang.barrier()
        seconds, read = -1.0, None
        if takes_part:
            start = time.perf_counter()
            for _ in range(probe.repeats):
                probe.move()
            self._device.synchronize()
            seconds = time.perf_counter() - start
            read = None if probe.reader is None else probe.reader.storage_bytes()
        told = self._gang.gather([seconds, *(read or (-1, -1))])
        proven = probe.what == "storage" and all(told[rank][1] >= 0 for rank in probe.ranks)
        return LinkBlock(
            what=probe.what,
            bytes=probe.bytes,
            at_once=len(probe.ranks),
            repeats=probe.repeats,
            seconds=tuple(None if one[0] < 0 else one[0] for one in told),
            storage_bytes=int(sum(told[r][1] for r in probe.ranks)) if proven else None,
            file_bytes=int(sum(told[r][2] for r in probe.ranks)) if proven else None,
        )

    def _probes(self) -> list[Probe]:
        return [*self._exchanges(), *self._copies(), *self._reads()]

    def _exchanges(self) -> list[Probe]:
        """All sizes for each set of workers; every worker helps to make every group."""
        size, per_node = self._gang.size, self._per_node
        sets: dict[Where, range] = {}
        if per_node > 1:
            sets["node"] = range(per_node)
        if self._plan.nodes > 1:
            sets["between"] = range(0, size, per_node)
        if self._plan.nodes > 1 and per_node > 1:
            sets["cluster"] = range(size)
        buffer = self._zeros(max(self._links.message_bytes))
        probes = []
        for where, ranks in sets.items():
            group = dist.new_group(list(ranks))
            for count in self._links.message_bytes:
                part = buffer[: max(1, count // buffer.element_size())]
                exchange = partial(dist.all_reduce, part, group=group)
                probes.append(Probe(where, count, ranks, exchange))
        return probes

    def _copies(self) -> list[Probe]:
        """Memory to memory on CPUs; from pinned memory to a GPU and back elsewhere."""
        host = torch.zeros(COPY_BYTES // 4)
        ways: dict[Kind, tuple[torch.Tensor, torch.Tensor]]
        if self._device.index is None:
            ways = {"memory": (host, torch.ones_like(host))}
        else:
            pinned, there = host.pin_memory(), self._zeros(COPY_BYTES)
            ways = {"host-to-device": (pinned, there), "device-to-host": (there, pinned)}
        return [
            Probe(kind, COPY_BYTES, range(count), partial(target.copy_, source, non_blocking=True))
            for kind, (source, target) in ways.items()
            for count in _counts(self._per_node)
        ]

    def _reads(self) -> list[Probe]:
        """The first node's workers, each its own files, as much of them as all of them have."""
        folder = self._links.folder
        if folder is None:
            return []
        if not pagecache.can_evict():
            self._checks.append(_no_storage("This system cannot drop files from memory."))
            return []
        reader = None
        if self._gang.rank < self._per_node:
            reader = ColdReader(
                Path(folder), self._gang.rank, self._per_node, makes_files=self._links.makes_files
            )
        sizes = self._gang.gather([-1 if reader is None else reader.bytes])
        size = int(min(one[0] for one in sizes[: self._per_node]))
        if size == 0:
            self._checks.append(_no_storage(f"{folder} has no file to read for every worker."))
            return []
        if reader is not None:
            reader.bytes = size
        move = (lambda: None) if reader is None else reader.read
        return [
            Probe("storage", size, range(count), move, reader) for count in _counts(self._per_node)
        ]

    def _zeros(self, count: int) -> torch.Tensor:
        where = "cpu" if self._device.index is None else f"cuda:{self._device.index}"
        return torch.zeros(max(1, count // 4), device=where)

    def _calibrated(self, probes: Sequence[Probe]) -> list[Probe]:
        """Connect everybody, decide repeats, leave out what takes too long."""
        kept: list[Probe] = []
        left_out: dict[str, int] = {}
        read_bytes: int | None = None
        for one in probes:
            if one.what in left_out:
                continue
            self._block(one)  # connects, and touches all memory
            seconds = _slowest(self._block(one))
            if one.what == "storage":
                read_bytes = read_bytes or _bytes_in(READ_SECONDS, one.bytes, seconds)
                kept.append(_reading(one, read_bytes))
            elif one.exchanges and seconds > LONGEST_MESSAGE_SECONDS:
                left_out[one.what] = one.bytes
            else:
                repeats = math.ceil(BLOCK_SECONDS / max(seconds, BLOCK_SECONDS / MOST_REPEATS))
                kept.append(replace(one, repeats=repeats))
        self._checks += [_left_out(where, size) for where, size in left_out.items()]
        return kept


def _slowest(block: LinkBlock) -> float:
    return max(seconds for seconds in block.seconds if seconds is not None)


def _bytes_in(wanted_seconds: float, count: int, seconds: float) -> int:
    """How much of `count` bytes, which took some time, to read for a block of the wanted length."""
    return max(1, min(count, int(count * wanted_seconds / max(seconds, 1e-9))))


def _reading(probe: Probe, count: int) -> Probe:
    """The same with so many bytes a block: those that one reader alone reads in time."""
    if probe.reader is not None:
        probe.reader.bytes = count
    return replace(probe, bytes=count)


def _counts(devices: int) -> list[int]:
    """One alone, then 2, 4, ... and all at once."""
    powers = [2**power for power in range(devices.bit_length()) if 2**power < devices]
    return [*powers, devices]


def _left_out(where: str, size: int) -> Check:
    return Check(
        name=f"sizes ({where})",
        status="warn",
        message=f"Messages of {size} bytes and more take longer than "
        f"{LONGEST_MESSAGE_SECONDS:g} s and were left out.",
        next="Bandwidth comes from the smaller ones; the line says how well it fits.",
    )


def _no_storage(why: str) -> Check:
    return Check(
        name="storage",
        status="warn",
        message=f"Storage was not probed. {why}"[:4000],
        next="Name a local folder with at least as many files as workers with --data, or none.",
    )
