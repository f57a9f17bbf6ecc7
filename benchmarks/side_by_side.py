"""Time to the same answer: Stash against one launch per step, on workloads with known stalls.

Both methods measure the same workload in turn, in random order, again and again; one line of JSON
is kept of every repeat. Stash is the command as users run it, with a number of rounds that is
decided before (ROUNDS), not after seeing errors; what part of the other's time it takes is told.

    python benchmarks/side_by_side.py [--repeats 20] [--only cpu] [--bursts] [--rounds N]
    python benchmarks/side_by_side.py --repeats 2 --append F       a slice of a long run
    python benchmarks/side_by_side.py --summary F                  all slices together
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import load
import reference_protocol
from side_by_side_summary import summaries
from side_by_side_workloads import NAMES, Known, known

from stash.results.profile import Profile

ROUNDS = 3


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
            lines.append(_repeat(known(name), options.bursts, options.rounds))
            if options.append is not None:
                with options.append.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    for told in summaries(lines):
        print(json.dumps(told), flush=True)


def _repeat(case: Known, bursts: bool, rounds: int) -> dict[str, Any]:
    """Both methods once, in an order of their own."""
    methods = {"reference": _reference, "stash": lambda case: _stash(case, rounds)}
    order = random.sample(list(methods), 2)
    with load.bursts() if bursts else contextlib.nullcontext():
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
    answers, seconds = reference_protocol.measure(case)
    *earlier, last = answers.items()
    return {
        "seconds": seconds,
        **_told(last[1]),
        "earlier": {str(count): _told(answer) for count, answer in earlier},
    }


def _told(answer: reference_protocol.Answer) -> dict[str, Any]:
    return {"seconds_without_start": answer.seconds, "stalls": answer.stalls}


def _stash(case: Known, rounds: int) -> dict[str, Any]:
    """One profile by the command line."""
    with tempfile.TemporaryDirectory(prefix="stash-side-by-side-") as folder:
        command = [sys.executable, "-m", "stash", "profile", case.workload, "--out", folder]
        command += ["--device", case.device, "--nproc-per-node", str(reference_protocol.WORKERS)]
        command += ["--num-workers", "0", "--steps", ",".join(reference_protocol.STEPS)]
        command += ["--max-rounds", str(rounds), "--seed", str(random.randrange(1 << 30))]
        told = {**os.environ, **case.environment, "OMP_NUM_THREADS": "1"}
        began = time.perf_counter()
        subprocess.run(command, check=True, env=told, capture_output=True)
        seconds = time.perf_counter() - began
        (path,) = Path(folder).glob("*.json")
        profile = Profile.load(path)
    stalls = {name: profile.stalls[name].seconds_per_iteration for name in case.truth}
    return {
        "seconds": seconds,
        "seconds_without_start": profile.run.measuring_seconds,
        "rounds": profile.run.rounds,
        "stalls": {name: stall.estimate for name, stall in stalls.items()},
        "half_widths": {
            name: None if stall.low is None or stall.high is None else (stall.high - stall.low) / 2
            for name, stall in stalls.items()
        },
    }


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of Stash")
    parser.add_argument("--bursts", action="store_true", help="load the machine in bursts")
    parser.add_argument("--append", type=Path, metavar="FILE", help="keep every repeat here")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="tell what is kept there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
