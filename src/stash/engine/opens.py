"""Which files a data set reads: seen by Python's own audit events, so no data set need say so."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

#: Never data: the interpreter's own files and what the kernel makes up.
NOT_DATA = ("/proc/", "/sys/", "/dev/", "/etc/")
NOT_DATA_SUFFIXES = {".py", ".pyc", ".so", ".pth"}


class OpenRecorder:
    """A loader's `worker_init_fn` that notes every file which the worker opens for reading."""

    def __init__(
        self,
        inner: Callable[[int], None] | None,
        run_folder: Path,
        data_folder: Path | None,
    ) -> None:
        self._inner = inner
        self._data = None if data_folder is None else data_folder.absolute()
        self._notes = run_folder / f"opens-{os.getpid()}-{id(self)}"
        self._notes.mkdir(parents=True, exist_ok=True)

    def __call__(self, worker_id: int) -> None:
        """Run in each loader worker as it starts."""
        _note_opens(self._notes / f"{worker_id}.txt")
        if self._inner is not None:
            self._inner(worker_id)

    @contextlib.contextmanager
    def recording_here(self, wanted: bool) -> Iterator[None]:
        """The same in this process, for loaders without workers."""
        if not wanted:
            yield
            return
        stop = _note_opens(self._notes / "here.txt")
        try:
            yield
        finally:
            stop()

    def files(self) -> tuple[Path, ...]:
        """The data files among what was opened; where none was seen, the data folder's."""
        seen: dict[Path, None] = {}
        for notes in sorted(self._notes.glob("*.txt")):
            for line in notes.read_text(errors="surrogateescape").splitlines():
                seen[Path(line)] = None
        found = tuple(path for path in seen if self._is_data(path))
        return found or tuple(_files_under(self._data))

    def _is_data(self, path: Path) -> bool:
        try:
            resolved = path.resolve()
            if not stat.S_ISREG(resolved.stat().st_mode):
                return False
        except OSError:
            return False
        if self._data is not None:  # by either name: data folders are often made of links
            return path.is_relative_to(self._data) or resolved.is_relative_to(self._data.resolve())
        text = str(resolved)
        own = (sys.prefix, sys.base_prefix)
        return not (
            text.startswith(NOT_DATA)
            or any(resolved.is_relative_to(place) for place in own)
            or resolved.suffix in NOT_DATA_SUFFIXES
            or resolved.is_relative_to(self._notes.parent.resolve())
        )


def _files_under(data: Path | None) -> Iterator[Path]:
    if data is None:
        return
    if data.is_file():
        yield data
    for folder, _, names in os.walk(data, followlinks=True):
        yield from (Path(folder, name) for name in sorted(names))


def _note_opens(path: Path) -> Callable[[], None]:
    """Append the name of every file opened for reading. A hook cannot be removed, only muted."""
    # Unbuffered: loader workers are ended without a chance to flush.
    notes: Any = path.open("ab", buffering=0)
    active = True

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if not active or event != "open":
            return
        name, _, flags = args
        is_reading = isinstance(flags, int) and flags & os.O_ACCMODE == os.O_RDONLY
        if is_reading and isinstance(name, str | bytes):
            encoded = os.fsencode(os.path.abspath(name))
            if b"\n" not in encoded:
                notes.write(encoded + b"\n")

    def stop() -> None:
        nonlocal active
        active = False
        notes.close()

    sys.addaudithook(hook)
    return stop
