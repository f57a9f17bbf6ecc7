"""Emptying and proving the page cache, file by file, without root.

It makes files page-cache cold, not device cold: what a disk or a host caches below is not ours.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import psutil

#: File systems whose server or daemon keeps a cache of its own, which nobody can empty from here.
REMOTE = (
    "nfs",
    "cifs",
    "smb",
    "9p",
    "ceph",
    "lustre",
    "gpfs",
    "afs",
    "fuse",
    "glusterfs",
    "beegfs",
)


def can_evict() -> bool:
    """Whether this system has the call at all (Linux and other POSIX, not macOS)."""
    return hasattr(os, "posix_fadvise")


def evict(files: Iterable[Path]) -> None:
    """Drop these files from the page cache. Pages not yet written back stay: so sync first."""
    if not can_evict():
        return
    for path in files:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                with contextlib.suppress(OSError):
                    os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def page_rounded_bytes(files: Iterable[Path]) -> int:
    """What reading these files whole takes from storage at least."""
    total = 0
    for path in files:
        with contextlib.suppress(OSError):
            total += -(-path.stat().st_size // mmap.PAGESIZE) * mmap.PAGESIZE
    return total


def storage_bytes_read() -> int | None:
    """Bytes that this process and its children have read from storage; none where unknown."""
    try:
        own = psutil.Process()
        processes = [own, *own.children(recursive=True)]
        return sum(_read_bytes(process.pid) for process in processes)
    except (psutil.Error, OSError):
        return None


def remote_file_system(path: Path) -> str | None:
    """The type of a network or FUSE file system that holds this path; none for local ones."""
    resolved = str(path.resolve())
    best = ""
    kind = ""
    for partition in psutil.disk_partitions(all=True):
        mount = partition.mountpoint
        inside = resolved == mount or resolved.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, partition.fstype
    return kind if kind.startswith(REMOTE) else None


def _read_bytes(pid: int) -> int:
    # psutil's io_counters() reports read calls; only this line counts what storage delivered.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("read_bytes:"):
                return int(line.split()[1])
    if not Path("/proc/self/io").exists():
        raise OSError("no /proc/PID/io on this system")
    return 0
