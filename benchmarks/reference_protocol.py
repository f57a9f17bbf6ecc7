"""The protocol that Stash is compared with: one launch per step, one after the other.

That is how DS-Analyzer and the paper's tool measure: every step is a training run of its own, its
first iterations are left out, the next 50 are averaged, and stalls are differences of averages.
What it would have said after fewer of them is kept as well. Workers are the same as Stash's: same
model, same DDP, same delays, no engine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from children import end_with_us

from stash.results.steps import STEP_BY_NAME, Who, stalls_of

if TYPE_CHECKING:
    from side_by_side_workloads import Known

STEPS = ("solo", "node", "cold", "warm")  # in the paper's order
WARM_UP_ITERATIONS = 5
#: The last is what it takes by default.
ITERATIONS = (10, 25, 50)
WORKERS = 2


@dataclass(frozen=True)
class Answer:
    """What the protocol found after so many iterations, and what those took."""

    stalls: dict[str, float]
    seconds: float  # without starting anything


def measure(case: Known) -> tuple[dict[int, Answer], float]:
    """All steps, one launch each; and the seconds of machine time that all of that took."""
    began = time.perf_counter()
    runs = {step: _launch(step, case) for step in STEPS}
    return {count: _answer(runs, count) for count in ITERATIONS}, time.perf_counter() - began


def _answer(runs: dict[str, dict[str, float]], count: int) -> Answer:
    times = {step: run[f"timed {count}"] / count for step, run in runs.items()}
    return Answer(
        stalls={
            stall.name: sum(sign * times[step] for sign, step in stall.terms)
            for stall in stalls_of(frozenset(times))
        },
        seconds=sum(run["warm-up"] + run[f"timed {count}"] for run in runs.values()),
    )


def _launch(step: str, case: Known) -> dict[str, float]:
    alone = STEP_BY_NAME[step].who is Who.FIRST
    workers = 1 if alone else WORKERS
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(workers), __file__, case.workload]
    command += ["--device", case.device, "--step", step]
    with tempfile.TemporaryDirectory(prefix="stash-reference-") as folder:
        command += ["--folder", folder]
        known = case.environment_alone if alone else case.environment
        told = {**os.environ, **known, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=told, capture_output=True, preexec_fn=end_with_us)
        found = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    assert len(found) == workers
    return {key: max(one[key] for one in found) for key in found[0]}


def _worker(options: argparse.Namespace) -> None:
    """One training run over one step, as plainly as can be."""
    import torch
    import torch.distributed as dist

    from stash.engine import exchange
    from stash.engine.devices import open_device
    from stash.hardware.device_names import parse
    from stash.workloads import train

    device = parse(options.device)
    if device.kind == "cpu":
        _pin()
    workload = train.resolve(options.workload, None, None, device)
    # The engine's group, always on: the lab's slow exchange lies in the real group beneath it.
    exchange.register(lambda group: None, lambda: "gloo")
    dist.init_process_group(exchange.BACKEND)
    model, optimizer, loss = train._prepare(workload, device, torch.device("cpu"), "fp32")
    loader = train.make_loader(workload, 0, pin_memory=False)
    batches = _batches(loader, real=STEP_BY_NAME[options.step].feed.is_real)
    synchronize = open_device(options.device, 0).synchronize

    def run(iterations: int) -> float:
        start = time.perf_counter()
        for _ in range(iterations):
            value = loss(model, next(batches))
            optimizer.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        synchronize()
        return time.perf_counter() - start

    found = {"warm-up": run(WARM_UP_ITERATIONS)}
    more = [run(count - before) for before, count in itertools.pairwise((0, *ITERATIONS))]
    timed = zip(ITERATIONS, itertools.accumulate(more), strict=True)
    found |= {f"timed {count}": seconds for count, seconds in timed}
    (options.folder / f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)  # the lab's threads wait for ever


def _pin() -> None:
    """The cores that Stash gives to the same worker, also to one that is alone."""
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // WORKERS
    first = int(os.environ["LOCAL_RANK"]) * share
    if share:
        os.sched_setaffinity(0, cores[first : first + share])


def _batches(loader: Any, *, real: bool) -> Iterator[Any]:
    """Batches as the loader makes them, epoch after epoch; or the first one again and again."""
    first = next(iter(loader))
    return itertools.chain.from_iterable(itertools.repeat(loader if real else [first]))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", help="path/file.py:factory")
    parser.add_argument("--device", required=True)
    parser.add_argument("--step", choices=STEPS, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    _worker(_parse())
