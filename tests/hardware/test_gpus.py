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


@pytest.mark.parametrize(
    ("driver_name", "key"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", "h100-nvl-94gb"),
        ("NVIDIA H200", "h200-sxm-141gb"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA B200", "b200-sxm"),
        ("NVIDIA B300 SXM6 AC", "b300-sxm"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-bse"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("Tesla T4", "t4"),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
    ],
)
def test_a_gpu_is_recognised_by_what_its_driver_says(driver_name: str, key: str | None) -> None:
    found = gpus.recognise(driver_name)
    assert (None if found is None else found.key) == key


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
