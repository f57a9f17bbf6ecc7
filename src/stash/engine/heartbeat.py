"""A file that the launcher looks at: what a worker is at, and when it last moved on.

Moving on is only noted in memory, which costs nothing inside a timed part. A thread writes it down
where a block lasts so long that the launcher would take it for a hang.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

#: The same is not told more often.
REPEAT_SECONDS = 1.0
#: Of the time-out: how old the file may become before the thread looks, and how often it does then.
OLD, LOOK = 1 / 2, 1 / 50
MAX_LOOK_SECONDS = 1.0
#: All of a file: written in one go over the old one, so that no reader finds it empty, and so that
#: it needs no more room on a disk that has become full.
FILE_BYTES = 128

#: Where workers watch themselves, the first one, which keeps the rounds, is not to be ended by the
#: end of another one.
OTHERS_SECONDS = 15.0

#: Told of a hang: seconds of silence, and what the worker is at.
OnHang = Callable[[float, str], None]


class Heartbeat:
    """Of one worker."""

    def __init__(
        self,
        run_folder: Path,
        rank: int,
        timeout_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = run_folder / f"heartbeat-{rank}"
        self._patience = 0.0 if rank == 0 else OTHERS_SECONDS
        self._timeout = timeout_seconds
        self._clock = clock
        self._moved_at = self._written_at = clock()
        self._doing = ("starting", 0.0)  # and for how long others may hold it
        self._lock = threading.Lock()
        self._over = threading.Event()

    def moved(self) -> None:
        """It goes on. Cheap enough for every iteration."""
        self._moved_at = self._clock()

    def tell(self, doing: str, held_seconds: float = 0.0) -> None:
        """What this worker is at now, and for how long others may keep it from moving on."""
        self.moved()
        repeats = (doing, held_seconds) == self._doing
        if repeats and self._moved_at - self._written_at < REPEAT_SECONDS:
            return
        self._doing = (doing, held_seconds)
        self._write()

    def watch(self, on_hang: OnHang | None = None) -> None:
        """Look after this worker from a thread; where nobody else does, tell of a hang, too."""
        self.moved()

        def look_on() -> None:
            while not self._over.wait(self.until_next_look()):
                silent = self.look()
                if on_hang is not None and silent > self._timeout + self._patience:
                    on_hang(silent, self._doing[0])
                    return

        threading.Thread(target=look_on, name="stash-heartbeat", daemon=True).start()

    def close(self) -> None:
        """Nobody needs to look any more."""
        self._over.set()

    def until_next_look(self) -> float:
        """Seconds. In short blocks, which tell by themselves, the thread sleeps all the time."""
        fresh = self._written_at + self._timeout * OLD - self._clock()
        return max(fresh, min(self._timeout * LOOK, MAX_LOOK_SECONDS))

    def look(self) -> float:
        """Write down what has been noted; the seconds for which this worker has not moved on.

        Those in which others may hold it do not count.
        """
        old = self._clock() - self._written_at >= self._timeout * OLD
        if old and self._moved_at > self._written_at:
            self._write()
        held_seconds = self._doing[1]  # read first: a worker moves before it tells of another hold
        return self._clock() - self._moved_at - held_seconds

    def _write(self) -> None:
        with self._lock:
            self._written_at = self._moved_at
            doing, held_seconds = self._doing
            text = f"{os.getpid()} {self._moved_at:.3f} {held_seconds:.3f} {doing}"
            # A worker goes on without it; where the disk is full, the recording says so.
            with contextlib.suppress(OSError):
                file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
                try:
                    os.pwrite(file, text.encode()[:FILE_BYTES].ljust(FILE_BYTES), 0)
                finally:
                    os.close(file)
