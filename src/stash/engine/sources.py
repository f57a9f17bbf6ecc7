"""Where real batches come from: the script's own loader, or an iterator that it hands over.

A source can be opened anew for every block. A loader is copied as a *twin* that visits one fixed
list of samples, so the script's loader and its sampler are left alone; an iterator just goes on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, IterableDataset

from stash.engine.opens import OpenRecorder


class Source(Protocol):
    """What the feed needs to know of, and do with, the script's own batches."""

    origin: Any  # the script's object: a loader or an iterator
    repeats: bool  # whether an epoch is shorter than what was prepared

    @property
    def loader_workers(self) -> int:
        """Processes that prepare batches; none means that the worker does it itself."""

    @property
    def prefetched(self) -> int:
        """Batches that are prepared ahead."""

    @property
    def persistent(self) -> bool:
        """Whether loader workers live from epoch to epoch."""

    @property
    def is_endless(self) -> bool:
        """Whether it cannot be drained: a stream ends when it likes."""

    def batch_size(self) -> int | None:
        """Samples in one batch, where the source knows."""

    def samples(self) -> int | None:
        """Samples of one epoch, where the source knows."""

    def batches(self) -> int | None:
        """Batches of one epoch, where the source knows."""

    def is_same(self, other: object) -> bool:
        """Whether the script's object is this source, perhaps built anew for another epoch."""

    def prepare(self, batches: int, *, persistent: bool, opens: OpenRecorder | None) -> None:
        """Get ready to be opened, for so many batches; `opens` notes the files that are read."""

    def open(self) -> Iterator[Any]:
        """Start from an empty queue, at the first sample."""

    def close(self) -> None:
        """End worker processes."""


class LoaderSource:
    """A `DataLoader` of the script, read through its twin."""

    def __init__(
        self, loader: DataLoader[Any], iterate: Callable[[DataLoader[Any]], Iterator[Any]]
    ) -> None:
        self.origin = loader
        self.repeats = False
        self._iterate = iterate  # how PyTorch itself iterates a loader, without our seam
        self._twin: DataLoader[Any] | None = None
        self._epoch_indices: list[Any] = []
        self._epoch_is_whole = False

    @property
    def loader_workers(self) -> int:
        return int(self.origin.num_workers)

    @property
    def prefetched(self) -> int:
        return int(self.origin.num_workers * (self.origin.prefetch_factor or 0))

    @property
    def persistent(self) -> bool:
        return bool(self.origin.persistent_workers)

    @property
    def is_endless(self) -> bool:
        return isinstance(self.origin.dataset, IterableDataset)

    def batch_size(self) -> int | None:
        size = self.origin.batch_size
        return None if size is None else int(size)

    def samples(self) -> int | None:
        return None if self.is_endless else _length(self.origin.dataset)

    def batches(self) -> int | None:
        return None if self.is_endless else _length(self.origin)

    def is_same(self, other: object) -> bool:
        if not torch.is_grad_enabled():
            return False  # an evaluation, perhaps on the very data that is trained on
        # Scripts may build their loader anew for every epoch.
        return isinstance(other, DataLoader) and other.dataset is self.origin.dataset

    def prepare(self, batches: int, *, persistent: bool, opens: OpenRecorder | None) -> None:
        self.repeats = False
        self._twin = self._make_twin(batches, persistent, opens)

    def open(self) -> Iterator[Any]:
        assert self._twin is not None, "a source is prepared before it is opened"
        return self._iterate(self._twin)

    def close(self) -> None:
        self._twin = None

    def _make_twin(
        self, batches: int, persistent: bool, opens: OpenRecorder | None
    ) -> DataLoader[Any]:
        """A loader that differs from the script's own only in the samples that it visits."""
        mine = self.origin
        settings: dict[str, Any] = {
            "num_workers": mine.num_workers,
            "collate_fn": mine.collate_fn,
            "pin_memory": mine.pin_memory,
            "timeout": mine.timeout,
            "worker_init_fn": opens or mine.worker_init_fn,
            "generator": torch.Generator(),  # the script's own random numbers are left alone
        }
        for name in ("in_order", "pin_memory_device"):  # not in every release of torch
            if hasattr(mine, name):
                settings[name] = getattr(mine, name)
        if mine.num_workers > 0:
            settings["multiprocessing_context"] = mine.multiprocessing_context
            settings["prefetch_factor"] = mine.prefetch_factor
            # An endless stream can only be left by ending its workers.
            settings["persistent_workers"] = persistent and not self.is_endless
        if self.is_endless:
            return DataLoader(
                mine.dataset, batch_size=mine.batch_size, drop_last=mine.drop_last, **settings
            )
        if mine.batch_sampler is not None:
            indices = self._indices(mine.batch_sampler, batches)
            return DataLoader(mine.dataset, batch_sampler=indices, **settings)
        samples = self._indices(mine.sampler, batches)
        return DataLoader(mine.dataset, batch_size=None, sampler=samples, **settings)

    def _indices(self, sampler: Any, count: int) -> list[Any]:
        """The first index lists of an epoch, remembered: later epochs would shuffle anew."""
        if len(self._epoch_indices) < count and not self._epoch_is_whole:
            self._epoch_indices = list(itertools.islice(sampler, count))
            self._epoch_is_whole = len(self._epoch_indices) < count
        known = self._epoch_indices
        self.repeats = len(known) < count
        return [known[i % len(known)] for i in range(count)]


class IteratorSource:
    """Batches that the script makes itself and passes through `stash.feed`."""

    loader_workers = 0
    prefetched = 0
    persistent = True
    is_endless = True
    repeats = False

    def __init__(self, batches: Iterable[Any]) -> None:
        self.origin: Any = batches
        self._iterator: Iterator[Any] | None = None
        self._is_over = False

    def batch_size(self) -> int | None:
        return None

    def samples(self) -> int | None:
        return None

    def batches(self) -> int | None:
        return None

    def is_same(self, other: object) -> bool:
        """A generator ends with its epoch; what the script hands over next takes its place."""
        if self._is_over and torch.is_grad_enabled() and not isinstance(other, DataLoader):
            self.origin, self._iterator, self._is_over = other, None, False
        return other is self.origin

    def prepare(self, batches: int, *, persistent: bool, opens: OpenRecorder | None) -> None:
        pass

    def open(self) -> Iterator[Any]:
        """The same iterator all the time; one that can begin again does so at its end."""
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self.origin)
        try:
            return next(self._iterator)
        except StopIteration:
            self._iterator = iter(self.origin)
        try:
            return next(self._iterator)
        except StopIteration:
            self._is_over = True
            raise

    def close(self) -> None:
        pass


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except TypeError:
        return None
