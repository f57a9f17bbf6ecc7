"""How many processes that a worker forks after a collective are stuck from birth, and for how long
forks are put off to prevent it (src/stash/engine/forks.py).

Two workers of plain gloo, without Stash, reduce a tensor six times and fork, again and again, while
three other processes work for 1 to 20 ms at a time.

    python benchmarks/fork_hangs.py [--forks 2500]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from stash.engine import forks

WORKERS, COLLECTIVES, LOADS = 2, 6, 3
WORK_SECONDS, REST_SECONDS = (0.001, 0.02), (0.0, 0.01)
#: An unhindered child ends within some milliseconds.
STUCK_SECONDS = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--forks", type=int, default=2500, help="of each worker")
    options = parser.parse_args()
    print(json.dumps({"python": platform.python_version(), "torch": torch.__version__}))
    with _loaded():
        for name, before in {"at once": None, "settled": forks.settle}.items():
            print(json.dumps({"forks": name, **_both_workers(options.forks, before)}), flush=True)


def _both_workers(count: int, before: Callable[[], None] | None) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    found: Any = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(target=_worker, args=(rank, f"{folder}/store", count, before, found))
            for rank in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        told = [found.get() for _ in workers]
        for worker in workers:
            worker.join()
    return {
        "of": WORKERS * count,
        "stuck": sum(stuck for stuck, _ in told),
        "put_off_ms": round(1e3 * sum(seconds for _, seconds in told) / WORKERS / count, 2),
    }


def _worker(
    rank: int, store: str, count: int, before: Callable[[], None] | None, found: Any
) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=WORKERS)
    stuck, put_off = 0, 0.0
    for _ in range(count):
        for _ in range(COLLECTIVES):
            dist.all_reduce(torch.zeros(1000))
        began = time.perf_counter()
        if before is not None:
            before()
        put_off += time.perf_counter() - began
        stuck += _fork_is_stuck()
    found.put((stuck, put_off))
    dist.destroy_process_group()


def _fork_is_stuck() -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0)
    until = time.monotonic() + STUCK_SECONDS
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.0002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


@contextmanager
def _loaded() -> Iterator[None]:
    """Other processes that keep the scheduler busy; they end with this one."""
    loads = [multiprocessing.get_context("fork").Process(target=_load) for _ in range(LOADS)]
    for load in loads:
        load.start()
    try:
        yield
    finally:
        for load in loads:
            load.terminate()
            load.join()


def _load() -> None:
    draw, parent = random.Random(os.getpid()), os.getppid()
    while os.getppid() == parent:
        until = time.perf_counter() + draw.uniform(*WORK_SECONDS)
        while time.perf_counter() < until:
            sum(range(1000))
        time.sleep(draw.uniform(*REST_SECONDS))


if __name__ == "__main__":
    main()
