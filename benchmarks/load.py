"""Something else loads every core of the machine, in bursts, for as long as a benchmark lasts.

Bursts and pauses are drawn; all cores are busy at the same moments. A process of it imports nothing
that is heavy, so it disturbs by its bursts alone.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: How long the load works and rests, in seconds.
BURST, REST = (0.5, 4.0), (1.0, 8.0)
#: By then all of its processes have started.
START_SECONDS = 1.0


@contextmanager
def bursts() -> Iterator[None]:
    """One process a core, all with the same draw, from the same moment on."""
    seed, begin = random.randrange(1 << 30), time.time() + START_SECONDS
    command = [sys.executable, "-I", "-S", __file__, str(seed), repr(begin)]
    loads = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    time.sleep(max(0.0, begin - time.time()))
    try:
        yield
    finally:
        for load in loads:
            load.terminate()
            load.wait()


def _load(seed: int, next_turn: float) -> None:
    draw, parent = random.Random(seed), os.getppid()
    while os.getppid() == parent:  # whoever wanted the load may have been killed
        time.sleep(max(0.0, next_turn - time.time()))
        next_turn += draw.uniform(*BURST)
        while time.time() < next_turn:
            sum(range(10_000))
        next_turn += draw.uniform(*REST)


if __name__ == "__main__":
    _load(int(sys.argv[1]), float(sys.argv[2]))
