"""What feeding the devices costs on another machine: cores, cache and storage to prep and fetch.

Rates are samples per second. Changes when the model of loaders, page cache or storage does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Batches that may wait for a device: loader workers times their prefetch factor.
QUEUED_BATCHES = 4
#: Of the page cache, all cores together.
MEMORY_BYTES_PER_SECOND = 10e9


@dataclass(frozen=True, kw_only=True)
class Source:
    """What is known of a data set and of the work on it."""

    preprocessing_per_core: float  # samples per second that one core prepares
    bytes_per_sample: float | None = None
    samples: int | None = None

    @property
    def data_bytes(self) -> float | None:
        if self.bytes_per_sample is None or self.samples is None:
            return None
        return self.bytes_per_sample * self.samples


@dataclass(frozen=True, kw_only=True)
class Host:
    """What one node has for it."""

    cores: float
    cache_bytes: float | None = None
    storage_bytes_per_second: float | None = None
    memory_bytes_per_second: float = MEMORY_BYTES_PER_SECOND


@dataclass(frozen=True)
class Feed:
    """Samples per second that a node can be fed with."""

    prepared: float  # what the cores alone sustain
    read: float | None  # what storage alone sustains
    cold: float  # nothing in memory
    later_low: float  # partly in memory, as a cache that evicts what it needs next
    later_high: float  # the same with a cache that keeps what it has


def feed(source: Source, host: Host) -> Feed:
    """The slower of preparing and reading, for first and later epochs."""
    prepared = source.preprocessing_per_core * host.cores
    size, storage = source.bytes_per_sample, host.storage_bytes_per_second
    if size is None or storage is None:
        return Feed(prepared, None, prepared, prepared, prepared)
    cached = cached_fraction(source, host)

    def read(hits: float) -> float:
        return reading_rate(hits, size, host.memory_bytes_per_second, storage)

    cold, low, high = (min(prepared, read(hits)) for hits in (0.0, lru_hits(cached), cached))
    return Feed(prepared, read(0.0), cold, low, high)


def cached_fraction(source: Source, host: Host) -> float:
    """How much of the data fits into the memory that is left for the page cache."""
    if source.data_bytes is None or host.cache_bytes is None:
        return 1.0
    return min(1.0, host.cache_bytes / source.data_bytes)


def reading_rate(hits: float, sample_bytes: float, memory: float, storage: float) -> float:
    """Samples per second when a fraction of reads is answered from memory."""
    return 1 / (sample_bytes * (hits / memory + (1 - hits) / storage))


def lru_hits(cached: float) -> float:
    """Hits of a cache that evicts what was not used for longest, under a new order each epoch."""
    missing = 1 - cached
    if missing <= 0:
        return 1.0
    return 1 - missing + missing * math.log(missing)


def smallest_useful_cache(needed: float, memory: float, storage: float) -> float:
    """The fraction of the data that must be cached for storage to keep up; rates in samples/s."""
    if storage >= needed:
        return 0.0
    return (1 / storage - 1 / needed) / (1 / storage - 1 / memory)


def cores_needed(devices: float, preprocessing_per_core: float) -> float:
    """Cores that prepare as fast as the devices consume."""
    return devices / preprocessing_per_core


def iteration_seconds(consuming: float, producing: float, queued: int = QUEUED_BATCHES) -> float:
    """Seconds per iteration when batches come through a queue: more than the slower of the two.

    Both vary, so the devices find the queue empty now and then even when producing is faster.
    """
    if producing <= 0:
        return consuming
    ratio = consuming / producing
    if abs(ratio - 1) < 1e-9:
        empty = 1 / (queued + 1)
    elif ratio > 50:  # the power below would overflow, and nobody waits
        return consuming
    else:
        empty = (1 - ratio) / (1 - ratio ** (queued + 1))
    return consuming + empty * producing
