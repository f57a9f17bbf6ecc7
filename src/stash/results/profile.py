"""The profile document: the result of one measurement, all that reports and advice ever read."""

from __future__ import annotations

import json
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from stash.errors import StashError
from stash.results.document import (
    Count,
    Interval,
    Model,
    Name,
    Quantity,
    Seconds,
    SignedSeconds,
    Text,
)
from stash.results.recording import Block, Calibration, Check, MachineFacts, WorkloadFacts
from stash.results.steps import whole_iteration

SCHEMA = "stash.profile/1"
#: A file larger than this is no profile; 10,000 rounds on 64 workers stay below it.
MAX_FILE_BYTES = 512 * 2**20


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


class SliceResult(Model):
    """One way in which a rented part of a machine may be linked, and what that does."""

    chance: Quantity
    inside: Text
    seconds_per_iteration: SignedSeconds


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
    prediction: Prediction | None = None

    def to_json(self) -> str:
        """The document as text, the same wherever it is shown."""
        return self.model_dump_json(by_alias=True, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes, *, source: str = "profile") -> Profile:
        """Read a document of any known version; errors name the field."""
        document = _parse(text, source)
        migrated = _migrate(document, source)
        try:
            return cls.model_validate_json(json.dumps(migrated))
        except ValidationError as error:
            raise StashError(_explain(error, source)) from None
        except RecursionError:
            raise StashError(f"{source} is nested deeper than any profile.") from None

    @classmethod
    def load(cls, path: Path) -> Profile:
        """Read a document from a file."""
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise StashError(f"{path} is larger than any profile ({MAX_FILE_BYTES >> 20} MiB).")
            return cls.from_json(path.read_bytes(), source=str(path))
        except OSError as error:
            reason = error.strerror or str(error)
            raise StashError(
                f"Cannot read {path}: {reason}. `stash list` shows the profiles there are.",
                exit_code=2,
            ) from None


def whole_step(profile: Profile) -> str | None:
    """The measured step that stands for a whole iteration of a later epoch."""
    try:
        return whole_iteration(set(profile.steps))
    except StopIteration:  # a document whose steps are all unknown here
        return None


#: Version to a function that turns a document of that version into one of the next.
MIGRATIONS: dict[str, Any] = {}


def _parse(text: str | bytes, source: str) -> dict[str, Any]:
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise StashError(
            f"{source} is not a complete JSON document ({error}). It may be truncated; "
            "measure again or restore the file."
        ) from None
    if not isinstance(document, dict):
        raise StashError(f"{source} is not a profile: expected a JSON object.")
    return document


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


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


def _explain(error: ValidationError, source: str) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "document"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{source}: field '{field}': {first['msg']}{more}."
