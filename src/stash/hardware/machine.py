"""What this machine is: processor, cores we may use, memory."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Machine:
    """The host as a training job sees it."""

    host: str
    system: str
    cpu: str
    cores: int
    memory_bytes: int


@cache
def this_machine() -> Machine:
    """Look at the host, once: a worker that is pinned later still knows the whole of it."""
    return Machine(
        host=platform.node() or "localhost",
        system=f"{platform.system()} {platform.release()}",
        cpu=_cpu_name(),
        cores=usable_cores(),
        memory_bytes=usable_memory_bytes(),
    )


def usable_cores() -> int:
    """Logical cores that this process may run on, less what a container's quota withholds."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else (os.cpu_count() or 1)
    quota = _cpu_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def usable_memory_bytes() -> int:
    """Memory of the machine, or of the container where that is less."""
    total = int(psutil.virtual_memory().total)
    limits = [
        _number_in("/sys/fs/cgroup/memory.max"),
        _number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ]
    return min([total, *(int(limit) for limit in limits if limit is not None and limit > 0)])


def available_memory_bytes() -> int:
    """Memory that can still be had without swapping, within the container's limit."""
    free = int(psutil.virtual_memory().available)
    for limit_path, used_path in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        limit, used = _number_in(limit_path), _number_in(used_path)
        if limit is not None and used is not None and limit < psutil.virtual_memory().total:
            free = min(free, max(0, int(limit - used)))
    return free


def _cpu_quota() -> float | None:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else float(quota) / float(period)
    except (OSError, ValueError):
        pass
    quota_us = _number_in("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
    period_us = _number_in("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    if quota_us is None or period_us is None or quota_us <= 0:
        return None
    return quota_us / period_us


def _number_in(path: str) -> float | None:
    try:
        return float(Path(path).read_text())
    except (OSError, ValueError):
        return None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
