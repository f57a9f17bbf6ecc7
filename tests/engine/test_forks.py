"""A fork waits for other threads of its process, but not for ever."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import time

import pytest

from stash.engine import forks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what threads do is told by /proc")

PROGRAM = """
import os, sys
sys.version_info = {version}
from stash.engine import forks
forks.settle = lambda: print("waited", flush=True)
forks.wait_before_forks()
if os.fork():
    os.wait()
"""


class Busy(threading.Thread):
    """Works outside of Python, so that it runs while others do."""

    def __init__(self, times: int) -> None:
        super().__init__(daemon=True)
        self.times_left = times
        self.began = threading.Event()

    def run(self) -> None:
        self.began.set()
        while self.times_left:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000)
            self.times_left -= 1


def test_a_thread_that_works_is_waited_for() -> None:
    busy = Busy(times=1)
    busy.start()
    busy.began.wait()
    forks.settle(patience_seconds=60.0)
    assert not busy.times_left


def test_threads_that_sleep_are_not_waited_for() -> None:
    asleep = threading.Event()
    thread = threading.Thread(target=asleep.wait, daemon=True)
    thread.start()
    began = time.monotonic()
    forks.settle(patience_seconds=60.0)
    assert time.monotonic() - began < 30.0
    asleep.set()
    thread.join()


def test_a_thread_that_always_works_is_not_waited_for_long() -> None:
    busy = Busy(times=100)
    busy.start()
    busy.began.wait()
    forks.settle(patience_seconds=0.01)
    assert busy.times_left
    busy.times_left = 1
    busy.join()


@pytest.mark.parametrize("version", [(3, 10, 12), (3, 11, 7), (3, 11, 8), (3, 13, 0)])
def test_forks_wait_where_python_needs_it(version: tuple[int, int, int]) -> None:
    program = PROGRAM.format(version=version)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout == ("waited\n" if version < (3, 11, 8) else ""), ended.stderr
