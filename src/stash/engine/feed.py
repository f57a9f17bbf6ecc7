"""The feed switch: the batches that the script's loader hands out, replayed or really loaded.

Real feeds run the script's own data set, collation and worker settings over one fixed window of
samples, the same every time, in a loader of our own whose queue is empty when a block starts.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from stash.engine import pagecache
from stash.engine.devices import Device
from stash.engine.opens import OpenRecorder
from stash.results.steps import Feed
from stash.workloads.workload import move

#: Recorded batches may take this much of what the device has free.
REPLAY_MEMORY_FRACTION = 0.1
MAX_REPLAY_BATCHES = 64
#: Loader workers are started so often to learn what that costs.
START_REPEATS = 3
#: Of one file, when storage is timed alone.
MAX_READ_BYTES = 256 << 20


@dataclass(frozen=True)
class Window:
    """The batches of one loader block: lead-in, timed part, and a tail that keeps workers busy."""

    lead: int
    timed: int
    tail: int

    @property
    def batches(self) -> int:
        """All of them."""
        return self.lead + self.timed + self.tail


class Feeds:
    """Hands out batches to the training loop, from wherever the current step wants them."""

    def __init__(
        self,
        loader: DataLoader[Any],
        device: Device,
        *,
        run_folder: Path,
        data_folder: Path | None,
        iterate: Callable[[DataLoader[Any]], Iterator[Any]],
    ) -> None:
        self._loader = loader
        self._device = device
        self._run_folder = run_folder
        self._data_folder = data_folder
        self._iterate = iterate
        self._replay: list[Any] = []
        self._staged: list[Any] = []
        self._next_replay = 0
        self._twin: DataLoader[Any] | None = None
        self._live: Iterator[Any] | None = None
        self._feed = Feed.REPLAY
        self.files: tuple[Path, ...] = ()
        self.file_bytes = 0
        self.window = Window(0, 1, 0)
        self.shapes_vary = False
        self.repeats = False  # whether the epoch is shorter than the window
        self._epoch_indices: list[Any] = []
        self._epoch_is_whole = False

    @property
    def unit(self) -> int:
        """Loader workers deliver in bursts of their number, so blocks are multiples of it."""
        return max(1, self._loader.num_workers)

    @property
    def prefetched(self) -> int:
        """Batches that the loader works ahead."""
        return self._loader.num_workers * (self._loader.prefetch_factor or 0)

    @property
    def batch_size(self) -> int:
        """Samples in one batch."""
        if self._loader.batch_size is not None:
            return self._loader.batch_size
        return _first_dimension(self._replay[0]) if self._replay else 1

    @property
    def loader(self) -> DataLoader[Any]:
        """The script's own loader."""
        return self._loader

    @property
    def replay_batches(self) -> int:
        """How many recorded batches are replayed."""
        return len(self._replay)

    @property
    def persistent(self) -> bool:
        """Whether the script's loader keeps its workers from epoch to epoch."""
        return bool(self._loader.persistent_workers)

    def available_batches(self) -> int | None:
        """Batches of one epoch; none where the data has no end."""
        if isinstance(self._loader.dataset, IterableDataset):
            return None
        try:
            return len(self._loader)
        except TypeError:
            return None

    def use_window(self, window: Window) -> None:
        """Fix the window; read it once, recording its batches and the files they come from."""
        self.close()
        self.window = window
        opens = OpenRecorder(self._loader.worker_init_fn, self._run_folder, self._data_folder)
        self.repeats = False
        self._twin = self._make_twin(window, persistent=False, worker_init_fn=opens)
        with opens.recording_here(self._loader.num_workers == 0):
            batches = self._record(window)
        self.files = opens.files()
        self.file_bytes = pagecache.page_rounded_bytes(self.files)
        self._keep_for_replay(batches, window)
        self._twin = self._make_twin(window, persistent=True)

    def switch(self, feed: Feed) -> None:
        """Choose where batches come from. A real feed is opened and drained around a block."""
        self._feed = feed

    def next_batch(self) -> Any:
        """One batch, for the training loop."""
        if self._feed.is_real:
            return self._next_loaded()
        if self._feed is Feed.STAGED and not self._staged:
            self._staged = [self._device.staged(batch) for batch in self._host_replay()]
        batches = self._staged if self._feed is Feed.STAGED else self._replay
        batch = batches[self._next_replay % len(batches)]
        self._next_replay += 1
        return batch

    def storage_bytes_read(self) -> int | None:
        """What this worker and its loaders have read from storage so far; none where unknown."""
        return pagecache.storage_bytes_read()

    def empty_page_cache(self) -> None:
        """Drop the window's files from memory."""
        pagecache.evict(self.files)

    def open(self) -> None:
        """Start the loader from an empty queue, at the first sample of the window."""
        assert self._twin is not None
        self._live = self._iterate(self._twin)

    def drain(self) -> int:
        """Take what is left of the window, so that no worker is busy in the next block."""
        if self._live is None:
            return 0
        endless = isinstance(self._loader.dataset, IterableDataset)
        count = 0 if endless else sum(1 for _ in self._live)
        self._live = None
        return count

    def close(self) -> None:
        """End the loader's worker processes."""
        self._live = None
        self._twin = None

    def seconds_to_start(self) -> float | None:
        """What fresh loader workers cost: their first batch against the same from running ones."""
        if self._loader.num_workers == 0:
            return None
        differences = []
        for _ in range(START_REPEATS):
            self._twin = self._make_twin(self.window, persistent=True)
            fresh, running = self._seconds_to_first_batch(), self._seconds_to_first_batch()
            differences.append(fresh - running)
        return median(differences)

    def seconds_to_prepare(self) -> tuple[int, float]:
        """Batches and seconds of the loader alone, after the first burst has come."""
        self.open()
        for _ in range(self.unit):
            self._next_loaded()
        began = time.perf_counter()
        count = self.window.batches - self.unit
        for _ in range(count):
            self._next_loaded()
        seconds = time.perf_counter() - began
        self.drain()
        return count, seconds

    def seconds_to_read(self) -> tuple[float, float]:
        """Samples and seconds of reading from storage alone, with as many readers as the loader."""
        self.empty_page_cache()
        began = time.perf_counter()
        with ThreadPoolExecutor(self.unit) as pool:
            read_bytes = sum(pool.map(_read, self.files))
        return read_bytes / self._bytes_per_sample(), time.perf_counter() - began

    def _bytes_per_sample(self) -> float:
        """Of the window's files; where many samples share a file, of all that lie in it."""
        stored = sum(path.stat().st_size for path in self.files)
        samples = self.window.batches * self.batch_size
        if len(self.files) < samples:
            with contextlib.suppress(TypeError):
                samples = len(self._loader.dataset)  # type: ignore[arg-type]
        return max(1.0, stored / samples)

    def _next_loaded(self) -> Any:
        assert self._live is not None, "a real feed is opened before its block"
        try:
            return next(self._live)
        except StopIteration:  # a stream shorter than its block begins again, as in a script
            self.repeats = True
            self.open()
            return next(self._live)

    def _seconds_to_first_batch(self) -> float:
        began = time.perf_counter()
        self.open()
        self._next_loaded()
        seconds = time.perf_counter() - began
        self.drain()
        return seconds

    def _make_twin(
        self, window: Window, *, persistent: bool, worker_init_fn: Any = None
    ) -> DataLoader[Any]:
        """A loader that differs from the script's own only in the samples that it visits."""
        mine = self._loader
        endless = isinstance(mine.dataset, IterableDataset)
        settings: dict[str, Any] = {
            "num_workers": mine.num_workers,
            "collate_fn": mine.collate_fn,
            "pin_memory": mine.pin_memory,
            "timeout": mine.timeout,
            "worker_init_fn": worker_init_fn or mine.worker_init_fn,
            "generator": torch.Generator(),  # the script's own random numbers are left alone
        }
        if mine.num_workers > 0:
            settings["multiprocessing_context"] = mine.multiprocessing_context
            settings["prefetch_factor"] = mine.prefetch_factor
            # An endless stream can only be left by ending its workers.
            settings["persistent_workers"] = persistent and not endless
        if endless:
            return DataLoader(
                mine.dataset, batch_size=mine.batch_size, drop_last=mine.drop_last, **settings
            )
        if mine.batch_sampler is not None:
            batches = self._indices(mine.batch_sampler, window.batches)
            return DataLoader(mine.dataset, batch_sampler=batches, **settings)
        samples = self._indices(mine.sampler, window.batches)
        return DataLoader(mine.dataset, batch_size=None, sampler=samples, **settings)

    def _indices(self, sampler: Any, count: int) -> list[Any]:
        """The first index lists of an epoch, remembered: later epochs would shuffle anew."""
        if len(self._epoch_indices) < count and not self._epoch_is_whole:
            self._epoch_indices = list(itertools.islice(sampler, count))
            self._epoch_is_whole = len(self._epoch_indices) < count
        known = self._epoch_indices
        self.repeats = len(known) < count
        return [known[i % len(known)] for i in range(count)]

    def _record(self, window: Window) -> list[Any]:
        """Read the window once, keeping as many batches as the device may hold."""
        self.open()
        kept: list[Any] = []
        budget = self._device.free_bytes() * REPLAY_MEMORY_FRACTION
        for _ in range(window.batches):
            batch = self._next_loaded()
            size = _bytes_of(batch)
            if not kept or (budget >= size and len(kept) < MAX_REPLAY_BATCHES):
                kept.append(self._device.resident(batch))
                budget -= size
        self.drain()
        return kept

    def _keep_for_replay(self, batches: list[Any], window: Window) -> None:
        timed = batches[window.lead : window.lead + window.timed]
        self._replay = timed or batches
        self._staged = []
        self._next_replay = 0
        self.shapes_vary = len({_shapes_of(batch) for batch in self._replay}) > 1

    def _host_replay(self) -> list[Any]:
        return [move(batch, torch.device("cpu")) for batch in self._replay]


def _read(path: Path) -> int:
    """Bytes read of one file: all of it, but of a huge one only the beginning."""
    total = 0
    with path.open("rb", buffering=0) as file:
        while total < MAX_READ_BYTES and (chunk := file.read(1 << 20)):
            total += len(chunk)
    return total


def _tensors_of(batch: Any) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from _tensors_of(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _tensors_of(value)


def _bytes_of(batch: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors_of(batch))


def _shapes_of(batch: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(tensor.shape) for tensor in _tensors_of(batch))


def _first_dimension(batch: Any) -> int:
    return next((tensor.shape[0] for tensor in _tensors_of(batch) if tensor.dim()), 1)
