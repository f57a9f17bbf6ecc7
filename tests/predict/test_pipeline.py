"""Input pipeline: formulas of DS-Analyzer on hand-worked numbers."""

import dataclasses
import math

import pytest

from stash.predict import pipeline
from stash.predict.pipeline import Host, Loaders, Source


def test_without_storage_the_cores_decide() -> None:
    found = pipeline.feed(Source(preprocessing_per_core=100.0), Host(cores=8))
    assert found.warm == 800.0
    assert found.storage is None  # what nobody knows is not taken for nothing


def test_memory_that_is_slower_than_the_cores_decides() -> None:
    source = Source(preprocessing_per_core=100.0, bytes_per_sample=1e6)
    found = pipeline.feed(source, Host(cores=8, memory_bytes_per_second=5e8))
    assert (found.prepared, found.warm) == (800.0, 500.0)


def test_reading_is_slower_the_less_is_cached() -> None:
    source = Source(preprocessing_per_core=1e6, bytes_per_sample=1e5, samples=1000)
    host = Host(
        cores=8, cache_bytes=0.35e8, storage_bytes_per_second=5e7, memory_bytes_per_second=1e10
    )
    found = pipeline.feed(source, host)
    assert found.storage is not None
    assert found.storage.cold == pytest.approx(500.0)
    assert found.storage.later_high == pytest.approx(1 / (1e5 * (0.35 / 1e10 + 0.65 / 5e7)))
    assert found.storage.cold < found.storage.later_low < found.storage.later_high < found.warm
    assert found.overflows


def test_strict_lru_keeps_less_than_fits() -> None:
    # 35 % cached: DS-Analyzer saw 85 % fetched; LRU says 93 %, a perfect cache 65 %.
    assert 1 - pipeline.lru_hits(0.35) == pytest.approx(0.65 - 0.65 * math.log(0.65))
    assert pipeline.lru_hits(1.0) == 1.0
    assert pipeline.lru_hits(0.0) == 0.0


def test_the_smallest_useful_cache_just_keeps_up() -> None:
    x = pipeline.smallest_useful_cache(1000.0, memory=1e5, storage=500.0)
    assert 1 / (x / 1e5 + (1 - x) / 500.0) == pytest.approx(1000.0)
    assert pipeline.smallest_useful_cache(100.0, memory=1e5, storage=500.0) == 0.0


def test_a_queue_costs_more_than_the_slower_of_the_two() -> None:
    assert pipeline.iteration_seconds(1.0, 1.0, queued=4) == pytest.approx(1.2)
    for consuming, producing in ((1.0, 0.2), (1.0, 0.9), (1.0, 3.0), (1e-9, 1.0), (1.0, 0.0)):
        found = pipeline.iteration_seconds(consuming, producing)
        assert found >= max(consuming, producing) * (1 - 1e-9)
        assert found <= consuming + producing


def test_cores_needed_are_devices_over_one_core() -> None:
    assert pipeline.cores_needed(1200.0, 100.0) == 12.0


def test_times_that_do_not_vary_make_the_slower_side_decide() -> None:
    for consuming, producing in ((1.0, 0.8), (1.0, 1.0), (1.0, 1.5)):
        found = pipeline.iteration_seconds(consuming, producing, queued=4, variation=0.0)
        assert found == pytest.approx(max(consuming, producing), rel=1e-5)
    some = pipeline.iteration_seconds(1.0, 1.0, queued=4, variation=0.5)
    assert 1 < some < pipeline.iteration_seconds(1.0, 1.0, queued=4)


#: Two workers with batches of 10: a loader worker takes 0.1 s to read one and 0.4 s to prepare it.
LOADERS = Loaders(
    workers=2,
    loader_workers=1,
    batch=10,
    prepare_seconds=0.04,
    read_seconds=0.01,
    variation=0.0,
)


def with_loaders(**changes: float) -> Loaders:
    return dataclasses.replace(LOADERS, **changes)  # type: ignore[arg-type]


def test_a_loader_worker_reads_and_then_prepares() -> None:
    assert LOADERS.producing_seconds(1.0) == pytest.approx(0.4)
    assert LOADERS.producing_seconds(0.0) == pytest.approx(0.5)
    assert LOADERS.producing_seconds(0.5) == pytest.approx(0.45)
    assert LOADERS.iteration_seconds(0.3, 0.0) == pytest.approx(0.5, rel=1e-5)
    assert LOADERS.iteration_seconds(0.6, 0.0) == pytest.approx(0.6, rel=1e-5)


def test_many_loader_workers_wait_for_the_storage_that_they_share() -> None:
    many = with_loaders(loader_workers=8)
    assert many.producing_seconds(1.0) == pytest.approx(0.05)
    assert many.producing_seconds(0.0) == pytest.approx(0.2)  # 20 samples of 10 ms
    assert many.producing_seconds(0.75) == pytest.approx(10 * (0.04 + 0.0025) / 8)


def test_without_loader_workers_a_batch_is_waited_for() -> None:
    assert with_loaders(loader_workers=0).iteration_seconds(0.3, 1.0) == pytest.approx(0.7)


def test_cores_that_are_all_busy_decide_whatever_the_loaders_do() -> None:
    few = with_loaders(cores=2.0, training_core_seconds=0.8, prepare_core_seconds=0.04)
    assert few.core_bound_seconds == pytest.approx(0.8)
    assert few.iteration_seconds(0.3, 1.0) == pytest.approx(0.8)
    more = dataclasses.replace(few, loader_workers=16)
    assert more.iteration_seconds(0.3, 1.0) == pytest.approx(0.8)


def test_which_samples_are_cached_is_chance_and_costs_something_near_balance() -> None:
    near = with_loaders(prepare_seconds=0.0, read_seconds=0.06)
    assert near.producing_seconds(0.5) == pytest.approx(0.6)
    assert near.iteration_seconds(0.6, 0.5) == pytest.approx(0.61)
    assert near.iteration_seconds(0.6, 1.0) == pytest.approx(0.6)
