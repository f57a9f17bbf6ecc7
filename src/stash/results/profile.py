"""The profile document: the result of one measurement, all that reports and advice ever read."""

from __future__ import annotations

import json
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from stash.errors import StashError
from stash.results.document import (
    Count,
    Interval,
    Model,
    Name,
    Quantity,
    Seconds,
    Signed,
    SignedSeconds,
    Text,
    parse_object,
    read_file,
    validated,
)
from stash.results.links import Links
from stash.results.recording import Block, Calibration, Check, MachineFacts, Round, WorkloadFacts

SCHEMA = "stash.profile/1"


class Provenance(str, Enum):
    """Where a number comes from; never blurred."""

    MEASURED = "measured"
    EMULATED = "emulated"
    PREDICTED = "predicted"
    CITED = "cited"


class RoundBlock(Block):
    """A raw block with the round that it belongs to."""

    launch: Count
    round: Count
    at_seconds: Seconds

    def alone(self) -> Block:
        """The same without its round."""
        return Block.model_construct(**{name: getattr(self, name) for name in Block.model_fields})


class StepResult(Model):
    """Seconds per iteration of one step, with every raw block behind it where measured."""

    seconds_per_iteration: Interval
    rounds: Count
    blocks: tuple[RoundBlock, ...]


class StallResult(Model):
    """One stall: never clamped, always with its sign."""

    seconds_per_iteration: Interval
    mean_seconds_per_iteration: SignedSeconds
    percent: Interval | None
    percent_of: Name
    share: Interval | None  # of a later epoch's iteration
    share_of_first_epoch: Interval | None
    significant: bool
    intermittent: bool
    detectable_seconds_per_iteration: SignedSeconds | None
    usd_per_hour_of_training: Interval | None
    part_of: Name | None


class EpochResult(Model):
    """One pass over the data: iterations, time and cost."""

    iterations: Count
    seconds: Interval
    device_hours: Interval
    usd: Interval | None


class Epochs(Model):
    """The first epoch reads from storage, later ones from memory as far as the data fits."""

    first: EpochResult | None
    later: EpochResult | None


class Rates(Model):
    """Samples per second that each part could sustain alone."""

    devices: Interval | None
    preprocessing: Interval | None
    storage: Interval | None


class Telemetry(Model):
    """What the machine was doing during the blocks of one step."""

    cpu_percent: Quantity
    steal_percent: Quantity
    disk_read_bytes_per_second: Quantity
    network_bytes_per_second: Quantity
    memory_used_bytes: Count
    device_busy_percent: Quantity | None
    device_memory_used_bytes: Count | None
    worker_cpu_percent: Quantity | None = None  # of one core, the first worker with its loaders


class Run(Model):
    """How the measurement went."""

    stopped_because: Literal[
        "half-width", "max-minutes", "max-usd", "rounds", "interrupted", "failed", "predicted"
    ]
    message: Text
    rounds: Count
    launches: Count
    measuring_seconds: Seconds
    half_width_asked: Quantity
    half_width_reached: Quantity | None  # the widest stall's, as a fraction of an iteration
    peak_device_memory_bytes: tuple[Count | None, ...]
    peak_device_memory_percent: Quantity | None


class Waiting(Model):
    """The headline: the fraction of the time in which workers wait for anything."""

    later: Interval | None
    first: Interval | None


class Iterations(Model):
    """Seconds of a whole iteration, where no one step has it.

    Several steps are put together for it on several nodes with data; one of data that do not fit
    into memory can only be predicted.
    """

    later: Interval | None
    first: Interval | None


class SliceResult(Model):
    """One way in which a rented part of a machine may be linked, and what that does."""

    chance: Quantity
    inside: Text
    seconds_per_iteration: SignedSeconds  # of all nodes
    interconnect_percent: Signed | None = None  # the stall inside a node, of `solo`


class Prediction(Model):
    """What a predicted profile rests on; absent where something was measured."""

    calibrated_on: Text  # what was known beforehand, and what constants were fitted to
    interval_percent: Quantity  # how often the intervals held in validation
    messages: Count  # that gradients travel in
    inside: Text  # links between workers of a node
    between: Text  # links between nodes
    slices: tuple[SliceResult, ...] = ()
    largest_batch: Count | None = None  # that fits the device's memory


class Profile(Model):
    """The result of one measurement (or of one prediction)."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    id: Name
    created: datetime
    provenance: Provenance
    workload: WorkloadFacts
    machine: MachineFacts
    run: Run
    calibration: Calibration | None
    steps: dict[Name, StepResult]
    stalls: dict[Name, StallResult]
    waiting: Waiting
    epoch: Epochs
    rates: Rates
    telemetry: dict[Name, Telemetry]
    checks: tuple[Check, ...]
    iteration: Iterations | None = None  # where no one step tells
    prediction: Prediction | None = None
    links: Links | None = None  # where they were probed in the same session

    def rounds(self) -> list[Round]:
        """Every raw block again in its round, in order."""
        blocks: dict[tuple[int, int], list[RoundBlock]] = {}
        for step in self.steps.values():
            for block in step.blocks:
                blocks.setdefault((block.launch, block.round), []).append(block)
        return [
            Round(
                launch=launch,
                number=number,
                at_seconds=found[0].at_seconds,
                blocks=tuple(block.alone() for block in found),
            )
            for (launch, number), found in sorted(blocks.items())
        ]

    @classmethod
    def from_json(cls, text: str | bytes, *, source: str = "profile") -> Profile:
        """Read a document of any known version; errors name the field."""
        document = parse_object(text, source)
        migrated = _migrate(document, source)
        # Written anew only where it changed: profiles are megabytes of raw blocks.
        return validated(cls, text if migrated is document else json.dumps(migrated), source)

    @classmethod
    def load(cls, path: Path) -> Profile:
        """Read a document from a file."""
        return cls.from_json(read_file(path), source=str(path))


#: Version to a function that turns a document of that version into one of the next.
MIGRATIONS: dict[str, Any] = {}


def _migrate(document: dict[str, Any], source: str) -> dict[str, Any]:
    version = document.get("schema")
    while isinstance(version, str) and version in MIGRATIONS:
        document = MIGRATIONS[version](document)
        version = document.get("schema")
    if version != SCHEMA:
        found = version if isinstance(version, str) else f"a {type(version).__name__}"
        raise StashError(
            f"{source}: field 'schema' is {found[:80]!r}, this Stash reads {SCHEMA!r} and older. "
            "Upgrade Stash to read it."
        )
    return document
