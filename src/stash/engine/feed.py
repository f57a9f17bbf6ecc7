"""The feed switch: the batches that the script's loader hands out, replayed or really loaded.

A real feed starts from an empty queue when a block starts, and reads one fixed window of samples
where its source (engine/sources.py) can visit the same ones again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from stash.engine import pagecache
from stash.engine.batches import bytes_of, first_dimension, shapes_of, versions_of
from stash.engine.devices import Device
from stash.engine.opens import OpenRecorder
from stash.engine.sources import IteratorSource, Source
from stash.errors import StashError
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
    """Hands out batches to the training loop, from wherever the current step wants them.

    To the story, a batch is what one iteration takes: several of the source's own where the
    script accumulates gradients.
    """

    def __init__(
        self,
        source: Source,
        device: Device,
        *,
        run_folder: Path,
        data_folder: Path | None,
        per_iteration: int = 1,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self._device = device
        self._run_folder = run_folder
        self._data_folder = data_folder
        self._per_iteration = per_iteration
        self._moved = moved  # told of every batch: a loader that is slow does not hang
        self._replay: list[Any] = []
        self._versions: list[int] = []
        self._staged: list[Any] = []
        self._next_replay = 0
        self._live: Iterator[Any] | None = None
        self._feed = Feed.REPLAY
        self.files: tuple[Path, ...] = ()
        self.file_bytes = 0
        self.window = Window(0, 1, 0)
        self.shapes_vary = False
        self._began_again = False

    @property
    def unit(self) -> int:
        """Loader workers deliver in bursts of their number, so blocks are multiples of it."""
        workers = max(1, self.source.loader_workers)
        return workers // math.gcd(workers, self._per_iteration)

    @property
    def prefetched(self) -> int:
        """Batches that the loader works ahead."""
        return math.ceil(self.source.prefetched / self._per_iteration)

    @property
    def batch_size(self) -> int:
        """Samples of one iteration."""
        known = self.source.batch_size()
        if known is None:
            known = (first_dimension(self._replay[0]) or 1) if self._replay else 1
        return known * self._per_iteration

    @property
    def replay_batches(self) -> int:
        """How many recorded batches are replayed."""
        return len(self._replay)

    @property
    def persistent(self) -> bool:
        """Whether the script's loader keeps its workers from epoch to epoch."""
        return self.source.persistent

    @property
    def repeats(self) -> bool:
        """Whether the epoch is shorter than the window."""
        return self.source.repeats or self._began_again

    @property
    def changed_in_place(self) -> bool:
        """Whether the script has written into batches that are replayed."""
        return self._versions != versions_of(self._replay)

    def available_batches(self) -> int | None:
        """Batches of one epoch; none where the data has no end."""
        known = self.source.batches()
        return None if known is None else known // self._per_iteration

    def use_window(self, window: Window) -> None:
        """Fix the window; read it once, recording its batches and the files they come from."""
        self.close()
        self.window = window
        self._began_again = False
        inner = getattr(self.source.origin, "worker_init_fn", None)
        opens = OpenRecorder(inner, self._run_folder, self._data_folder)
        self.source.prepare(self._window_batches, persistent=False, opens=opens)
        with opens.recording_here(self.source.loader_workers == 0):
            batches = self._record()
        self.files = opens.files()
        self.file_bytes = pagecache.page_rounded_bytes(self.files)
        self._keep_for_replay(batches)
        self.source.prepare(self._window_batches, persistent=True, opens=None)

    @property
    def _window_batches(self) -> int:
        """In the source's own batches."""
        return self.window.batches * self._per_iteration

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
        self._live = self.source.open()

    def drain(self) -> int:
        """Take what is left of the window, so that no worker is busy in the next block."""
        if self._live is None:
            return 0
        count = 0
        if not self.source.is_endless:
            for _ in self._live:
                count += 1
                self._moved()
        self._live = None
        return count

    def close(self) -> None:
        """End the loader's worker processes."""
        self._live = None
        self.source.close()

    def seconds_to_start(self) -> float | None:
        """What fresh loader workers cost: their first batch against the same from running ones."""
        if self.source.loader_workers == 0:
            return None
        differences = []
        for _ in range(START_REPEATS):
            self.source.prepare(self._window_batches, persistent=True, opens=None)
            fresh, running = self._seconds_to_first_batch(), self._seconds_to_first_batch()
            differences.append(fresh - running)
        return median(differences)

    def seconds_to_prepare(self) -> tuple[int, float]:
        """Batches and seconds of the loader alone, after the first burst has come."""
        self.open()
        for _ in range(self.unit * self._per_iteration):
            self._next_for_us()
        began = time.perf_counter()
        count = self.window.batches - self.unit
        for _ in range(count * self._per_iteration):
            self._next_for_us()
        seconds = time.perf_counter() - began
        self.drain()
        return count, seconds

    def seconds_to_read(self) -> tuple[float, float]:
        """Samples and seconds of reading from storage alone, with as many readers as the loader."""
        self.empty_page_cache()
        began = time.perf_counter()
        with ThreadPoolExecutor(max(1, self.source.loader_workers)) as pool:
            read_bytes = 0
            for count in pool.map(_read, self.files):
                read_bytes += count
                self._moved()
        return read_bytes / self._bytes_per_sample(), time.perf_counter() - began

    def _bytes_per_sample(self) -> float:
        """Of the window's files; where many samples share a file, of all that lie in it."""
        stored = sum(path.stat().st_size for path in self.files)
        samples = self.window.batches * self.batch_size
        if len(self.files) < samples:
            samples = self.source.samples() or samples
        return max(1.0, stored / samples)

    def _next_loaded(self) -> Any:
        assert self._live is not None, "a real feed is opened before its block"
        try:
            return next(self._live)
        except StopIteration:  # a stream shorter than its block begins again, as in a script
            self._began_again = True
            self.open()
            return next(self._live)

    def _next_for_us(self) -> Any:
        """Between two iterations, where no loop of the script's can end its epoch."""
        self._moved()
        try:
            return self._next_loaded()
        except StopIteration:
            raise StashError(
                "The script's batches ended after a few, and what it handed over cannot begin "
                "again. Pass stash.feed something that can be iterated anew, such as a list or an "
                "object with __iter__, or a generator with more batches"
            ) from None

    def _seconds_to_first_batch(self) -> float:
        began = time.perf_counter()
        self.open()
        self._next_for_us()
        seconds = time.perf_counter() - began
        self.drain()
        return seconds

    def _record(self) -> list[Any]:
        """Read the window once, keeping as many batches as the device may hold."""
        self.open()
        kept: list[Any] = []
        budget = self._device.free_bytes() * REPLAY_MEMORY_FRACTION
        for _ in range(self._window_batches):
            batch = self._next_for_us()
            size = bytes_of(batch)
            if not kept or (budget >= size and len(kept) < MAX_REPLAY_BATCHES):
                kept.append(self._device.resident(batch))
                budget -= size
        self.drain()
        return kept

    def _keep_for_replay(self, batches: list[Any]) -> None:
        first = self.window.lead * self._per_iteration
        timed = batches[first : first + self.window.timed * self._per_iteration]
        self._replay = timed or batches
        self._versions = versions_of(self._replay)
        self._staged = []
        self._next_replay = 0
        self.shapes_vary = len({shapes_of(batch) for batch in self._replay}) > 1

    def _host_replay(self) -> list[Any]:
        return [move(batch, torch.device("cpu")) for batch in self._replay]


class Unfed(Feeds):
    """For a loop that makes its batches by itself: there is nothing to switch."""

    def __init__(self, device: Device, *, run_folder: Path, batch_size: int) -> None:
        super().__init__(IteratorSource(()), device, run_folder=run_folder, data_folder=None)
        self._batch_size = batch_size

    @property
    def batch_size(self) -> int:
        """As the model's inputs tell."""
        return self._batch_size

    def use_window(self, window: Window) -> None:
        """Nothing can be recorded."""
        self.window = window


def _read(path: Path) -> int:
    """Bytes read of one file: all of it, but of a huge one only the beginning."""
    total = 0
    with path.open("rb", buffering=0) as file:
        while total < MAX_READ_BYTES and (chunk := file.read(1 << 20)):
            total += len(chunk)
    return total
