"""What a worker's own processes use of the cores, beside what the whole machine does."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import NamedTuple

import pytest

from profiles import disturbance, noisy, profile_of
from stash.engine import telemetry as telemetry_module
from stash.engine.telemetry import Telemetry
from stash.hardware.machine import this_machine

#: Works for two tenths of a second, then says so and stays.
LOADER = """
import sys, time
while time.process_time() < 0.2:
    pass
print("done", flush=True)
sys.stdin.read()
"""


def test_the_work_of_loader_workers_counts_as_the_workers_own() -> None:
    telemetry = Telemetry()
    telemetry.start()
    with subprocess.Popen(
        [sys.executable, "-I", "-c", LOADER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as loader:
        assert loader.stdout is not None
        loader.stdout.readline()
        seen = telemetry.stop()
        loader.communicate()
    assert seen.worker_cpu_seconds is not None and seen.worker_cpu_seconds > 0.1


class Core(NamedTuple):
    user: float
    idle: float
    steal: float


@pytest.mark.parametrize(
    ("cores", "numbers", "busy", "steal"),
    [
        (2, (1, 2), 3.0, 0.5),  # two cores of four are ours: what happens on the others is not
        (1, (0, 1, 2, 3), 26.0 / 4, 1.0 / 4),  # a quota of one core: one average core
        (4, (0, 1, 2, 3), 26.0, 1.0),
    ],
)
def test_only_cores_that_the_job_may_use_are_counted(
    cores: int,
    numbers: tuple[int, ...],
    busy: float,
    steal: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [Core(20.0, 1.0, 0.0), Core(1.0, 5.0, 0.5), Core(2.0, 5.0, 0.0), Core(3.0, 5.0, 0.5)]
    here = replace(this_machine(), cores=cores, core_numbers=numbers)
    monkeypatch.setattr(telemetry_module, "this_machine", lambda: here)
    monkeypatch.setattr(telemetry_module.psutil, "cpu_times", lambda percpu: lines)
    assert telemetry_module._busy_and_steal_seconds() == pytest.approx((busy, steal))


def test_a_profile_tells_it_in_percent_of_one_core_or_not_at_all() -> None:
    known = profile_of(
        noisy({"node": 0.1}), disturbance=disturbance(wall_seconds=2.0, worker_cpu_seconds=3.0)
    )
    assert known.telemetry["node"].worker_cpu_percent == 150
    assert profile_of().telemetry["node"].worker_cpu_percent is None
