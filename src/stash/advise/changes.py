"""What is to be different from a profile: read from words, checked, and told again."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stash.errors import UsageError
from stash.hardware import gpus
from stash.lab import words
from stash.results.profile import Profile

MOST_LOADER_WORKERS = 1024


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Any of these; none leaves a thing as it was measured."""

    num_workers: int | None = None  # loader workers of each worker
    cores: int | None = None  # of a node
    batch_size: int | None = None  # of each worker
    cache_bytes: float | None = None
    storage_bytes_per_second: float | None = None
    gpu: str | None = None
    network_bytes_per_second: float | None = None

    @classmethod
    def of(
        cls,
        *,
        num_workers: int | None,
        cores: int | None,
        batch_size: int | None,
        cache: str | None,
        storage: str | None,
        gpu: str | None,
        network: str | None,
    ) -> Changes:
        """From the words of the command line."""
        _at_least("--num-workers", num_workers, 0)
        _at_least("--cores", cores, 1)
        _at_least("--batch-size", batch_size, 1)
        return cls(
            num_workers=num_workers,
            cores=cores,
            batch_size=batch_size,
            cache_bytes=None if cache is None else _size(cache),
            storage_bytes_per_second=None if storage is None else words.bytes_per_second(storage),
            gpu=None if gpu is None else gpus.find(gpu).key,
            network_bytes_per_second=None if network is None else words.bytes_per_second(network),
        )

    @property
    def of_data(self) -> bool:
        """Whether the input pipeline is touched."""
        touched = (self.num_workers, self.cores, self.cache_bytes, self.storage_bytes_per_second)
        return any(one is not None for one in touched)

    def told(self, profile: Profile) -> tuple[str, ...]:
        """Each change with what it was before, as far as the profile knows."""
        workload, machine = profile.workload, profile.machine
        found = []
        if self.num_workers is not None:
            found.append(f"loader workers {workload.loader_workers} -> {self.num_workers}")
        if self.cores is not None:
            found.append(f"cores {machine.cores} -> {self.cores}")
        if self.batch_size is not None:
            found.append(f"batch {workload.batch_per_worker} -> {self.batch_size}")
        if self.cache_bytes is not None:
            found.append(f"cache of {amount(self.cache_bytes)}")
        if self.storage_bytes_per_second is not None:
            found.append(f"storage of {amount(self.storage_bytes_per_second)}/s")
        if self.gpu is not None:
            found.append(f"{machine.device} -> {gpus.find(self.gpu).name}")
        if self.network_bytes_per_second is not None:
            found.append(f"network of {8 * self.network_bytes_per_second / 1e9:g} Gbit/s")
        return tuple(found)


def amount(count: float) -> str:
    """Bytes as an option takes them, to three digits: `64GB`."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{_three_digits(count / size):g}{unit}"
    return f"{count:.0f}B"


def _three_digits(number: float) -> float:
    return round(number, 2 - math.floor(math.log10(number)))


def _size(text: str) -> float:
    """A cache may be none at all."""
    return 0.0 if text.strip() == "0" else float(words.byte_count(text))


def _at_least(option: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise UsageError(f"{option} is {value}; expected {least} or more.")
    if value is not None and option == "--num-workers" and value > MOST_LOADER_WORKERS:
        raise UsageError(f"{option} is {value}; expected {MOST_LOADER_WORKERS} or fewer.")
