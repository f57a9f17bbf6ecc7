"""The study document: cells of models, batches and machines, all that its table and figures read.

Every cell is a profile of its own in the study's folder; here stand the numbers that are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    Signed,
    Text,
    parse_object,
    read_file,
    validated,
)
from stash.results.profile import Provenance

Kind = Literal["macro", "micro"]
Group = Literal["small", "large", "language", "resnet", "vgg", "other"]


class StudiedModel(Model):
    """What is trained, and what its gradients are."""

    name: Name
    group: Group
    depth: Count | None  # of a ResNet or VGG
    variant: Text  # what was taken out or put in; empty for the model as it is
    parameters: Count
    gradient_bytes: Count
    tensors: Count  # that have gradients
    messages: Count  # that DDP sends them in
    samples: Positive  # of an epoch


class StudiedMachine(Model):
    """Where it is trained: this machine, or so many of a machine for rent."""

    name: Name
    family: Name  # of GPU, such as K80 or V100
    gpus_per_node: Positive
    nodes: Positive
    price_usd_per_hour: Quantity | None  # of all nodes
    bytes_per_second_per_gpu: Quantity | None  # when all GPUs of a node send at once
    bandwidth_provenance: Provenance | None

    @property
    def workers(self) -> int:
        """Of all nodes together."""
        return self.gpus_per_node * self.nodes


class StudyStall(Model):
    """One stall of a cell."""

    seconds_per_iteration: Interval
    percent: Interval | None
    percent_of: Name
    against: Text  # the machine that it is compared with; empty where it is this one


class CellNumbers(Model):
    """What a cell's profile says."""

    provenance: Provenance
    profile: Name  # its file in the study's folder
    steps: dict[Name, Interval]  # seconds per iteration
    stalls: dict[Name, StudyStall]
    epoch_seconds: Interval  # without data stalls: alike for every machine
    epoch_usd: Interval | None
    memory_percent: Quantity | None  # of a GPU's


class Cell(Model):
    """One model at one batch size on one machine."""

    model: Name
    batch: Positive
    largest: bool  # chosen to fill the device's memory, so another one on another device
    machine: Name
    repeat: Positive
    status: Literal["done", "failed", "does not fit"]
    message: Text
    numbers: CellNumbers | None


class Fit(Model):
    """`L * tau + G / B`: what a message and what a byte costs on one link."""

    machine: Name
    stall: Name  # whose seconds were fitted
    messages: Literal["buckets", "tensors"]  # what L counts
    cells: Count
    seconds_per_message: Interval
    seconds_per_byte: Interval
    explained: Signed  # R squared


class Study(Model):
    """The result of `stash characterize`."""

    schema_: Literal["stash.study/1"] = Field(default="stash.study/1", alias="schema")
    kind: Kind
    created: datetime
    dtype: Name
    models: tuple[StudiedModel, ...]
    machines: tuple[StudiedMachine, ...]
    cells: tuple[Cell, ...]
    fits: tuple[Fit, ...]
    assumptions: tuple[Text, ...]
    asked: Count  # cells, of which an interrupted study has fewer

    def to_json(self) -> str:
        """The document as text."""
        return self.model_dump_json(by_alias=True, indent=1)

    @classmethod
    def load(cls, path: Path) -> Study:
        """Read a document from a file."""
        text = read_file(path)
        parse_object(text, str(path))
        return validated(cls, text, str(path))

    def model(self, name: str) -> StudiedModel:
        """A model by its name."""
        return next(one for one in self.models if one.name == name)

    def machine(self, name: str) -> StudiedMachine:
        """A machine by its name."""
        return next(one for one in self.machines if one.name == name)

    def done(self) -> Iterator[tuple[Cell, CellNumbers]]:
        """Cells that have numbers."""
        for cell in self.cells:
            if cell.numbers is not None:
                yield cell, cell.numbers

    @property
    def failed(self) -> tuple[Cell, ...]:
        """Cells that should have been there."""
        return tuple(cell for cell in self.cells if cell.status == "failed")
