"""What a process may use of a machine, from control groups made of plain files."""

from __future__ import annotations

from pathlib import Path

import pytest

from stash.hardware import machine


def groups(tmp_path: Path, membership: str, *folders: str) -> list[str]:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "membership").write_text(membership)
    found = machine.own_groups("cpu", mounted=tmp_path, membership=tmp_path / "membership")
    return [str(path.relative_to(tmp_path)) for path in found]


def test_groups_of_version_1_from_the_inside_out(tmp_path: Path) -> None:
    membership = "4:memory:/job\n2:cpu,cpuacct:/slurm/job_7\n"
    found = groups(tmp_path, membership, "cpu,cpuacct/slurm/job_7", "memory/job")
    assert found == ["cpu,cpuacct/slurm/job_7", "cpu,cpuacct/slurm", "cpu,cpuacct"]


def test_groups_of_version_2_from_the_inside_out(tmp_path: Path) -> None:
    assert groups(tmp_path, "0::/a/b\n", "a/b") == ["a/b", "a", "."]


def test_a_container_that_sees_only_its_own_root_still_finds_its_limits(tmp_path: Path) -> None:
    assert groups(tmp_path, "2:cpu:/docker/1234\n", "cpu") == ["cpu"]


def test_no_control_groups_at_all(tmp_path: Path) -> None:
    assert machine.own_groups("cpu", membership=tmp_path / "missing") == []


def test_the_tightest_quota_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, outer = tmp_path / "outer" / "inner", tmp_path / "outer"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000")
    (outer / "cpu.cfs_quota_us").write_text("150000")
    (outer / "cpu.cfs_period_us").write_text("100000")
    monkeypatch.setattr(machine, "own_groups", lambda controller: [inner, outer])
    assert machine._cpu_quota() == pytest.approx(1.5)
    (inner / "cpu.max").write_text("50000 100000")
    assert machine._cpu_quota() == pytest.approx(0.5)


def test_the_tightest_memory_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit, used in (("job", 3000, 1000), ("machine", 8000, 7500)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "memory.max").write_text(str(limit))
        (folder / "memory.current").write_text(str(used))
    monkeypatch.setattr(
        machine, "own_groups", lambda controller: [tmp_path / "job", tmp_path / "machine"]
    )
    assert machine.usable_memory_bytes() == 3000
    assert machine.available_memory_bytes() == 500
