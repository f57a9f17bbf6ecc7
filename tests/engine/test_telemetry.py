"""What a worker's own processes use of the cores, beside what the whole machine does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
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
    softirq: float = 0.0


@pytest.mark.parametrize(
    ("cores", "numbers", "busy", "steal", "programs"),
    [
        (2, (1, 2), 3.0, 0.5, 2.5),  # two cores of four are ours: what happens on others is not
        (1, (0, 1, 2, 3), 26.0 / 4, 1.0 / 4, None),  # a quota of one core: one average core
        (4, (0, 1, 2, 3), 26.0, 1.0, 25.5),
    ],
)
def test_only_cores_that_the_job_may_use_are_counted(
    cores: int,
    numbers: tuple[int, ...],
    busy: float,
    steal: float,
    programs: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received = Core(1.5, 5.0, 0.0, softirq=0.5)
    lines = [Core(20.0, 1.0, 0.0), Core(1.0, 5.0, 0.5), received, Core(3.0, 5.0, 0.5)]
    here = replace(this_machine(), cores=cores, core_numbers=numbers)
    monkeypatch.setattr(telemetry_module, "this_machine", lambda: here)
    monkeypatch.setattr(telemetry_module.psutil, "cpu_times", lambda percpu: lines)
    found = telemetry_module._cpu_seconds()
    assert found[:2] == pytest.approx((busy, steal))
    assert found[2] == (None if programs is None else pytest.approx(programs))


def fake_processes(folder: Path, *rows: tuple[int, int, int, int]) -> Path:
    """A list of processes as Linux has it: number, parent, own ticks, ticks of ended children."""
    for number, parent, own, ended in rows:
        (folder / str(number)).mkdir(parents=True)
        text = f"{number} (a) R 1 (b c)) S {parent} 1 1 0 -1 0 0 0 0 0 {own} 1 {ended} 0 20 0 1 0"
        (folder / str(number) / "stat").write_text(text)
    return folder


def test_all_processes_of_a_run_are_told_from_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    own, other_worker, loader, stranger = 11, 12, 13, 20
    folder = fake_processes(
        tmp_path,
        (1, 0, 999, 0),
        (own, 1, 99, 40),
        (other_worker, 1, 199, 0),
        (loader, own, 49, 0),
        (stranger, 1, 499, 0),
    )
    monkeypatch.setattr(telemetry_module, "PROCESSES", folder)
    monkeypatch.setattr(telemetry_module.os, "getpid", lambda: own)
    worker, gang = telemetry_module._own_cpu_seconds([own, other_worker])
    assert worker == pytest.approx((100 + 50) / tick)  # as far as they still run
    assert gang == pytest.approx((100 + 40 + 200 + 50) / tick)


def test_without_a_list_of_processes_only_the_worker_itself_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry_module, "PROCESSES", tmp_path / "none")
    telemetry = Telemetry()
    telemetry.start()
    seen = telemetry.stop()
    assert seen.worker_cpu_seconds is not None and seen.other_cpu_seconds is None


def test_a_profile_tells_it_in_percent_of_one_core_or_not_at_all() -> None:
    known = profile_of(
        noisy({"node": 0.1}), disturbance=disturbance(wall_seconds=2.0, worker_cpu_seconds=3.0)
    )
    assert known.telemetry["node"].worker_cpu_percent == 150
    assert profile_of().telemetry["node"].worker_cpu_percent is None
