"""The words of `--device`."""

from __future__ import annotations

import pytest

from stash.errors import UsageError
from stash.hardware import gpus
from stash.hardware.device_names import DeviceName, parse


@pytest.mark.parametrize(
    "text",
    [
        "cpu",
        "cuda",
        "emulated:v100",
        "emulated:a100-sxm4-80gb",
        "emulated:v100:bytes=0.01",
        "emulated:v100:time=2.5",
        "emulated:v100:bytes=0.01:time=2.5",
        "emulated:v100:time=1e-05",
    ],
)
def test_a_parsed_device_is_written_so_that_it_parses_to_the_same(text: str) -> None:
    device = parse(text)
    assert parse(str(device)) == device


@pytest.mark.parametrize("key", gpus.names())
def test_every_gpu_of_the_table_can_be_emulated(key: str) -> None:
    assert parse(f"emulated:{key}") == DeviceName("emulated", key)


def test_scales_are_read() -> None:
    assert parse("emulated:v100:bytes=0.01:time=2") == DeviceName(
        "emulated", "v100-sxm2-16gb", byte_scale=0.01, time_scale=2.0
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tpu", "cpu, cuda, and emulated:<gpu>"),
        ("", "cpu, cuda, and emulated:<gpu>"),
        ("emulated", "emulated:v100"),
        ("cuda:0", "cpu, cuda, and emulated:<gpu>"),
        ("emulated:v1000", "v100"),
        ("emulated:v100:size=2", "'size'"),
        ("emulated:v100:bytes", "expected a number above 0"),
        ("emulated:v100:bytes=0", "expected a number above 0"),
        ("emulated:v100:time=-1", "expected a number above 0"),
        ("emulated:v100:time=nan", "expected a number above 0"),
        ("emulated:v100:time=inf", "expected a number above 0"),
    ],
)
def test_what_is_no_device_is_answered_with_what_would_be(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert told in caught.value.message
