"""Reads files cold, one worker's share of them, to time storage itself."""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path

from stash.engine import pagecache

#: What one worker reads at most in a block.
SHARE_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20


class ColdReader:
    """One worker's files: those of a folder in turns, or a new one of random bytes."""

    def __init__(self, folder: Path, worker: int, workers: int, *, makes_files: bool) -> None:
        if makes_files:
            self._files = [_make(folder / f"{worker}")]
        else:
            self._files = _enough(_files_of(folder)[worker::workers])
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._before: int | None = None
        self.bytes = min(SHARE_BYTES, sum(path.stat().st_size for path in self._files))

    def evict(self) -> None:
        """Drop the files from memory, before the clock starts."""
        pagecache.evict(self._files)
        self._before = pagecache.storage_bytes_read()

    def read(self) -> None:
        """From the first file on, until there is enough."""
        left = self.bytes
        for path in self._files:
            with path.open("rb", buffering=0) as file:
                while left > 0 and (count := file.readinto(self._buffer[:left])):
                    left -= count
            if left <= 0:
                return

    def storage_bytes(self) -> tuple[int, int] | None:
        """Bytes that came from storage since they were dropped, and those that had to."""
        after = pagecache.storage_bytes_read()
        if self._before is None or after is None:
            return None
        return after - self._before, -(-self.bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def _files_of(folder: Path) -> list[Path]:
    return [folder] if folder.is_file() else sorted(p for p in folder.rglob("*") if _has_bytes(p))


def _has_bytes(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.is_file() and path.stat().st_size > 0
    return False


def _enough(files: list[Path]) -> list[Path]:
    """As many files as fill a share."""
    chosen, total = [], 0
    for path in files:
        if total >= SHARE_BYTES:
            break
        chosen.append(path)
        total += path.stat().st_size
    return chosen


def _make(path: Path) -> Path:
    with path.open("wb") as file:
        for _ in range(SHARE_BYTES // CHUNK_BYTES):
            file.write(os.urandom(CHUNK_BYTES))
        file.flush()
        os.fsync(file.fileno())
    return path
