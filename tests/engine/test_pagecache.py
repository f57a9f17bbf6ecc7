"""Dropping files from memory, and the proof that they were."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from stash.engine import pagecache

MIB = 2**20


def file_system(path: Path) -> str:
    """The type of the file system that holds a path."""
    mounts = {p.mountpoint: p.fstype for p in psutil.disk_partitions(all=True)}
    return next(mounts[str(p)] for p in (path, *path.parents) if str(p) in mounts)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if not pagecache.can_evict() or pagecache.storage_bytes_read() is None:
        pytest.skip("this system cannot evict, or does not count what is read from storage")
    if file_system(tmp_path) in ("tmpfs", "ramfs"):
        pytest.skip(f"{tmp_path} lies in memory, not on a disk")
    return tmp_path


def bytes_from_storage(path: Path) -> int:
    before = pagecache.storage_bytes_read()
    path.read_bytes()
    after = pagecache.storage_bytes_read()
    assert before is not None and after is not None
    return after - before


def written(path: Path, size: int, *, synced: bool = True) -> Path:
    with path.open("wb") as file:
        file.write(os.urandom(size))
        if synced:
            file.flush()
            os.fsync(file.fileno())
    return path


def test_an_evicted_file_comes_from_storage_again_and_a_cached_one_does_not(folder: Path) -> None:
    path = written(folder / "data", 4 * MIB)
    path.read_bytes()
    assert bytes_from_storage(path) == 0
    pagecache.evict([path])
    assert 0.99 <= bytes_from_storage(path) / (4 * MIB) <= 1.5
    assert bytes_from_storage(path) == 0


def test_a_file_that_is_not_yet_written_back_is_evicted_too(folder: Path) -> None:
    path = written(folder / "dirty", 4 * MIB, synced=False)
    pagecache.evict([path])
    assert bytes_from_storage(path) >= 0.99 * 4 * MIB


def test_other_files_stay_where_they_are(folder: Path) -> None:
    evicted, kept = written(folder / "a", MIB), written(folder / "b", MIB)
    kept.read_bytes()
    pagecache.evict([evicted])
    assert bytes_from_storage(kept) == 0


def test_files_that_are_gone_or_forbidden_do_not_stop_the_others(folder: Path) -> None:
    path = written(folder / "data", MIB)
    pagecache.evict([folder / "missing", folder, path])
    assert bytes_from_storage(path) >= 0.99 * MIB


def test_what_children_read_counts(folder: Path) -> None:
    path = written(folder / "data", 4 * MIB)
    pagecache.evict([path])
    before = pagecache.storage_bytes_read()
    reader = "import sys; open(sys.argv[1], 'rb').read(); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", reader, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdin is not None
        child.stdout.readline()
        after = pagecache.storage_bytes_read()
        child.stdin.close()
    assert before is not None and after is not None
    assert after - before >= 0.99 * 4 * MIB


def test_sizes_are_rounded_up_to_pages(tmp_path: Path) -> None:
    sizes = [0, 1, mmap.PAGESIZE, mmap.PAGESIZE + 1]
    files = [written(tmp_path / str(size), size) for size in sizes]
    assert pagecache.page_rounded_bytes(files) == (0 + 1 + 1 + 2) * mmap.PAGESIZE
    assert pagecache.page_rounded_bytes([tmp_path / "missing"]) == 0


def test_a_local_file_system_is_not_called_remote(folder: Path) -> None:
    if file_system(folder).startswith(pagecache.REMOTE):
        pytest.skip("the temporary folder is remote here")
    assert pagecache.remote_file_system(folder) is None
    assert pagecache.remote_file_system(folder / "not" / "yet" / "there") is None


def test_a_remote_file_system_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is none here to try, so the table of mounts is made up."""
    mount = tmp_path / "share"
    (mount / "data").mkdir(parents=True)
    local = SimpleNamespace(mountpoint="/", fstype="ext4")
    remote = SimpleNamespace(mountpoint=str(mount), fstype="nfs4")
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: [local, remote])
    assert pagecache.remote_file_system(mount / "data") == "nfs4"
    assert pagecache.remote_file_system(tmp_path / "shared") is None
