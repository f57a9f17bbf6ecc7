"""Where batches come from: the script's own data, over one fixed window, or replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
)

from stash.engine.devices import Cpu
from stash.engine.feed import Feeds, Window
from stash.engine.sources import IteratorSource, LoaderSource, Source
from stash.errors import StashError
from stash.results.steps import Feed

WINDOW = Window(lead=2, timed=4, tail=2)


class Numbers(Dataset[torch.Tensor]):
    """Every sample is its own index; reading leaves a trace in a file."""

    def __init__(self, length: int = 64, path: Path | None = None) -> None:
        self.length = length
        self.path = path

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.path is not None:
            self.path.read_bytes()
        return torch.tensor(index)


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.tensor(i) for i in range(self.length))


Make = Callable[..., Feeds]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Feeds] = []

    def make_feeds(origin: Any, data_folder: Path | None = None, per_iteration: int = 1) -> Feeds:
        loaded = isinstance(origin, DataLoader)
        source: Source = (
            LoaderSource(origin, DataLoader.__iter__) if loaded else IteratorSource(origin)
        )
        made.append(
            Feeds(
                source,
                Cpu(),
                run_folder=tmp_path / "run",
                data_folder=data_folder,
                per_iteration=per_iteration,
            )
        )
        return made[-1]

    yield make_feeds
    for feeds in made:
        feeds.close()


def flat(batch: Any) -> list[int]:
    return [int(value) for value in torch.as_tensor(batch).reshape(-1)]


def visited(feeds: Feeds, count: int, feed: Feed = Feed.WARM) -> list[list[int]]:
    """What one real block reads."""
    feeds.switch(feed)
    feeds.open()
    batches = [flat(feeds.next_batch()) for _ in range(count)]
    feeds.switch(Feed.REPLAY)
    feeds.drain()
    return batches


def replayed(feeds: Feeds, count: int) -> list[list[int]]:
    feeds.switch(Feed.REPLAY)
    return [flat(feeds.next_batch()) for _ in range(count)]


def loader_processes() -> int:
    """Children that were forked from this process, and not started anew."""
    own = psutil.Process()
    return sum(child.cmdline() == own.cmdline() for child in own.children())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_every_block_visits_the_same_samples(
    make: Make, workers: int, shuffle: bool, persistent: bool
) -> None:
    loader = DataLoader(
        Numbers(),
        batch_size=4,
        shuffle=shuffle,
        num_workers=workers,
        persistent_workers=persistent and workers > 0,
    )
    feeds = make(loader)
    feeds.use_window(WINDOW)
    first = visited(feeds, WINDOW.batches)
    assert visited(feeds, WINDOW.batches, Feed.COLD) == first == visited(feeds, WINDOW.batches)
    assert feeds.persistent == (persistent and workers > 0)


def test_without_shuffling_the_window_is_the_beginning_of_an_epoch(make: Make) -> None:
    feeds = make(DataLoader(Numbers(), batch_size=4))
    feeds.use_window(WINDOW)
    assert visited(feeds, 8) == [list(range(4 * i, 4 * i + 4)) for i in range(8)]


def test_replay_returns_the_batches_of_the_timed_part_over_and_over(make: Make) -> None:
    feeds = make(DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=2))
    feeds.use_window(WINDOW)
    timed = visited(feeds, WINDOW.batches)[WINDOW.lead : WINDOW.lead + WINDOW.timed]
    assert feeds.replay_batches == WINDOW.timed
    assert replayed(feeds, 2 * WINDOW.timed) == timed + timed


def test_a_block_cut_short_leaves_nothing_for_the_next_one(make: Make) -> None:
    feeds = make(DataLoader(Numbers(), batch_size=4, num_workers=2))
    feeds.use_window(WINDOW)
    feeds.switch(Feed.WARM)
    feeds.open()
    first = flat(feeds.next_batch())
    assert feeds.drain() == WINDOW.batches - 1
    assert feeds.drain() == 0
    assert visited(feeds, 1) == [first]


def test_the_scripts_own_loader_is_left_as_it_was(make: Make) -> None:
    loader = DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=2)
    sampler = loader.sampler
    feeds = make(loader)
    feeds.use_window(WINDOW)
    visited(feeds, 3)
    assert loader.sampler is sampler and feeds.source.origin is loader
    assert sorted(flat(torch.cat(list(loader)))) == list(range(64))


def test_a_data_set_shorter_than_the_window_repeats_and_says_so(make: Make) -> None:
    feeds = make(DataLoader(Numbers(10), batch_size=4, shuffle=True, num_workers=2))
    feeds.use_window(WINDOW)
    assert feeds.repeats and feeds.available_batches() == 3
    batches = visited(feeds, WINDOW.batches)
    assert batches[:3] == batches[3:6] and sorted(chain(*batches[:3])) == list(range(10))
    assert visited(feeds, WINDOW.batches) == batches
    assert replayed(feeds, WINDOW.timed) == batches[2:6]


def test_a_new_window_over_the_same_epoch_keeps_its_samples(make: Make) -> None:
    feeds = make(DataLoader(Numbers(), batch_size=4, shuffle=True))
    feeds.use_window(WINDOW)
    before = visited(feeds, WINDOW.batches)
    feeds.use_window(Window(1, 2, 0))
    assert visited(feeds, 3) == before[:3]


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_are_fed_from_their_beginning_in_every_block(make: Make, workers: int) -> None:
    feeds = make(DataLoader(Stream(1000), batch_size=4, num_workers=workers))
    assert feeds.available_batches() is None
    feeds.use_window(WINDOW)
    first = visited(feeds, 4)
    assert first[0] == [0, 1, 2, 3]
    assert visited(feeds, 4) == first
    assert loader_processes() == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_that_ends_within_a_block_begins_again(make: Make, workers: int) -> None:
    feeds = make(DataLoader(Stream(6), batch_size=4, num_workers=workers))
    feeds.use_window(WINDOW)
    assert feeds.repeats
    batches = visited(feeds, WINDOW.batches)
    assert len(batches) == WINDOW.batches and batches[0] == [0, 1, 2, 3]
    assert visited(feeds, WINDOW.batches) == batches
    count, seconds = feeds.seconds_to_prepare()
    assert count == WINDOW.batches - feeds.unit and seconds > 0


def test_loaders_that_hand_out_single_samples_work(make: Make) -> None:
    feeds = make(DataLoader(Numbers(), batch_size=None, shuffle=True, num_workers=2))
    feeds.use_window(WINDOW)
    batches = visited(feeds, WINDOW.batches)
    assert all(len(batch) == 1 for batch in batches) and visited(feeds, 8) == batches
    assert feeds.batch_size == 1


def test_a_data_set_that_makes_its_own_batches_counts_their_samples(make: Make) -> None:
    class Batches(Numbers):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.full((16,), index)

    feeds = make(DataLoader(Batches(), batch_size=None))
    feeds.use_window(WINDOW)
    assert feeds.batch_size == 16


def test_a_batch_sampler_of_the_users_own_is_followed(make: Make) -> None:
    samples = RandomSampler(range(64))
    sampler: Any = BatchSampler(samples, batch_size=5, drop_last=True)
    feeds = make(DataLoader(Numbers(), batch_sampler=sampler))
    feeds.use_window(WINDOW)
    batches = visited(feeds, WINDOW.batches)
    assert {len(batch) for batch in batches} == {5} and visited(feeds, 8) == batches
    assert feeds.batch_size == 5


def test_the_next_epoch_of_a_distributed_sampler_changes_nothing(make: Make) -> None:
    data = Numbers()
    sampler = DistributedSampler(data, num_replicas=2, rank=1)
    feeds = make(DataLoader(data, batch_size=4, sampler=sampler))
    feeds.use_window(WINDOW)
    before = visited(feeds, 8)
    sampler.set_epoch(7)
    assert visited(feeds, 8) == before
    assert feeds.available_batches() == 8


def test_the_users_own_collation_is_used(make: Make) -> None:
    loader = DataLoader(
        Numbers(), batch_size=4, collate_fn=lambda samples: {"ids": torch.stack(samples)}
    )
    feeds = make(loader)
    feeds.use_window(WINDOW)
    assert flat(feeds.next_batch()["ids"]) == [8, 9, 10, 11]


def test_batches_whose_shapes_differ_are_told(make: Make) -> None:
    def padded(samples: list[torch.Tensor]) -> torch.Tensor:
        return torch.zeros(len(samples), int(samples[0]) + 1)

    varying = make(DataLoader(Numbers(), batch_size=4, collate_fn=padded))
    varying.use_window(WINDOW)
    even = make(DataLoader(Numbers(), batch_size=4))
    even.use_window(WINDOW)
    assert varying.shapes_vary and not even.shapes_vary


@pytest.mark.parametrize("workers", [0, 2])
def test_the_files_of_the_window_are_found(make: Make, tmp_path: Path, workers: int) -> None:
    path = tmp_path / "samples.bin"
    path.write_bytes(bytes(10_000))
    feeds = make(DataLoader(Numbers(path=path), batch_size=4, num_workers=workers))
    feeds.use_window(WINDOW)
    assert feeds.files == (path,)
    assert feeds.file_bytes == 3 * 4096


def test_no_loader_worker_is_left_after_closing(make: Make) -> None:
    feeds = make(DataLoader(Numbers(), batch_size=4, num_workers=2, persistent_workers=True))
    feeds.use_window(WINDOW)
    visited(feeds, 3)
    assert loader_processes() == 2
    feeds.close()
    assert loader_processes() == 0


def test_starting_loader_workers_costs_time_only_where_there_are_some(make: Make) -> None:
    none = make(DataLoader(Numbers(), batch_size=4))
    none.use_window(WINDOW)
    assert none.seconds_to_start() is None
    some = make(DataLoader(Numbers(), batch_size=4, num_workers=2))
    some.use_window(WINDOW)
    seconds = some.seconds_to_start()
    assert seconds is not None and -1 < seconds < 60  # a difference: noise may make it negative


def test_the_scripts_random_numbers_do_not_depend_on_how_often_a_block_ran(make: Make) -> None:
    feeds = make(DataLoader(Numbers(), batch_size=4, shuffle=True, num_workers=2))
    feeds.use_window(WINDOW)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    visited(feeds, 8)
    assert torch.rand(1) == expected


@pytest.mark.parametrize(("workers", "per_iteration", "unit"), [(4, 1, 4), (4, 2, 2), (3, 2, 3)])
def test_blocks_are_whole_bursts_also_where_an_iteration_takes_several_batches(
    make: Make, workers: int, per_iteration: int, unit: int
) -> None:
    feeds = make(
        DataLoader(Numbers(), batch_size=2, num_workers=workers), per_iteration=per_iteration
    )
    assert feeds.unit == unit
    assert feeds.unit * per_iteration % workers == 0
    assert feeds.prefetched * per_iteration >= 2 * workers


def test_storage_has_as_many_readers_as_the_loader_has_workers(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, count: int) -> None:
            readers.append(count)
            super().__init__(count)

    monkeypatch.setattr("stash.engine.feed.ThreadPoolExecutor", Pool)
    feeds = make(DataLoader(Numbers(), batch_size=2, num_workers=4), per_iteration=4)
    feeds.use_window(Window(lead=1, timed=2, tail=1))
    feeds.seconds_to_read()
    assert feeds.unit == 1 and readers == [4]


def test_an_accumulating_loop_has_windows_in_iterations(make: Make) -> None:
    feeds = make(DataLoader(Numbers(), batch_size=2, num_workers=1), per_iteration=3)
    assert feeds.available_batches() == 64 // 2 // 3
    feeds.use_window(Window(lead=1, timed=2, tail=1))
    assert feeds.batch_size == 6 and feeds.replay_batches == 2 * 3
    # The timed part: batches 3 to 8 of two samples each.
    assert list(chain(*replayed(feeds, 6))) == list(range(6, 18))
    assert list(chain(*visited(feeds, 12))) == list(range(24))
    count, seconds = feeds.seconds_to_prepare()
    assert count == 4 - feeds.unit and seconds > 0


def test_an_iterator_goes_on_and_begins_again_where_it_can(make: Make) -> None:
    feeds = make([torch.tensor([i]) for i in range(10)])
    feeds.use_window(WINDOW)
    assert visited(feeds, 4) == [[8], [9], [0], [1]]
    assert replayed(feeds, 5) == [[2], [3], [4], [5], [2]]
    assert feeds.available_batches() is None and feeds.unit == 1 and feeds.prefetched == 0


def test_an_iterator_that_cannot_begin_again_ends_the_loop(make: Make) -> None:
    feeds = make(iter([torch.tensor([i]) for i in range(9)]))
    feeds.use_window(WINDOW)
    feeds.switch(Feed.WARM)
    feeds.open()
    feeds.next_batch()
    with pytest.raises(StopIteration):
        feeds.next_batch()


def test_the_next_epochs_generator_takes_the_place_of_one_that_has_ended(make: Make) -> None:
    feeds = make(iter([torch.tensor([i]) for i in range(9)]))
    feeds.use_window(WINDOW)
    feeds.switch(Feed.WARM)
    feeds.open()
    following = iter([torch.tensor([100]), torch.tensor([101])])
    assert not feeds.source.is_same(following)  # the first one has a batch left
    feeds.next_batch()
    with pytest.raises(StopIteration):
        feeds.next_batch()
    with torch.no_grad():
        assert not feeds.source.is_same(following)
    assert feeds.source.is_same(following)
    assert [int(feeds.next_batch()) for _ in range(2)] == [100, 101]


def test_a_generator_that_ends_while_batches_are_recorded_is_told_what_to_do(make: Make) -> None:
    feeds = make(iter([torch.tensor([0])]))
    with pytest.raises(StashError, match=r"Pass stash\.feed something that can be iterated anew"):
        feeds.use_window(WINDOW)


def test_batches_that_are_written_to_are_noticed(make: Make) -> None:
    feeds = make(DataLoader(Numbers(), batch_size=4))
    feeds.use_window(WINDOW)
    batch = feeds.next_batch()
    batch + 1
    assert not feeds.changed_in_place
    batch.add_(1)
    assert feeds.changed_in_place


def test_a_loader_built_anew_over_the_same_data_is_the_same_source() -> None:
    data = Numbers()
    source = LoaderSource(DataLoader(data, batch_size=4), DataLoader.__iter__)
    assert source.is_same(DataLoader(data, batch_size=4, shuffle=True))
    assert not source.is_same(DataLoader(Numbers(), batch_size=4))
    with torch.no_grad():  # an evaluation on the training data, by the very loader, too
        assert not source.is_same(DataLoader(data, batch_size=4))
        assert not source.is_same(source.origin)
    assert source.is_same(source.origin)
