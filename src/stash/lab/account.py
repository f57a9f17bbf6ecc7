"""What delays have really taken, also in processes that end without a word.

Every process keeps its own sums. Where the variable `STASH_LAB_ACCOUNTS` names a folder, they also
lie in a small mapped file there, so that nothing is lost when a worker is ended.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

FOLDER_VARIABLE = "STASH_LAB_ACCOUNTS"
_SUMS = struct.Struct("<3d")
_SUFFIX = ".account"


@dataclass(frozen=True)
class Injected:
    """Waits of one kind: how many, how long they should have been, how long they were."""

    waits: int = 0
    asked_seconds: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Injected) -> Injected:
        return Injected(
            self.waits + other.waits,
            self.asked_seconds + other.asked_seconds,
            self.seconds + other.seconds,
        )


class Account:
    """The sums of one kind of delay in this process; a forked process begins at zero."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pid = 0
        self._total = Injected()
        self._file: mmap.mmap | None = None

    @property
    def total(self) -> Injected:
        """What this process has waited."""
        return self._total if self._pid == os.getpid() else Injected()

    def add(self, waits: int, asked_seconds: float, seconds: float) -> None:
        """Some waits more, or the time that one has taken."""
        if self._pid != os.getpid():
            self._pid, self._total, self._file = os.getpid(), Injected(), self._open()
        total = self._total = self._total + Injected(waits, asked_seconds, seconds)
        if self._file is not None:
            _SUMS.pack_into(self._file, 0, total.waits, total.asked_seconds, total.seconds)

    def _open(self) -> mmap.mmap | None:
        folder = os.environ.get(FOLDER_VARIABLE)
        if not folder:
            return None
        path = Path(folder) / f"{self._name}-{os.getpid()}-{id(self):x}{_SUFFIX}"
        path.write_bytes(bytes(_SUMS.size))
        with path.open("r+b") as file:
            return mmap.mmap(file.fileno(), _SUMS.size)

    def __getstate__(self) -> str:
        return self._name  # loader workers that are spawned get a copy by pickle

    def __setstate__(self, name: str) -> None:
        self.__init__(name)  # type: ignore[misc]


def read_accounts(folder: Path) -> dict[str, Injected]:
    """All waits by kind, over every process that kept an account in a folder."""
    found: dict[str, Injected] = {}
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        waits, asked, seconds = _SUMS.unpack(path.read_bytes())
        name = path.name.split("-")[0]
        found[name] = found.get(name, Injected()) + Injected(int(waits), asked, seconds)
    return found
