"""What the machine did during a block, read outside the timed part."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import psutil

from stash.hardware import nvml
from stash.hardware.machine import this_machine
from stash.results.recording import Disturbance

CLOCK_FILE = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")  # in kHz


class Telemetry:
    """Differences of the machine's own counters between two calls."""

    def __init__(self, device_index: int | None = None) -> None:
        self._device_index = device_index
        self._start = self._read()

    def start(self) -> None:
        """Begin a block."""
        self._start = self._read()

    def stop(self) -> Disturbance:
        """What happened since the start."""
        begin, end = self._start, self._read()
        busy_percent, used_bytes = nvml.utilisation(self._device_index)
        return Disturbance(
            wall_seconds=max(0.0, end["wall"] - begin["wall"]),
            cpu_busy_seconds=max(0.0, end["busy"] - begin["busy"]),
            cpu_steal_seconds=max(0.0, end["steal"] - begin["steal"]),
            disk_read_bytes=max(0, int(end["disk"] - begin["disk"])),
            network_bytes=max(0, int(end["network"] - begin["network"])),
            memory_used_bytes=psutil.virtual_memory().used,
            clock_mhz=_clock_mhz(),
            device_busy_percent=busy_percent,
            device_memory_used_bytes=used_bytes,
            worker_cpu_seconds=max(0.0, end["worker"] - begin["worker"]),
        )

    def _read(self) -> dict[str, float]:
        busy, steal = _busy_and_steal_seconds()
        disk = psutil.disk_io_counters()
        network = psutil.net_io_counters()
        return {
            "wall": time.perf_counter(),
            "busy": busy,
            "steal": steal,
            "disk": float(disk.read_bytes) if disk else 0.0,
            "network": float(network.bytes_sent) if network else 0.0,
            "worker": _worker_cpu_seconds(),
        }


def _busy_and_steal_seconds() -> tuple[float, float]:
    """Of the cores that this job may use, whoever used them.

    A quota without cores of its own is worth so many average ones.
    """
    here = this_machine()
    every = psutil.cpu_times(percpu=True)
    own = [every[number] for number in here.core_numbers if number < len(every)] or every
    worth = here.cores / len(own)
    return worth * sum(map(_busy_seconds, own)), worth * sum(map(_steal_seconds, own))


def _busy_seconds(times: Any) -> float:
    idle = times.idle + getattr(times, "iowait", 0.0)
    # Linux counts guest time inside user time already.
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - guest - _steal_seconds(times))


def _steal_seconds(times: Any) -> float:
    return float(getattr(times, "steal", 0.0))


def _worker_cpu_seconds() -> float:
    """Of this process and of those that it has started, as far as they still run."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _clock_mhz() -> float | None:
    """The first core's clock, where the system tells it without a walk over all cores."""
    try:
        return float(CLOCK_FILE.read_text()) / 1e3
    except (OSError, ValueError):
        return None
