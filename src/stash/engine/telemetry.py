"""What the machine did during a block, read outside the timed part."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from stash.hardware import nvml
from stash.hardware.machine import this_machine
from stash.results.recording import Disturbance

PROCESSES = Path("/proc")
CLOCK_FILE = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")  # in kHz


class Telemetry:
    """Differences of the machine's own counters between two calls."""

    def __init__(self, device_index: int | None = None, workers: Sequence[int] = ()) -> None:
        self._device_index = device_index
        self._workers = workers or (os.getpid(),)  # processes of this node
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
            other_cpu_seconds=end["others"] - begin["others"] if "others" in end else None,
        )

    def _read(self) -> dict[str, float]:
        busy, steal, programs = _cpu_seconds()
        worker, gang = _own_cpu_seconds(self._workers)
        others = {} if programs is None or gang is None else {"others": programs - gang}
        disk = psutil.disk_io_counters()
        network = psutil.net_io_counters()
        return {
            "wall": time.perf_counter(),
            "busy": busy,
            "steal": steal,
            "disk": float(disk.read_bytes) if disk else 0.0,
            "network": float(network.bytes_sent) if network else 0.0,
            "worker": worker,
            **others,
        }


def _cpu_seconds() -> tuple[float, float, float | None]:
    """Busy, stolen and with programs, of the cores that this job may use, whoever used them.

    A quota without cores of its own is worth so many average ones. Programs elsewhere then need not
    be in the way of ours, so that they are not told.
    """
    here = this_machine()
    every = psutil.cpu_times(percpu=True)
    own = [every[number] for number in here.core_numbers if number < len(every)] or every
    worth = here.cores / len(own)
    programs = sum(map(_program_seconds, own)) if here.cores == len(own) else None
    return worth * sum(map(_busy_seconds, own)), worth * sum(map(_steal_seconds, own)), programs


def _busy_seconds(times: Any) -> float:
    idle = times.idle + getattr(times, "iowait", 0.0)
    # Linux counts guest time inside user time already.
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - guest - _steal_seconds(times))


def _steal_seconds(times: Any) -> float:
    return float(getattr(times, "steal", 0.0))


def _program_seconds(times: Any) -> float:
    """Interrupts belong to no program: they are often the network's, on our own behalf."""
    return _busy_seconds(times) - getattr(times, "irq", 0.0) - getattr(times, "softirq", 0.0)


class _Process(NamedTuple):
    parent: int
    own_seconds: float
    ended_seconds: float  # of processes that it had started, and whose end it has seen


def _own_cpu_seconds(workers: Sequence[int]) -> tuple[float, float | None]:
    """Of this worker with its loader workers, and of all these workers with theirs.

    The first counts processes that still run. The second counts ended ones, too: an epoch may end
    in a block. It is none where the system has no list that tells both at one reading.
    """
    every = _processes(PROCESSES)
    if os.getpid() not in every:
        return _worker_cpu_seconds(), None
    worker = sum(every[one].own_seconds for one in _families([os.getpid()], every))
    gang = _families(workers, every)
    return worker, sum(every[one].own_seconds + every[one].ended_seconds for one in gang)


def _processes(folder: Path) -> dict[int, _Process]:
    """All that can be seen, from one short file each; none where there are no such files."""
    found: dict[int, _Process] = {}
    names = os.listdir(folder) if folder.is_dir() else []
    tick = 1.0 / os.sysconf("SC_CLK_TCK")
    for name in filter(str.isdigit, names):
        with contextlib.suppress(OSError, IndexError, ValueError):  # it has just ended
            with open(f"{folder}/{name}/stat", "rb") as file:
                # The program's name comes before, in brackets, and may hold anything.
                fields = file.read().rpartition(b")")[2].split()
            user, system, ended_user, ended_system = map(int, fields[11:15])
            found[int(name)] = _Process(
                int(fields[1]), tick * (user + system), tick * (ended_user + ended_system)
            )
    return found


def _families(first: Sequence[int], every: Mapping[int, _Process]) -> set[int]:
    """These processes, all that they have started, and so on."""
    started: dict[int, list[int]] = {}
    for number, process in every.items():
        started.setdefault(process.parent, []).append(number)
    found: set[int] = set()
    waiting = [number for number in first if number in every]
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += started.get(number, ())
    return found


def _worker_cpu_seconds() -> float:
    """The same for any system, of this process and those that it has started."""
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
