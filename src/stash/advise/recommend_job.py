"""From an iteration to the whole job: epochs with their data, set-up, interruptions, dollars.

Changes when something else is paid for, or when data are fed in another way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from stash.advise.candidates import Flags, Grid
from stash.advise.recommend_belief import Belief, Timing
from stash.advise.recommendation import Assumptions
from stash.predict import pipeline
from stash.predict.api import host_of
from stash.predict.facts import Array

SECONDS_PER_HOUR = 3600.0

End = Literal["low", "seconds", "high"]


@dataclass(frozen=True)
class DataTimings:
    """Measured seconds per iteration with real data."""

    cold: Timing | None
    warm: Timing | None


@dataclass(frozen=True, kw_only=True)
class Work:
    """What has to be done."""

    samples: int
    epochs: int
    batch: int
    source: pipeline.Source | None = None
    storage_bytes_per_second: float | None = None  # where the catalog knows no disk
    data: Mapping[int, DataTimings] = field(default_factory=dict)  # rows measured with data


@dataclass(frozen=True, eq=False)
class Reading:
    """Seconds that a node needs to produce the batches of one iteration."""

    cold: Array
    later_best: Array  # a page cache that keeps what it has
    later_worst: Array  # one that evicts what is needed next
    in_memory: Array  # nothing has to be read from storage at all

    @property
    def overflows(self) -> Flags:
        """Later epochs still read from storage."""
        still: Flags = self.later_best > self.in_memory
        return still


@dataclass(frozen=True, eq=False)
class Jobs:
    """The whole job on every row."""

    first_epoch_seconds: Array
    later_epoch_seconds: Array
    fixed_seconds: Array  # set-up and profiling
    training_seconds: Array
    interrupted_seconds: Array  # expected to be lost
    hours: Array
    node_hours_price: Array  # dollars, or devices, for an hour of all nodes

    @property
    def cost(self) -> Array:
        paid: Array = self.hours * self.node_hours_price
        return paid


@dataclass(frozen=True, eq=False)
class Outlook:
    """The job as expected, at its best, and at its worst."""

    expected: Jobs
    low: Jobs
    high: Jobs
    parts: dict[str, Array]  # of the expected hours, as shares
    overflows: Flags  # rows whose later epochs still read from storage


def outlook(
    ways: Grid, belief: Belief, work: Work, assumed: Assumptions, hourly_price: Array
) -> Outlook:
    """What renting each row comes to; prices are of one node."""
    reading = _reading(ways, work)
    measured = np.isin(np.arange(len(ways)), list(belief.measured))
    fixed = assumed.setup_seconds + np.where(measured, 0.0, assumed.profiling_seconds)

    def jobs(together: Array, later: Array, end: End) -> Jobs:
        first = _with_data(together, reading.cold)
        warm = _with_data(together, later)
        for row, timings in work.data.items():
            if timings.cold is not None:
                first[row] = getattr(timings.cold, end) or timings.cold.seconds
            if timings.warm is not None and not reading.overflows[row]:
                warm[row] = getattr(timings.warm, end) or timings.warm.seconds
        return _jobs(ways, work, first, warm, fixed, assumed, hourly_price)

    expected = jobs(belief.times.together, reading.later_best, "seconds")
    return Outlook(
        expected=expected,
        low=jobs(belief.low, reading.later_best, "low"),
        high=jobs(belief.high, reading.later_worst, "high"),
        parts=_parts(ways, belief, work, reading, expected, assumed),
        overflows=reading.overflows,
    )


def iterations_per_epoch(ways: Grid, work: Work) -> Array:
    each: Array = np.ceil(np.ceil(work.samples / ways.workers) / work.batch)
    return each


def _jobs(
    ways: Grid,
    work: Work,
    first: Array,
    later: Array,
    fixed: Array,
    assumed: Assumptions,
    hourly_price: Array,
) -> Jobs:
    count = iterations_per_epoch(ways, work)
    training = count * (first + (work.epochs - 1) * later)
    interrupted = training * _lost_share(ways, assumed)
    return Jobs(
        first_epoch_seconds=count * first,
        later_epoch_seconds=count * later,
        fixed_seconds=fixed,
        training_seconds=training,
        interrupted_seconds=interrupted,
        hours=(fixed + training + interrupted) / SECONDS_PER_HOUR,
        node_hours_price=hourly_price * ways.nodes,
    )


def _lost_share(ways: Grid, assumed: Assumptions) -> Array:
    """Expected loss over useful time; infinite where machines go faster than work comes on.

    Each interruption of any node costs all of them the work since the last checkpoint and a new
    set-up, and may strike while another is being made good.
    """
    if not assumed.spot:
        return np.zeros(len(ways))
    each = (assumed.lost_seconds_per_interruption + assumed.setup_seconds) / SECONDS_PER_HOUR
    busy = assumed.interruptions_per_node_hour * ways.nodes * each
    with np.errstate(divide="ignore"):
        share: Array = np.where(busy < 1, busy / np.maximum(1 - busy, 0.0), np.inf)
    return share


def _reading(ways: Grid, work: Work) -> Reading:
    if work.source is None:
        nothing = np.zeros(len(ways))
        return Reading(nothing, nothing, nothing, nothing)
    source = work.source
    hosts = [host_of(one, work.storage_bytes_per_second) for one in ways.instances]
    cached = np.array([pipeline.cached_fraction(source, host) for host in hosts])[ways.instance]
    evicting = np.array([pipeline.lru_hits(float(one)) for one in np.unique(cached)])
    evicting = evicting[np.searchsorted(np.unique(cached), cached)]
    kept = np.array([_mean_hits(int(n), work.epochs) for n in range(1, int(ways.nodes.max()) + 1)])
    seen = kept[ways.nodes.astype(int) - 1]
    samples = work.batch * ways.gpus_per_node

    def producing(hits: Array) -> Array:
        rate = [
            _rate(source, hosts[number], float(hit))
            for number, hit in zip(ways.instance, hits, strict=True)
        ]
        seconds: Array = samples / np.array(rate)
        return seconds

    return Reading(
        cold=producing(np.zeros(len(ways))),
        later_best=producing(np.minimum(cached, seen)),
        later_worst=producing(np.minimum(evicting, seen)),
        in_memory=producing(np.ones(len(ways))),
    )


def _rate(source: pipeline.Source, host: pipeline.Host, hits: float) -> float:
    """Samples per second that a node can be fed with when this share is in memory."""
    prepared = source.preprocessing_per_core * host.cores
    size, storage = source.bytes_per_sample, host.storage_bytes_per_second
    if size is None or storage is None:
        return prepared
    return min(prepared, pipeline.reading_rate(hits, size, host.memory_bytes_per_second, storage))


def _mean_hits(nodes: int, epochs: int) -> float:
    """How much of what a node reads in later epochs it has read before, the mean of all of them.

    Every epoch deals the samples out anew, so a node of many finds little of its own share again.
    """
    later, elsewhere = max(1, epochs - 1), 1 - 1 / nodes
    # The mean of 1 - elsewhere^k over the epochs k = 1, 2, ... later.
    return 1 - elsewhere * (1 - elsewhere**later) * nodes / later


def _with_data(together: Array, producing: Array) -> Array:
    pairs = zip(together, producing, strict=True)
    return np.array([pipeline.iteration_seconds(float(t), float(p)) for t, p in pairs])


def _parts(
    ways: Grid, belief: Belief, work: Work, reading: Reading, expected: Jobs, assumed: Assumptions
) -> dict[str, Array]:
    """Where the hours go, as shares of them; they add up."""
    whole = expected.hours * SECONDS_PER_HOUR
    count = iterations_per_epoch(ways, work) * work.epochs
    times = belief.times
    prepared = _with_data(times.together, reading.in_memory)
    for row, timings in work.data.items():
        prepared[row] = timings.warm.seconds if timings.warm is not None else prepared[row]
    seconds = {
        "compute": count * times.solo,
        "interconnect": count * (times.node - times.solo),
        "scale-out": count * (times.together - times.node),
        "prep": count * (prepared - times.together),
        "fetch": expected.training_seconds - count * prepared,
        "interruptions": expected.interrupted_seconds,
        "set-up": np.full(len(ways), assumed.setup_seconds),
        "profiling": expected.fixed_seconds - assumed.setup_seconds,
    }
    with np.errstate(invalid="ignore"):
        return {name: value / whole for name, value in seconds.items()}
