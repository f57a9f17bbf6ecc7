"""What NVIDIA's management library tells about GPUs; every question has an answer without one.

Never run on a GPU by its authors: written by the library's documentation.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver sees it."""

    index: int  # as nvidia-smi counts
    name: str
    memory_bytes: int | None  # none where GPU and host share it
    used_bytes: int | None
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
    """Every GPU that CUDA shows to this process."""
    nvml = _library()
    return [] if nvml is None else [_gpu(nvml, *one) for one in enumerate(_visible(nvml))]


def utilisation(index: int | None) -> tuple[float | None, int | None]:
    """Busy percent and used bytes of one GPU, by its number in CUDA; none for what is not told."""
    nvml = _library()
    if nvml is None or index is None:
        return None, None
    handles = _visible(nvml)
    if index >= len(handles):
        return None, None
    busy = _told(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handles[index]).gpu)
    used = _told(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handles[index]).used)
    return None if busy is None else float(busy), None if used is None else int(used)


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
    pairs = []
    for (a, first), (b, second) in itertools.combinations(enumerate(_visible(nvml)), 2):
        level = _told(nvml, partial(nvml.nvmlDeviceGetTopologyCommonAncestor, first, second))
        linked = _nvlinked(nvml, first, second)
        pairs.append((a, b, "nvlink" if linked else names.get(level, "unknown")))
    return pairs


def _visible(nvml: Any) -> list[Any]:
    """The GPUs that CUDA shows to this process, in its order; NVML itself knows all there are."""
    every = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return every
    named = (_named(nvml, every, entry.strip()) for entry in asked.split(","))
    # Like CUDA, which shows those before the first that it does not know.
    return list(itertools.takewhile(lambda handle: handle is not None, named))


def _named(nvml: Any, every: list[Any], entry: str) -> Any | None:
    """A GPU by its number or by the beginning of its UUID, a part of one (MIG) by all of it."""
    if entry.isdigit():
        return every[int(entry)] if int(entry) < len(every) else None
    if entry.startswith("MIG-"):
        return _told(nvml, lambda: nvml.nvmlDeviceGetHandleByUUID(entry))
    uuids = [_text(_told(nvml, partial(nvml.nvmlDeviceGetUUID, handle))) for handle in every]
    fitting = [handle for handle, uuid in zip(every, uuids, strict=True) if uuid.startswith(entry)]
    return fitting[0] if entry and fitting else None


def _told(nvml: Any, question: Callable[[], _T]) -> _T | None:
    """The answer, or none where this GPU or this system does not tell: MIG, WSL2, old drivers."""
    try:
        return question()
    except nvml.NVMLError:
        return None


def _text(value: Any) -> str:
    """Older releases of the library answer in bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _nvlinked(nvml: Any, first: Any, second: Any) -> bool:
    ask = partial(nvml.nvmlDeviceGetP2PStatus, first, second, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
    return bool(_told(nvml, ask) == nvml.NVML_P2P_STATUS_OK)


def _gpu(nvml: Any, position: int, handle: Any) -> Gpu:
    index = _told(nvml, lambda: nvml.nvmlDeviceGetIndex(handle))
    memory = _told(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    reasons = _told(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    slow = (
        nvml.nvmlClocksThrottleReasonHwSlowdown
        | nvml.nvmlClocksThrottleReasonSwThermalSlowdown
        | nvml.nvmlClocksThrottleReasonSwPowerCap
    )
    running = _told(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    return Gpu(
        index=position if index is None else int(index),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=None if memory is None else int(memory.total),
        used_bytes=None if memory is None else int(memory.used),
        processes=tuple(process.pid for process in running or ()),
        throttled=bool((reasons or 0) & slow),
    )
