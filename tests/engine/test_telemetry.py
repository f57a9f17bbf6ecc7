"""What a worker's own processes use of the cores, beside what the whole machine does."""

from __future__ import annotations

import subprocess
import sys

from profiles import disturbance, noisy, profile_of
from stash.engine.telemetry import Telemetry

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


def test_a_profile_tells_it_in_percent_of_one_core_or_not_at_all() -> None:
    known = profile_of(
        noisy({"node": 0.1}), disturbance=disturbance(wall_seconds=2.0, worker_cpu_seconds=3.0)
    )
    assert known.telemetry["node"].worker_cpu_percent == 150
    assert profile_of().telemetry["node"].worker_cpu_percent is None
