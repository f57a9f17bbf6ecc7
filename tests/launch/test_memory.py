"""What a worker may use, asked before anything starts."""

from __future__ import annotations

import pytest
import torch

from stash.hardware import nvml
from stash.hardware.device_names import DeviceName
from stash.launch import memory


def gpu(total: int | None, used: int | None) -> nvml.Gpu:
    return nvml.Gpu(0, "card", total, used, (), False)


@pytest.fixture
def cuda_tells_70(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (70, 100))


@pytest.mark.usefixtures("cuda_tells_70")
@pytest.mark.parametrize(
    ("seen", "free"),
    [
        ([gpu(1000, 100), gpu(1000, 400), gpu(1000, 990)], 600),  # the third has no worker
        ([gpu(None, None)], 70),  # not told by the driver: CUDA itself is asked
        ([], 70),
    ],
)
def test_a_worker_may_use_what_the_fullest_of_the_gpus_in_use_has_free(
    monkeypatch: pytest.MonkeyPatch, seen: list[nvml.Gpu], free: int
) -> None:
    monkeypatch.setattr(nvml, "gpus", lambda: seen)
    expected = int(free * memory.USABLE_MEMORY_FRACTION)
    assert memory.per_worker_bytes(DeviceName("cuda"), 2) == expected
