"""What NVML is asked, and what is made of its answers; a stand-in answers, as there is no GPU."""

# ruff: noqa: N802, N815 (NVML's own names)

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stash.hardware import nvml

UUIDS = ("GPU-11aa", "GPU-22bb", "GPU-33cc")


class NotToldError(Exception):
    """Stands in for NVML's own error."""


class Library:
    """A machine with three GPUs; what is in `silent` is not told."""

    NVMLError = NotToldError
    NVML_TOPOLOGY_INTERNAL, NVML_TOPOLOGY_SINGLE, NVML_TOPOLOGY_MULTIPLE = 0, 10, 20
    NVML_TOPOLOGY_HOSTBRIDGE, NVML_TOPOLOGY_NODE, NVML_TOPOLOGY_SYSTEM = 30, 40, 50
    NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK = 2, 0
    nvmlClocksThrottleReasonHwSlowdown = 8
    nvmlClocksThrottleReasonSwThermalSlowdown = 32
    nvmlClocksThrottleReasonSwPowerCap = 4

    def __init__(self, *silent: str) -> None:
        self._silent = silent

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvmlDevice") and name in object.__getattribute__(self, "_silent"):
            return _refuse
        return object.__getattribute__(self, name)

    def nvmlDeviceGetCount(self) -> int:
        return len(UUIDS)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "MIG-whole":
            raise NotToldError
        return uuid

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return UUIDS[handle].encode()

    def nvmlDeviceGetIndex(self, handle: Any) -> int:
        return int(handle)

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return f"Card {handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=100 + handle, used=10 + handle)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=50 + handle)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 8 if handle == 1 else 0

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=4000 + handle)]

    def nvmlDeviceGetTopologyCommonAncestor(self, first: int, second: int) -> int:
        return 10 if {first, second} == {0, 1} else 50

    def nvmlDeviceGetP2PStatus(self, first: int, second: int, kind: int) -> int:
        return 0 if {first, second} == {1, 2} else 1


def _refuse(*args: Any) -> Any:
    raise NotToldError


Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    def with_library(*silent: str, visible: str | None = None) -> None:
        library = Library(*silent)
        monkeypatch.setattr(nvml, "_library", lambda: library)
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return with_library


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("GPU-22, GPU-11aa", [1, 0]),
        ("1,7,0", [1]),  # as CUDA does: none after the first that is not there
        ("", []),
        ("-1", []),
    ],
)
def test_only_gpus_that_cuda_shows_are_told_in_its_order(
    machine: Machine, visible: str | None, seen: list[int]
) -> None:
    machine(visible=visible)
    assert [gpu.index for gpu in nvml.gpus()] == seen


def test_utilisation_is_that_of_the_gpu_with_this_number_in_cuda(machine: Machine) -> None:
    machine(visible="2,0")
    assert nvml.utilisation(0) == (52.0, 12)
    assert nvml.utilisation(1) == (50.0, 10)
    assert nvml.utilisation(2) == (None, None)


def test_what_a_gpu_does_not_tell_is_none_and_ends_nothing(machine: Machine) -> None:
    machine(
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetTopologyCommonAncestor",
    )
    assert nvml.utilisation(0) == (None, None)
    assert nvml.gpus()[1] == nvml.Gpu(1, "Card 1", None, None, (), False)
    assert nvml.topology() == [(0, 1, "unknown"), (0, 2, "unknown"), (1, 2, "nvlink")]


def test_a_part_of_a_gpu_is_found_by_its_own_name(machine: Machine) -> None:
    machine("nvmlDeviceGetIndex", "nvmlDeviceGetMemoryInfo", visible="MIG-whole")
    assert nvml._visible(nvml._library()) == ["MIG-whole"]


def test_throttling_processes_and_links_are_told_of_each_gpu(machine: Machine) -> None:
    machine()
    assert [gpu.throttled for gpu in nvml.gpus()] == [False, True, False]
    assert [gpu.processes for gpu in nvml.gpus()] == [(4000,), (4001,), (4002,)]
    assert nvml.topology() == [
        (0, 1, "one PCIe switch"),
        (0, 2, "across sockets"),
        (1, 2, "nvlink"),
    ]
