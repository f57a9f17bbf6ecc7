"""Time to the same answer: Stash against one launch per step, on workloads with known stalls.

Both methods measure the same workload in turn, in random order, again and again; one line of JSON
is kept of every repeat. Stash's answer is told after every round, so that it can be seen how soon
it is as near to the truth as the other method's.

    python benchmarks/side_by_side.py [--repeats 20] [--only cpu] [--bursts]
    python benchmarks/side_by_side.py --repeats 2 --append F       a slice of a long run
    python benchmarks/side_by_side.py --summary F                  all slices together
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import reference_protocol
from side_by_side_summary import summaries
from side_by_side_workloads import NAMES, Known, known

from stash.launch import api
from stash.launch.request import Request
from stash.results.estimates import Times
from stash.results.recording import Round

#: How long the other load runs and rests, in seconds.
BURST, REST = (0.5, 4.0), (1.0, 8.0)
MOST_ROUNDS = 40


def main() -> None:
    options = _parse()
    if options.summary is not None:
        lines = [json.loads(line) for line in options.summary.read_text().splitlines()]
        for told in summaries(lines):
            print(json.dumps(told), flush=True)
        return
    lines = []
    for _ in range(options.repeats):
        for name in [options.only] if options.only else NAMES:
            lines.append(_repeat(known(name), options.bursts))
            if options.append is not None:
                with options.append.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    for told in summaries(lines):
        print(json.dumps(told), flush=True)


def _repeat(case: Known, bursts: bool) -> dict[str, Any]:
    """Both methods once, in an order of their own."""
    methods = {"reference": _reference, "stash": _stash}
    order = random.sample(list(methods), 2)
    with _bursts() if bursts else _quiet():
        answers = {name: methods[name](case) for name in order}
    return {
        "case": case.name,
        "bursts": bursts,
        "at": round(time.time()),
        "order": order,
        "truth": case.truth,
        **answers,
    }


def _reference(case: Known) -> dict[str, Any]:
    answer = reference_protocol.measure(case)
    return {
        "seconds": answer.seconds,
        "seconds_without_start": answer.seconds_of_iterations,
        "stalls": answer.stalls,
    }


def _stash(case: Known) -> dict[str, Any]:
    """One profile, and what it would have said after every round."""
    os.environ.update(case.environment)
    rounds: list[Round] = []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="stash-side-by-side-") as folder:
        request = Request(
            workload=case.workload,
            device=case.device,
            nproc_per_node=reference_protocol.WORKERS,
            threads_per_worker=1,
            num_workers=0,
            steps=reference_protocol.STEPS,
            max_rounds=MOST_ROUNDS,
            seed=random.randrange(1 << 30),
            out=Path(folder),
        )
        profile = api.measure(
            request, lambda events: rounds.extend(e for e in events if isinstance(e, Round))
        ).profile
    seconds = time.perf_counter() - began
    start = seconds - profile.run.measuring_seconds
    return {
        "seconds": seconds,
        "seconds_without_start": profile.run.measuring_seconds,
        "stopped_because": profile.run.stopped_because,
        "after_rounds": [_after(rounds[: n + 1], start) for n in range(len(rounds))],
    }


def _after(rounds: Sequence[Round], start: float) -> dict[str, Any]:
    stalls = Times.of(rounds).stalls()
    return {
        "seconds": rounds[-1].at_seconds + start,
        "seconds_without_start": rounds[-1].at_seconds,
        "stalls": {name: stall.value for name, stall in stalls.items()},
        "half_widths": {name: stall.half_width for name, stall in stalls.items()},
    }


@contextmanager
def _quiet() -> Iterator[None]:
    yield


@contextmanager
def _bursts() -> Iterator[None]:
    """Something else loads every core, in bursts, for as long as this lasts."""
    seed = random.randrange(1 << 30)
    context = multiprocessing.get_context("spawn")
    cores = range(os.cpu_count() or 1)
    loads = [context.Process(target=_load, args=(seed,), daemon=True) for _ in cores]
    for load in loads:
        load.start()
    try:
        yield
    finally:
        for load in loads:
            load.terminate()
            load.join()


def _load(seed: int) -> None:
    """Works and rests; the same seed makes all cores busy at the same time."""
    draw = random.Random(seed)
    next_turn = time.time()
    while True:
        next_turn += draw.uniform(*BURST)
        while time.time() < next_turn:
            sum(range(10_000))
        next_turn += draw.uniform(*REST)
        time.sleep(max(0.0, next_turn - time.time()))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--bursts", action="store_true", help="load the machine in bursts")
    parser.add_argument("--append", type=Path, metavar="FILE", help="keep every repeat here")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="tell what is kept there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
