"""Forks of a worker, such as its loaders' workers, that are made while its other threads sleep.

Before Python 3.11.8 a forked process waits for ever if another thread was being made known to
Python at that moment (CPython issue 112275). Threads of gloo are, now and then, after a collective:
when they let go of a tensor that Python knows.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

TASKS = Path("/proc/self/task")
SLEEPING = b"S"
LOOK_SECONDS = 0.0005
#: A thread that always works, such as one of the script's own, is not waited for.
PATIENCE_SECONDS = 0.1


def wait_before_forks() -> None:
    """From now on every fork of this process waits until its other threads sleep."""
    if sys.platform == "linux" and sys.version_info < (3, 11, 8):
        os.register_at_fork(before=settle)


def settle(patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Wait, without the interpreter's lock, until all other threads of this process sleep."""
    until = time.monotonic() + patience_seconds
    while time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        if _others_sleep():
            return


def _others_sleep() -> bool:
    own = str(threading.get_native_id())
    return all(_state(task) == SLEEPING for task in TASKS.iterdir() if task.name != own)


def _state(task: Path) -> bytes:
    """One letter; a thread that has just ended sleeps well."""
    try:
        return (task / "stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return SLEEPING
