"""Rates, sizes, times and cores as people write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stash.errors import UsageError
from stash.lab import words


@pytest.mark.parametrize(
    ("written", "bits"),
    [("1gbit", 1e9), ("125 mbit/s", 125e6), ("2.5Gbit", 2.5e9), ("20MB/s", 160e6), ("8bit", 8)],
)
def test_a_link_rate_is_in_bits(written: str, bits: float) -> None:
    assert words.bits_per_second(written) == pytest.approx(bits)


@pytest.mark.parametrize(
    ("written", "count"), [("20MB/s", 20e6), ("1MiB/s", 2**20), ("8kbit", 1000), ("5B/s", 5)]
)
def test_a_storage_rate_is_in_bytes(written: str, count: float) -> None:
    assert words.bytes_per_second(written) == pytest.approx(count)


def test_sizes_times_and_cores() -> None:
    assert words.byte_count("512MiB") == 512 * 2**20
    assert words.seconds("5ms") == pytest.approx(0.005)
    assert words.seconds("80us") == pytest.approx(80e-6)
    assert words.cores("0,2-3") == (0, 2, 3)


@pytest.mark.parametrize("written", ["fast", "20", "20MB", "0MB/s", "5xb/s", "-1MB/s", ""])
def test_what_is_no_rate_is_refused_with_its_own_words(written: str) -> None:
    with pytest.raises(UsageError, match=repr(written)):
        words.bytes_per_second(written)


@pytest.mark.parametrize(
    ("read", "written"),
    [
        (words.bits_per_second, "100Mb/s"),
        (words.bytes_per_second, "1Gb/s"),
        (words.byte_count, "2Gb"),
    ],
)
def test_a_unit_that_is_bits_to_some_and_bytes_to_others_is_refused(
    read: Callable[[str], float], written: str
) -> None:
    with pytest.raises(UsageError, match=r"write [MG]bit for bits, [MG]B for bytes"):
        read(written)


@pytest.mark.parametrize(
    ("read", "written"),
    [(words.byte_count, "20MB/s"), (words.seconds, "5MB"), (words.cores, "0-x")],
)
def test_one_kind_of_word_is_not_taken_for_another(read: object, written: str) -> None:
    with pytest.raises(UsageError, match=written):
        read(written)  # type: ignore[operator]


def test_a_range_of_cores_that_runs_backwards_is_refused() -> None:
    with pytest.raises(UsageError, match="no set of cores"):
        words.cores("0,3-1")
