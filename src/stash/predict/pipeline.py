"""What feeding the devices costs on another machine: cores, cache and storage to prep and fetch.

Rates are samples per second. Changes when the model of loaders, page cache or storage does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Batches that PyTorch's loader has each of its workers prepare ahead.
PREFETCHED_BATCHES = 2
#: Batches that may wait for a device where the number of loader workers is not known.
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
    warm: float  # all of it in memory
    storage: Storage | None = None  # none where nobody says how fast it is, or what a sample weighs

    @property
    def overflows(self) -> bool:
        """Whether later epochs read from storage, too."""
        return self.storage is not None and self.storage.later_low < self.warm


@dataclass(frozen=True)
class Storage:
    """What storage adds to it, in samples per second."""

    read: float  # what it sustains alone
    cold: float  # nothing in memory
    later_low: float  # as much in memory as fits, in a cache that evicts what it needs next
    later_high: float  # the same in a cache that keeps what it has


def feed(source: Source, host: Host) -> Feed:
    """The slower of preparing and reading: from memory, from storage, and from both."""
    prepared = source.preprocessing_per_core * host.cores
    size, storage = source.bytes_per_sample, host.storage_bytes_per_second
    if size is None:
        return Feed(prepared, warm=prepared)
    memory = host.memory_bytes_per_second
    warm = min(prepared, memory / size)
    if storage is None:
        return Feed(prepared, warm)
    cached = cached_fraction(source, host)

    def fed(hits: float) -> float:
        return min(prepared, reading_rate(hits, size, memory, storage))

    return Feed(
        prepared,
        warm,
        Storage(
            read=reading_rate(0.0, size, memory, storage),
            cold=fed(0.0),
            later_low=fed(lru_hits(cached)),
            later_high=fed(cached),
        ),
    )


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


def iteration_seconds(
    consuming: float, producing: float, queued: int = QUEUED_BATCHES, variation: float = 1.0
) -> float:
    """Seconds per iteration when batches come through a queue: more than the slower of the two.

    Both vary, so the devices find the queue empty now and then even when producing is faster.
    `variation` is the square of how far single times scatter, relative to their mean: 1 where they
    are as random as arrivals, 0 where all are alike and the slower of the two decides.
    """
    if producing <= 0:
        return consuming
    if consuming <= 0:
        return producing
    return (
        consuming + _empty(consuming / producing, (queued + 1) / max(variation, 1e-6)) * producing
    )


def _empty(ratio: float, places: float) -> float:
    """How often a queue with so many places is empty, `(1 - r) / (1 - r^places)`."""
    power = places * math.log(ratio)
    if power == 0:
        return 1 / places
    return 0.0 if power > 700 else (ratio - 1) / math.expm1(power)


@dataclass(frozen=True, kw_only=True)
class Loaders:
    """The input pipeline of a node whose workers have loader workers of their own."""

    workers: int
    loader_workers: int  # of each worker; with none it prepares its batches between iterations
    batch: int  # samples of one worker
    prepare_seconds: float  # of one sample by one loader worker, from memory
    read_seconds: float  # of one sample from storage, with nobody else reading
    overhead_seconds: float = 0.0  # what taking a batch costs the training loop itself
    miss_seconds: float = 0.0  # what an iteration takes longer though storage keeps up, all cold
    cores: float = math.inf
    training_core_seconds: float = 0.0  # of one iteration of all workers
    prepare_core_seconds: float = 0.0  # of one sample
    variation: float = 1.0

    @property
    def samples(self) -> int:
        """Of one iteration of all workers."""
        return self.workers * self.batch

    def producing_seconds(self, hits: float) -> float:
        """Of the batches of one iteration, when this fraction of reads is answered from memory.

        A loader worker reads, then prepares; all of them share the storage.
        """
        read = (1 - hits) * self.read_seconds
        loader = self.batch * (self.prepare_seconds + read) / max(1, self.loader_workers)
        return max(loader, self.samples * read)

    @property
    def core_bound_seconds(self) -> float:
        """What the work of an iteration takes when all cores are busy with it."""
        work = self.training_core_seconds + self.samples * self.prepare_core_seconds
        return work / self.cores

    def iteration_seconds(self, devices: float, hits: float) -> float:
        """Of one iteration, of which the devices take so much."""
        consuming, producing = devices + self.overhead_seconds, self.producing_seconds(hits)
        if self.loader_workers == 0:
            fed = consuming + producing
        else:
            queued = PREFETCHED_BATCHES * self.loader_workers
            variation = self.variation + self._variation_by_misses(hits)
            fed = iteration_seconds(consuming, producing, queued, variation)
        return max(fed, self.core_bound_seconds) + (1 - hits) * self.miss_seconds

    def _variation_by_misses(self, hits: float) -> float:
        """Which samples of a batch are in memory is chance; half of the sum is the producer's."""
        if not 0 < hits < 1:
            return 0.0
        read = (1 - hits) * self.read_seconds
        part = read / (read + self.prepare_seconds)
        return part**2 * hits / (1 - hits) / self.batch / 2
