"""The links document: how fast the links of a machine or a cluster are, by itself or in a profile.

Bus bandwidth is that of nccl-tests: the size over the time, times 2 (n - 1) / n for n workers. It
is what every link must have carried, so that worlds of different sizes can be compared.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from stash.results.document import (
    Count,
    Interval,
    Model,
    Name,
    Positive,
    Quantity,
    Seconds,
    Text,
    parse_object,
    read_file,
    validated,
)
from stash.results.recording import Check, Kind, MachineFacts, Where


class MessageResult(Model):
    """All-reduces of one size; the slowest worker's time is the time."""

    bytes: Positive
    seconds: Interval
    bytes_per_second: Interval
    bus_bytes_per_second: Interval
    samples_seconds: tuple[Seconds, ...]  # one a round


class Line(Model):
    """Seconds of an all-reduce as latency + size / bandwidth, fitted to every round."""

    latency_seconds: Interval
    bytes_per_second: Interval
    bus_bytes_per_second: Interval
    worst_misfit_percent: Quantity  # the farthest that a size's time lies from the line


class AllReduce(Model):
    """One set of workers that exchange, over message sizes."""

    where: Where
    nodes: Positive
    workers: Positive
    messages: tuple[MessageResult, ...]
    line: Line | None  # none where times do not grow with the size by more than noise


class SharedResult(Model):
    """Some devices moving bytes at once: bytes per second of each, as the mean over them."""

    at_once: Positive
    bytes_per_second_each: Interval
    samples_bytes_per_second: tuple[tuple[Quantity, ...], ...]  # a round each: by device


class SharedLink(Model):
    """What devices of the first node share: alone, then two, four, and all at once."""

    kind: Kind
    bytes: Positive  # that each device moves in a block
    counts: tuple[SharedResult, ...]


class Pair(Model):
    """How two devices of the first node are linked, as the driver tells."""

    first: Count
    second: Count
    linked_by: Text


class LinksRun(Model):
    """How probing went."""

    rounds: Count
    measuring_seconds: Seconds
    stopped_because: Literal["rounds", "max-minutes", "interrupted", "failed"]
    message: Text = ""


class Links(Model):
    """Latency and bandwidth of exchange, copies and storage."""

    schema_: Literal["stash.links/1"] = Field(default="stash.links/1", alias="schema")
    id: Name
    created: datetime
    machine: MachineFacts
    run: LinksRun
    all_reduce: tuple[AllReduce, ...]
    shared: tuple[SharedLink, ...]
    topology: tuple[Pair, ...]
    checks: tuple[Check, ...]

    @classmethod
    def load(cls, path: Path) -> Links:
        """Read a document from a file."""
        text = read_file(path)
        parse_object(text, str(path))
        return validated(cls, text, str(path))
