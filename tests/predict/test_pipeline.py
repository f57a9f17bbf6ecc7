"""Input pipeline: formulas of DS-Analyzer on hand-worked numbers."""

import math

import pytest

from stash.predict import pipeline
from stash.predict.pipeline import Host, Source


def test_without_storage_the_cores_decide() -> None:
    found = pipeline.feed(Source(preprocessing_per_core=100.0), Host(cores=8))
    assert found.cold == found.later_high == 800.0


def test_reading_is_slower_the_less_is_cached() -> None:
    source = Source(preprocessing_per_core=1e6, bytes_per_sample=1e5, samples=1000)
    host = Host(
        cores=8, cache_bytes=0.35e8, storage_bytes_per_second=5e7, memory_bytes_per_second=1e10
    )
    found = pipeline.feed(source, host)
    assert found.cold == pytest.approx(500.0)
    assert found.later_high == pytest.approx(1 / (1e5 * (0.35 / 1e10 + 0.65 / 5e7)))
    assert found.cold < found.later_low < found.later_high


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
