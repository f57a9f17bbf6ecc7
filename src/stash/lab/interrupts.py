"""Signals and clean-up: every polite end unwinds, and no second signal cuts a clean-up short."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """SIGTERM and SIGHUP end what runs inside as Ctrl-C does: by an exception."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(interrupt, (signal.SIGTERM, signal.SIGHUP)):
        yield


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that come while this runs are kept, and take effect afterwards."""
    came: list[int] = []
    with _handled(lambda number, frame: came.append(number), _ENDING):
        yield
    if came:
        os.kill(os.getpid(), came[0])


@contextlib.contextmanager
def _handled(handler: object, numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is interrupted
        return
    before = {number: signal.signal(number, handler) for number in numbers}  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
