"""What a run writes while it measures: one JSON line an event, so that no crash loses a round.

The engine's first worker appends; the launching process reads, for progress and for the profile.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from stash.results.document import (
    Count,
    Model,
    Name,
    Positive,
    Quantity,
    Seconds,
    SignedSeconds,
    Text,
)


class Disturbance(Model):
    """What the whole machine did during one block, as the first worker of the node saw it."""

    wall_seconds: Seconds
    cpu_busy_seconds: Seconds
    cpu_steal_seconds: Seconds
    disk_read_bytes: Count
    network_bytes: Count
    memory_used_bytes: Count
    clock_mhz: Quantity | None
    device_busy_percent: Quantity | None
    device_memory_used_bytes: Count | None
    worker_cpu_seconds: Seconds | None = None  # of that worker with its loader workers
    #: Of the same cores, of programs that are not of this run; rounding may take it below zero.
    other_cpu_seconds: SignedSeconds | None = None


class Block(Model):
    """A few consecutive iterations of one step: the unit that is timed."""

    step: Name
    iterations: Positive
    seconds: tuple[Seconds | None, ...]  # per worker; none for workers that were left out
    lead_in_iterations: Count
    lead_in_seconds: tuple[Seconds | None, ...]  # untimed iterations after the switch
    #: Per worker that was left out: as many iterations afterwards, alone and without exchange.
    held_seconds: tuple[Seconds | None, ...] = ()
    loader_read_bytes: Count | None  # bytes the loaders read from storage, all workers
    loader_file_bytes: Count | None  # page-rounded size of the files they read
    disturbance: Disturbance

    @property
    def seconds_per_iteration(self) -> float:
        """A gang is as fast as its slowest worker: from the last end of a lead-in to the last end.

        Workers end some tenths of a millisecond apart, now one first and now another. The longest
        of their own times would add that to what the gang takes.
        """
        pairs = itertools.zip_longest(self.lead_in_seconds, self.seconds)
        known = [(lead or 0.0, own) for lead, own in pairs if own is not None]
        began, ended = max(lead for lead, _ in known), max(lead + own for lead, own in known)
        return (ended - began) / self.iterations


class Round(Model):
    """One block of every step, in the order in which they ran."""

    kind: Literal["round"] = "round"
    launch: Count
    number: Count
    at_seconds: Seconds  # since measuring began
    blocks: tuple[Block, ...]

    def seconds_per_iteration(self) -> dict[str, float]:
        """Step name to seconds per iteration."""
        return {block.step: block.seconds_per_iteration for block in self.blocks}


class Check(Model):
    """A condition for the numbers to mean what they say, with words and what to do next."""

    name: Name
    status: Literal["pass", "warn"]
    message: Text
    next: Text = ""


class WorkloadFacts(Model):
    """What was trained."""

    name: Name
    parameters: Count
    gradient_bytes: Count
    optimizer: Name
    batch_per_worker: Positive
    samples: Count | None  # in one epoch; none where the data set has no length
    iterations_per_epoch: Count | None = None  # per worker, as its own loader counts them
    data: Text
    data_bytes: Count | None
    loader_workers: Count
    dtype: Name


class MachineFacts(Model):
    """What it was trained on."""

    host: Name
    system: Text
    cpu: Text
    cores: Positive
    memory_bytes: Count
    device: Name
    devices: tuple[Text, ...]
    device_memory_bytes: Count | None
    nodes: Positive
    hosts: tuple[Name, ...] = ()  # one a node, the first one's first; none where there is one
    workers_per_node: Positive
    cores_per_worker: Quantity
    threads_per_worker: Positive
    pinned: bool
    backend: Name
    python: Name
    torch: Name
    stash: Name
    instance: Text | None = None
    price_usd_per_hour: Quantity | None = None

    @property
    def workers(self) -> int:
        """Workers of all nodes."""
        return self.nodes * self.workers_per_node


class Rate(Model):
    """What one part of the machine sustains alone: samples per second, one value a repeat."""

    samples_per_second: tuple[Quantity, ...]
    note: Text = ""


class Calibration(Model):
    """How the run decided to measure."""

    warm_up_iterations: Count
    warm_up_settled: bool
    block_iterations: dict[Name, Positive]
    lead_in_iterations: dict[Name, Count]
    window_batches: Count
    window_samples: Count
    replay_batches: Count
    replay_shapes_vary: bool
    loader_start_seconds: SignedSeconds | None  # fresh loader workers against running ones
    loader_persistent: bool  # whether later epochs keep them
    seed: Count


class Facts(Model):
    """What the gang knows once it has calibrated."""

    kind: Literal["facts"] = "facts"
    launch: Count
    workload: WorkloadFacts
    machine: MachineFacts
    calibration: Calibration
    preprocessing: Rate | None
    storage: Rate | None
    checks: tuple[Check, ...]


class Phase(Model):
    """What the gang is doing now, for whoever watches."""

    kind: Literal["phase"] = "phase"
    launch: Count
    name: Name


class End(Model):
    """The gang stopped measuring by itself, and what only the end can tell."""

    kind: Literal["end"] = "end"
    launch: Count
    reason: Literal["half-width", "max-minutes", "max-usd", "rounds"]
    checks: tuple[Check, ...]
    peak_device_memory_bytes: tuple[Count | None, ...]


#: Who exchanges: all workers of the first node, one worker of every node, all workers of all nodes.
Where = Literal["node", "between", "cluster"]
#: What is moved by devices that do not exchange, but may share the way.
Kind = Literal["memory", "host-to-device", "device-to-host", "storage"]


class LinkBlock(Model):
    """One size of message, or one kind of copies by some devices at once."""

    what: Where | Kind
    bytes: Positive  # of a message, or that each device moves
    at_once: Positive  # workers
    repeats: Positive
    seconds: tuple[Seconds | None, ...]  # per worker; none for workers that were left out
    storage_bytes: Count | None = None  # that came from storage, all readers together
    file_bytes: Count | None = None  # page-rounded, of what they read


class LinkFacts(Model):
    """What the gang knows about its links before it probes them."""

    kind: Literal["link-facts"] = "link-facts"
    machine: MachineFacts
    checks: tuple[Check, ...]


class LinkRound(Model):
    """One block of every size and kind, in the order in which they ran."""

    kind: Literal["link-round"] = "link-round"
    number: Count
    at_seconds: Seconds
    blocks: tuple[LinkBlock, ...]


AnyEvent = Facts | Phase | Round | End | LinkFacts | LinkRound
_EVENT: TypeAdapter[AnyEvent] = TypeAdapter(Annotated[AnyEvent, Field(discriminator="kind")])


class Recorder:
    """Appends events to a recording, each flushed before the next block starts."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, event: AnyEvent) -> None:
        """Append one event."""
        self._file.write(event.model_dump_json() + "\n")
        self._file.flush()

    def close(self) -> None:
        """Make sure the recording survives the machine, too."""
        os.fsync(self._file.fileno())
        self._file.close()


class RecordingReader:
    """Reads a recording that may still be growing; a line without its end is left for later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_events(self) -> Iterator[AnyEvent]:
        """Events written since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                try:
                    yield _EVENT.validate_json(line)
                except (ValidationError, json.JSONDecodeError):
                    continue  # a torn line after a full disk: the rounds around it still count
