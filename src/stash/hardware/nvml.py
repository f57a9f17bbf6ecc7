"""What NVIDIA's management library tells about GPUs; every question has an answer without one.

Never run on a GPU by its authors: written by the library's documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver sees it."""

    index: int
    name: str
    memory_bytes: int
    used_bytes: int
    processes: tuple[int, ...]
    throttled: bool


@cache
def _library() -> Any:
    """The initialised library, or none where there is no driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # the module raises its own errors, OSError or ImportError alike
        return None
    return pynvml


def gpus() -> list[Gpu]:
    """Every GPU of this machine."""
    nvml = _library()
    if nvml is None:
        return []
    return [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]


def utilisation(index: int | None) -> tuple[float | None, int | None]:
    """Busy percent and used bytes of one GPU."""
    nvml = _library()
    if nvml is None or index is None:
        return None, None
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    busy = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    return busy, int(nvml.nvmlDeviceGetMemoryInfo(handle).used)


def topology() -> list[tuple[int, int, str]]:
    """How each pair of GPUs is linked: nvlink, or the PCIe level at which they meet."""
    nvml = _library()
    if nvml is None:
        return []
    names = {
        nvml.NVML_TOPOLOGY_INTERNAL: "same board",
        nvml.NVML_TOPOLOGY_SINGLE: "one PCIe switch",
        nvml.NVML_TOPOLOGY_MULTIPLE: "several PCIe switches",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PCIe host bridge",
        nvml.NVML_TOPOLOGY_NODE: "same NUMA node",
        nvml.NVML_TOPOLOGY_SYSTEM: "across sockets",
    }
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    pairs = []
    for a, first in enumerate(handles):
        for b in range(a + 1, len(handles)):
            level = nvml.nvmlDeviceGetTopologyCommonAncestor(first, handles[b])
            linked = _nvlinked(nvml, first, handles[b])
            pairs.append((a, b, "nvlink" if linked else names.get(level, "unknown")))
    return pairs


def _nvlinked(nvml: Any, first: Any, second: Any) -> bool:
    try:
        status = nvml.nvmlDeviceGetP2PStatus(first, second, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
    except nvml.NVMLError:
        return False
    return bool(status == nvml.NVML_P2P_STATUS_OK)


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    name = nvml.nvmlDeviceGetName(handle)
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    slow = (
        nvml.nvmlClocksThrottleReasonHwSlowdown
        | nvml.nvmlClocksThrottleReasonSwThermalSlowdown
        | nvml.nvmlClocksThrottleReasonSwPowerCap
    )
    return Gpu(
        index=index,
        name=name.decode() if isinstance(name, bytes) else str(name),
        memory_bytes=int(memory.total),
        used_bytes=int(memory.used),
        processes=tuple(p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        throttled=bool(reasons & slow),
    )
