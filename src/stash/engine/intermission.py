"""Pauses between timed blocks, in which the launcher reads what is new and shows it.

The first worker knocks and waits for the answer; all others wait for the first one where they meet
next. So nothing is read or drawn while a block is timed. Two named pipes in the run folder carry
one byte each way.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

KNOCK, ANSWER = "knock", "answer"
#: Drawing takes hundredths of a second; a launcher that takes longer is stopped, or its terminal.
PATIENCE_SECONDS = 2.0
#: And is then left alone for a while.
DEAF_SECONDS = 60.0


class Intermission:
    """A worker's side. Where nobody listens, there is no pause."""

    def __init__(self, run_folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._run_folder = run_folder
        self._clock = clock
        self._deaf_until = 0.0

    def take(self) -> None:
        """Let the launcher read and draw; come back when it is done."""
        if self._clock() < self._deaf_until:
            return
        with contextlib.suppress(OSError), self._pipes() as (knock, answer):
            _empty(answer)
            os.write(knock, b".")
            if not _readable((answer,), PATIENCE_SECONDS):
                self._deaf_until = self._clock() + DEAF_SECONDS

    @contextlib.contextmanager
    def _pipes(self) -> Iterator[tuple[int, int]]:
        knock = os.open(self._run_folder / KNOCK, os.O_WRONLY | os.O_NONBLOCK)
        try:
            answer = os.open(self._run_folder / ANSWER, os.O_RDWR | os.O_NONBLOCK)
            try:
                yield knock, answer
            finally:
                os.close(answer)
        finally:
            os.close(knock)


class Doorkeeper:
    """The launcher's side."""

    def __init__(self, run_folder: Path) -> None:
        self._answer = run_folder / ANSWER
        self._knock: int | None = None
        with contextlib.suppress(OSError):  # a file system without named pipes
            os.mkfifo(run_folder / KNOCK)
            os.mkfifo(self._answer)
            self._knock = os.open(run_folder / KNOCK, os.O_RDWR | os.O_NONBLOCK)

    def wait(self, seconds: float, end: int | None = None) -> bool:
        """Whether there is a pause now; after so many seconds, or at an end, there is none.

        An end is a descriptor that can be read then. Where nobody can knock, every moment has to
        do.
        """
        heard = _readable((self._knock, end), seconds)
        if self._knock is None:
            return True
        if self._knock not in heard:
            return False
        _empty(self._knock)
        return True

    def answer(self) -> None:
        """The pause may end."""
        with contextlib.suppress(OSError):  # nobody waits any more
            pipe = os.open(self._answer, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(pipe, b".")
            finally:
                os.close(pipe)

    def close(self) -> None:
        """Nobody listens from now on."""
        if self._knock is not None:
            os.close(self._knock)
            self._knock = None


def _readable(descriptors: Iterable[int | None], seconds: float) -> set[int]:
    """Those that can be read, as soon as one of them can be."""
    waiting = select.poll()  # unlike select.select, also where a process has very many files open
    for descriptor in descriptors:
        if descriptor is not None:
            waiting.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in waiting.poll(1000 * seconds)}


def _empty(pipe: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(pipe, 64):
            pass
