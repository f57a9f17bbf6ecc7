"""What this machine is: processor, cores we may use, memory."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
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
    core_numbers: tuple[int, ...]  # on which this process may run; with a quota, more than cores
    memory_bytes: int


@cache
def this_machine() -> Machine:
    """Look at the host, once: a worker that is pinned later still knows the whole of it."""
    return Machine(
        host=platform.node() or "localhost",
        system=f"{platform.system()} {platform.release()}",
        cpu=_cpu_name(),
        cores=usable_cores(),
        core_numbers=_core_numbers(),
        memory_bytes=usable_memory_bytes(),
    )


def usable_cores() -> int:
    """Logical cores that this process may run on, less what a container's quota withholds."""
    cores = len(_core_numbers())
    quota = _cpu_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def _core_numbers() -> tuple[int, ...]:
    affinity = getattr(os, "sched_getaffinity", None)
    return tuple(sorted(affinity(0) if affinity else range(os.cpu_count() or 1)))


def usable_memory_bytes() -> int:
    """Memory of the machine, or of the container or job where that is less."""
    total = int(psutil.virtual_memory().total)
    return min([total, *(limit for limit, _ in _memory_limits())])


def available_memory_bytes() -> int:
    """Memory that can still be had without swapping, within the limit of container and job."""
    free = int(psutil.virtual_memory().available)
    return min([free, *(max(0, limit - used) for limit, used in _memory_limits())])


def _memory_limits() -> Iterator[tuple[int, int]]:
    """Limit and use, in bytes, of every group around this process that withholds memory."""
    total = psutil.virtual_memory().total
    for group in own_groups("memory"):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = _number_in(group / limit_name), _number_in(group / used_name)
            if limit is not None and used is not None and 0 < limit < total:
                yield int(limit), int(used)


def _cpu_quota() -> float | None:
    """Cores' worth of time that the tightest group around this process grants."""
    quotas = []
    for group in own_groups("cpu"):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (group / "cpu.max").read_text().split()
            if quota != "max":
                quotas.append(float(quota) / float(period))
        quota_us = _number_in(group / "cpu.cfs_quota_us")
        period_us = _number_in(group / "cpu.cfs_period_us")
        if quota_us is not None and period_us is not None and quota_us > 0:
            quotas.append(quota_us / period_us)
    return min(quotas, default=None)


def own_groups(
    controller: str,
    *,
    mounted: Path = Path("/sys/fs/cgroup"),
    membership: Path = Path("/proc/self/cgroup"),
) -> list[Path]:
    """This process's control group and those around it, for both versions of control groups.

    Batch systems put their limits on groups deep inside, where the root shows nothing of them.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    groups = []
    for line in lines:
        _, controllers, own = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # Version 1 has a tree for each set of controllers; version 2 has one, perhaps beside them.
        trees = [controllers, controller] if controllers else [".", "unified"]
        for tree in (mounted / name for name in trees):
            inside = tree / own.lstrip("/")
            while inside != tree:
                groups.append(inside)
                inside = inside.parent
            groups.append(tree)
    return [group for group in dict.fromkeys(groups) if group.is_dir()]


def _number_in(path: Path) -> float | None:
    try:
        return float(path.read_text())
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
