"""The GPU table and how people name its rows."""

from __future__ import annotations

import pytest

from stash.errors import UsageError
from stash.hardware import gpus

GIB = 2**30


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("v100", "v100-sxm2-16gb"),
        ("V100", "v100-sxm2-16gb"),
        (" a100 ", "a100-sxm4-40gb"),
        ("v100_sxm2_32gb", "v100-sxm2-32gb"),
        ("h100", "h100-sxm5-80gb"),
    ],
)
def test_a_gpu_is_found_by_what_people_call_it(said: str, meant: str) -> None:
    assert gpus.find(said).key == meant


@pytest.mark.parametrize("said", sorted(gpus.COMMONEST))
def test_every_short_name_stands_for_a_row(said: str) -> None:
    assert gpus.find(said).key in gpus.names()


@pytest.mark.parametrize("key", gpus.names())
def test_every_row_is_found_by_its_own_key(key: str) -> None:
    assert gpus.find(key).key == key


@pytest.mark.parametrize(("said", "near"), [("v10", "v100"), ("a10o", "a100"), ("hh100", "h100")])
def test_a_misspelt_name_is_answered_with_the_nearest_ones(said: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        gpus.find(said)
    assert near in caught.value.message and repr(said) in caught.value.message


def test_nonsense_is_answered_with_some_names_all_the_same() -> None:
    with pytest.raises(UsageError, match=r"Nearest names: \w+"):
        gpus.find("")


@pytest.mark.parametrize("key", gpus.names())
def test_every_row_has_sane_figures_and_says_where_they_come_from(key: str) -> None:
    gpu = gpus.find(key)
    assert gpu.name and gpu.architecture and gpu.source and gpu.confidence
    assert 4 * GIB <= gpu.memory_bytes <= 512 * GIB
    assert gpu.memory_bytes_per_second is None or 1e11 < gpu.memory_bytes_per_second < 2e13
    assert 1e12 < gpu.flops["fp32"] < 1e15
    assert gpu.flops["fp32"] <= gpu.flops["amp"] < 1e16
    for link in (gpu.nvlink_bytes_per_second, gpu.pcie_bytes_per_second):
        assert link is None or 1e9 < link < 5e12


@pytest.mark.parametrize("dtype", ["fp32", "amp", "bf16"])
def test_a_layer_lasts_as_long_as_the_slower_of_arithmetic_and_traffic(dtype: str) -> None:
    gpu = gpus.find("v100")
    arithmetic, traffic = gpu.seconds(1e12, 0, dtype), gpu.seconds(0, 1e9, dtype)
    assert gpu.seconds(1e12, 1e9, dtype) == max(arithmetic, traffic) > 0
    assert gpu.seconds(2e12, 0, dtype) == pytest.approx(2 * arithmetic)


def test_mixed_precision_is_faster_in_arithmetic_and_in_traffic() -> None:
    gpu = gpus.find("v100")
    assert gpu.seconds(1e12, 0, "amp") < gpu.seconds(1e12, 0, "fp32")
    assert gpu.seconds(0, 1e9, "amp") < gpu.seconds(0, 1e9, "fp32")
