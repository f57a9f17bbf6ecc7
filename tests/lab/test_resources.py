"""Storage and limits: as slow and as narrow as asked, for own processes alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lab_rates
import pytest

from rooted import NEEDS_ROOT, python
from stash.errors import StashError, UsageError
from stash.lab import cgroups, resources
from stash.lab.resources import Limits

BURN = """
import time
began, cpu = time.perf_counter(), time.process_time()
while time.perf_counter() - began < 1:
    pass
print((time.process_time() - cpu) / (time.perf_counter() - began))
"""
WHERE = "print(open('/proc/self/cgroup').read())"
ENTER = """
import os, sys
sys.path[:0] = sys.argv[1:]
from stash.lab.resources import enter_own_group
enter_own_group()
print(open('/proc/self/cgroup').read())
"""


class TestWithRoot:
    pytestmark = NEEDS_ROOT

    def test_a_cold_read_takes_the_time_of_its_rate(self) -> None:
        found = lab_rates.disk_against_closed_form("20MB/s", 24_000_000, repeats=1)
        # The kernel lets some pass before it begins to count; a quarter is far more than that.
        assert found["seconds_over_closed_form"]["median"] >= 0.75  # type: ignore[index]

    def test_cpu_time_and_cores_are_what_was_asked(self) -> None:
        core = min(os.sched_getaffinity(0))
        with resources.limits(cpus=0.25, cores=[core], memory="300MiB") as limited:
            assert float(python(limited.inside, BURN)) <= 0.4
            cores = python(limited.inside, "import os; print(sorted(os.sched_getaffinity(0)))")
            assert cores.strip() == f"[{core}]"
            memory = [folder for folder in limited.groups[0].folders if _holds_memory(folder)]
            assert _memory_limit(memory[0]) == 300 << 20

    def test_neither_the_caller_nor_its_other_children_are_limited(self) -> None:
        before = Path("/proc/self/cgroup").read_text()
        with resources.limits(cpus=0.5) as limited:
            assert "stash-lab" in python(limited.inside, WHERE)
            assert python([], WHERE).strip() == before.strip()
            assert Path("/proc/self/cgroup").read_text() == before

    def test_each_worker_can_enter_a_group_of_its_own(self) -> None:
        source = str(Path(resources.__file__).parents[2])
        with resources.restricted(Limits(cpus=1.0), workers=2) as limited:
            for rank in (0, 1):
                environment = {**os.environ, **limited.environment, "LOCAL_RANK": str(rank)}
                done = subprocess.run(
                    [*limited.inside, sys.executable, "-c", ENTER, source],
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=True,
                )
                assert f".worker{rank}\n" in done.stdout

    def test_groups_are_gone_afterwards_with_the_processes_in_them(self) -> None:
        with resources.limits(cpus=1.0) as limited:
            inside = subprocess.Popen([*limited.inside, "sleep", "600"])
            (folder,) = limited.groups[0].folders
            assert folder.exists()
        assert not folder.exists()
        assert inside.wait(30) != 0

    def test_no_limit_at_all_is_refused(self) -> None:
        with pytest.raises(UsageError, match="at least one limit"), resources.limits():
            pass

    def test_a_limit_that_the_kernel_refuses_leaves_nothing(self) -> None:
        with (
            pytest.raises(StashError, match="Cannot write"),
            resources.limits(cores=[1_000_000]),
        ):
            pass
        assert not cgroups.folders_of(f"{os.getpid()}-*")


def _holds_memory(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("memory.limit_in_bytes", "memory.max"))


def _memory_limit(folder: Path) -> int:
    for name in ("memory.limit_in_bytes", "memory.max"):
        if (folder / name).exists():
            return int((folder / name).read_text())
    raise AssertionError(folder)


def test_a_worker_without_a_group_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(resources.GROUPS_VARIABLE, "[[]]")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(StashError, match="Worker 1 has no group"):
        resources.enter_own_group()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a folder in memory")
def test_a_folder_that_is_on_no_disk_is_refused() -> None:
    with pytest.raises(UsageError, match="lies on no disk"):
        resources.device_of(Path("/dev/shm"))


@pytest.fixture
def second_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a machine with control groups of version 2."""
    root = tmp_path / "cgroup"
    root.mkdir()
    for name in ("cgroup.controllers", "cgroup.subtree_control"):
        (root / name).write_text("cpuset cpu io memory pids\n")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"30 20 0:26 / {root} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n")
    monkeypatch.setattr(cgroups, "MOUNTS", mounts)
    return root


def test_the_second_version_of_groups_gets_its_own_words(second_version: Path) -> None:
    limits = Limits(20e6, "8:0", cpus=1.5, cores=(0, 2), memory_bytes=1 << 30)
    group = cgroups.create("x", "worker0", resources._settings(limits))
    (folder,) = group.folders
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "io.max": "8:0 rbps=20000000",
        "cpu.max": "150000 100000",
        "cpuset.cpus": "0,2",
        "memory.max": str(1 << 30),
    }
    assert cgroups.folders_of("x") == [second_version / "stash-lab-x.worker0"]


def test_a_controller_that_is_off_is_left_to_the_user(second_version: Path) -> None:
    switch = second_version / "cgroup.subtree_control"
    switch.write_text("cpu memory\n")
    with pytest.raises(StashError, match=r"echo \+io >"):
        resources._settings(Limits(20e6, "8:0"))
    assert switch.read_text() == "cpu memory\n"


@pytest.mark.parametrize("cpus", [0.0, -1.0, float("inf"), float("nan")])
def test_a_share_of_processors_that_would_limit_nothing_is_refused(cpus: float) -> None:
    with pytest.raises(UsageError, match="CPUs is no limit"):
        resources._settings(Limits(cpus=cpus))
