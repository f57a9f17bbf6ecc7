"""The recommendation document: every way to rent a job that was considered, and which to take."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from stash.errors import StashError
from stash.results.document import (
    Count,
    Interval,
    Model,
    Name,
    Positive,
    Quantity,
    Seconds,
    Signed,
    Text,
    parse_object,
    read_file,
    validated,
)
from stash.results.profile import Provenance

SCHEMA = "stash.recommendation/1"

Objective = Literal["cheapest", "fastest", "knee"]
Currency = Literal["usd", "device-hours"]


class Question(Model):
    """What was asked."""

    workload: Name
    samples: Positive  # in one epoch
    epochs: Positive
    batch_per_worker: Positive
    dtype: Name
    data_bytes: Quantity | None  # of the whole data set, in storage
    samples_per_second_per_core: Quantity | None  # that one core prepares
    deadline_hours: Quantity | None
    budget_usd: Quantity | None
    clouds: tuple[Name, ...]  # none: all
    excluded: tuple[Name, ...]
    max_nodes: Positive
    catalog: Text  # a snapshot's name, or the user's file
    retired: bool
    objective: Objective
    currency: Currency


class Assumptions(Model):
    """What nobody measured and the answer rests on; every one can be set."""

    setup_seconds: Seconds = 600.0
    """From renting to the first iteration: boot, environment, data. Paid for, by all nodes."""

    profiling_seconds: Seconds = 600.0
    """What a machine is profiled for before it trains, unless its profile was given."""

    spot: bool = False
    interruptions_per_node_hour: Quantity = 0.05
    """Of spot machines: how often one of them is taken away."""

    lost_seconds_per_interruption: Seconds = 900.0
    """Work since the last checkpoint; setting up again comes on top."""


class UsedProfile(Model):
    """A profile that was given, and what it was good for."""

    id: Name
    provenance: Provenance
    words: Text
    spent_usd: Quantity | None  # on measuring it, where its price is known


class Candidate(Model):
    """One machine type at one number of nodes: time and cost of the whole job."""

    machine: Name
    cloud: Name
    nodes: Positive
    gpu: Name
    gpus_per_node: Positive
    provenance: Provenance  # of an iteration's time
    price_usd_per_hour: Quantity | None  # of one node, on demand or spot
    price_region: Text
    price_date: Text
    first_epoch_seconds: Interval
    later_epoch_seconds: Interval  # mean of all epochs after the first
    hours: Interval  # from renting to giving back, all of the job
    device_hours: Interval
    usd: Interval | None
    parts: dict[Name, Signed]  # of the hours: compute, each stall, set-up, profiling, interruptions
    largest_stall: Name | None

    @property
    def name(self) -> str:
        return way_name(self.machine, self.nodes)

    def cost(self, currency: Currency) -> Interval:
        """What is paid: dollars, or device-hours where nobody has set a price."""
        return self.usd if currency == "usd" and self.usd is not None else self.device_hours


def way_name(machine: str, nodes: int) -> str:
    """A machine type at a number of nodes, as people write it."""
    return machine if nodes == 1 else f"{nodes}x {machine}"


class LeftOut(Model):
    """Machines that were not considered, by reason."""

    reason: Text
    machines: tuple[Name, ...]


class NextProbe(Model):
    """The machine whose measurement would improve the decision most per dollar."""

    machine: Name
    cloud: Name
    nodes: Positive
    probe_seconds: Seconds  # set-up and profiling
    probe_usd: Quantity | None
    probe_device_hours: Quantity
    expected_saving_usd: Signed | None  # of the job, by deciding after the measurement
    expected_saving_hours: Signed | None  # where time is what counts
    expected_saving_fraction: Signed  # of cost, time, or both together at the knee
    expected_overrun_avoided_fraction: Signed  # of the deadline or the budget
    strongest_machine: Name  # what would improve the decision most, whatever it costs
    strongest_nodes: Positive
    strongest_usd: Quantity | None
    worth_it: bool  # does it save more than it costs, or keep a limit that would be missed?
    words: Text


class Recommendation(Model):
    """What to rent, and everything that it was chosen from."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    id: Name
    created: datetime
    stash: Name
    status: Literal["chosen", "infeasible"]
    question: Question
    assumptions: Assumptions
    interval_percent: Quantity  # of every interval of a predicted time
    words: Text  # why this one; or why none, and what would have to change
    knee_usd_per_hour: Quantity | None = None  # what an hour less may cost; without limits only
    chosen: Count | None  # position in `candidates`
    front: tuple[Count, ...]  # positions: no other way is both cheaper and faster; cheapest first
    ties: tuple[Count, ...]  # positions: cannot be told from the chosen one by what is known
    candidates: tuple[Candidate, ...]  # cheapest first
    left_out: tuple[LeftOut, ...]
    profiles: tuple[UsedProfile, ...]
    remarks: tuple[Text, ...]
    next_probe: NextProbe | None = None

    @property
    def choice(self) -> Candidate | None:
        return None if self.chosen is None else self.candidates[self.chosen]

    @property
    def pareto(self) -> tuple[Candidate, ...]:
        """From the cheapest to the fastest."""
        return tuple(self.candidates[position] for position in self.front)

    @classmethod
    def load(cls, path: Path) -> Recommendation:
        """Read a document from a file."""
        text = read_file(path)
        found = str(parse_object(text, str(path)).get("schema"))
        if found != SCHEMA:
            raise StashError(f"{path}: field 'schema' is {found[:80]!r}, expected {SCHEMA!r}.")
        return validated(cls, text, str(path))
