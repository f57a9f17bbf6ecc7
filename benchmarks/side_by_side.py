"""Time to the same answer: Stash against one launch per step, on workloads with known stalls.

Both methods measure the same workload in turn, in random order, again and again; one line of JSON
is kept of every repeat. Stash is the command as users run it, with the rounds that a profile has at
least. What it would have said after fewer is kept as well (ROUNDS): four take about a fifth of the
other's time, three where starts are left aside.

    python benchmarks/side_by_side.py [--repeats 20] [--only cpu] [--bursts]
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import load
import reference_protocol
import slices
from children import end_with_us
from side_by_side_summary import summaries
from side_by_side_workloads import NAMES, Known, known

from stash.engine.plan import MIN_ROUNDS
from stash.results.estimates import Times
from stash.results.profile import Profile
from stash.results.recording import Round
from stash.results.steps import STALL_BY_NAME

#: Where workers come from: what Stash takes to start changes with it, so that times of repeats can
#: be told apart.
START = "quick forks"
#: The last is all of them.
ROUNDS = (3, 4, 10, MIN_ROUNDS)


def main() -> None:
    options = _parse()
    if options.summary is not None:
        lines = slices.read(options.summary)
    else:
        lines = list(_repeats(options))
    for told in summaries(lines):
        print(json.dumps(told), flush=True)


def _repeats(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every repeat, kept as soon as it is there."""
    for _ in range(options.repeats):
        for name in [options.only] if options.only else NAMES:
            line = _repeat(known(name), options.bursts)
            if options.append is not None:
                slices.keep(line, options.append)
            yield line


def _repeat(case: Known, bursts: bool) -> dict[str, Any]:
    """Both methods once, in an order of their own."""
    methods = {"reference": _reference, "stash": _stash}
    order = random.sample(list(methods), 2)
    with load.bursts() if bursts else contextlib.nullcontext():
        answers = {name: methods[name](case) for name in order}
    return {
        "case": case.name,
        "bursts": bursts,
        "at": round(time.time()),
        "order": order,
        "start": START,
        "truth": case.truth,
        **answers,
    }


def _reference(case: Known) -> dict[str, Any]:
    answers, seconds = reference_protocol.measure(case)
    told = {
        str(count): {"seconds_without_start": answer.seconds, "stalls": answer.stalls}
        for count, answer in answers.items()
    }
    return {"seconds": seconds, "answers": told}


def _stash(case: Known) -> dict[str, Any]:
    """One profile by the command line."""
    with tempfile.TemporaryDirectory(prefix="stash-side-by-side-") as folder:
        command = [sys.executable, "-m", "stash", "profile", case.workload, "--out", folder]
        command += ["--device", case.device, "--nproc-per-node", str(reference_protocol.WORKERS)]
        command += ["--num-workers", "0", "--steps", ",".join(reference_protocol.STEPS)]
        command += ["--max-rounds", str(ROUNDS[-1])]
        command += ["--seed", str(random.randrange(1 << 30))]
        told = {**os.environ, **case.environment, "OMP_NUM_THREADS": "1"}
        began = time.perf_counter()
        subprocess.run(command, check=True, env=told, capture_output=True, preexec_fn=end_with_us)
        seconds = time.perf_counter() - began
        (path,) = Path(folder).glob("*.json")
        rounds = Profile.load(path).rounds()
    return {
        "seconds": seconds,
        "answers": {str(count): _answer(rounds[:count], case) for count in ROUNDS},
    }


def _answer(rounds: Sequence[Round], case: Known) -> dict[str, Any]:
    """What a profile says that has these rounds."""
    times = Times.of(rounds)
    stalls = {name: times.stall(STALL_BY_NAME[name]) for name in case.truth}
    return {
        "seconds_without_start": rounds[-1].at_seconds,
        "stalls": {name: stall.value for name, stall in stalls.items()},
        "half_widths": {name: stall.half_width for name, stall in stalls.items()},
    }


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
