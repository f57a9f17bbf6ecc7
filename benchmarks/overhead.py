"""What the engine costs: a training loop on the engine against the same loop without it.

Both loops run in the same two workers, block by block in random order, with plain gloo and plain
DDP on one side and the switchable group, the replay feed and the step hooks on the other. With
`--peer`, the loop under another tool runs between them; a launch in which that tool brings a worker
down is counted apart. Every block has a lead-in that is not timed, because the first iterations
after a switch carry something of the side before. Where a model lies in memory matters by percents,
so there are many short launches, every other one with the engine's model built first, and they are
the unit of the interval (a trimmed mean over launches). In the cases `idle` nothing is switched: a
script's own loader and its own group, through all seams; only its learning rate is held, as in
every step on the engine.

    python benchmarks/overhead.py [--minutes 6] [--only conv] [--peer torch-profiler]
    python benchmarks/overhead.py --only conv --launches 4 --minutes 1 --append F   a slice of it
    python benchmarks/overhead.py --summary F                               all slices together
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import slices
from children import end_with_us

from stash.hardware.machine import this_machine
from stash.results import statistics

BOUNDS = {
    "emulated": 1.01,
    "conv": 1.02,
    "tiny-layers": 1.03,
    "idle": 1.01,
    "idle-small": 1.01,
    "idle-emulated": 1.01,
}
#: No wider than this, on either side, by the clock or in processor time: else nothing was shown.
HALF_WIDTHS = {"emulated": 0.003, "idle-emulated": 0.003}
HALF_WIDTH = 0.01
PEERS = ("torch-profiler", "torch-profiler-stacks", "traceml")
LEAD_IN = 2
#: Cores whose speed changes within a second are best compared often. An emulated device's does not:
#: longer blocks lose less of the time to lead-ins.
BLOCK_SECONDS = 0.15
LONG_BLOCK_SECONDS = {"emulated": 0.5, "idle-emulated": 0.5}
CALIBRATING_ROUNDS = 5

#: Side to seconds per iteration of every round, by the clock and of processors.
Times = dict[str, list[float]]
#: Case, peer, seconds of a block, processor: launches of one are told together.
Key = tuple[str, str | None, float, str | None]


def main() -> None:
    options = _parse()
    if "RANK" in os.environ:
        _worker(options)
    elif options.summary is not None:
        _tell(slices.read(options.summary))
    else:
        for case in [options.only] if options.only else BOUNDS:
            _measure(case, options)


def _measure(case: str, options: argparse.Namespace) -> None:
    """Launches that share the time, and what all say together, those before them too."""
    with tempfile.TemporaryDirectory(prefix="stash-overhead-") as folder:
        kept = (options.append or Path(folder) / "slices").resolve()
        kept.touch()
        alike = (case, options.peer, _block_seconds(case), this_machine().cpu)
        for _ in range(options.launches):
            _launch(case, _rarer_first(slices.read(kept), alike), kept, options)
        _tell([one for one in slices.read(kept) if _key(one) == alike])


def _rarer_first(kept: Sequence[dict[str, Any]], alike: Key) -> str:
    """Whose model is built first: as often the one's as the other's, in all slices together."""
    before = [one["first"] for one in kept if _key(one) == alike]
    return min(("bare", "engine"), key=before.count)


def _launch(case: str, first: str, kept: Path, options: argparse.Namespace) -> None:
    from overhead_sides import serving

    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", __file__]
    command += [
        "--minutes",
        str(options.minutes / options.launches),
        "--only",
        case,
        "--first",
        first,
    ]
    command += ["--peer", options.peer] if options.peer else []
    command += ["--append", str(kept)]
    with (
        tempfile.TemporaryDirectory(prefix="stash-overhead-", ignore_cleanup_errors=True) as folder,
        serving(options.peer, Path(folder)) as needed,
    ):
        environment = {**os.environ, **needed, "OMP_NUM_THREADS": "1", "TMPDIR": folder}
        environment["KINETO_LOG_LEVEL"] = "99"  # torch.profiler tells every start and stop
        ended = subprocess.run(
            command,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_us,
        )
    sys.stderr.write(ended.stderr)
    if not ended.returncode:
        return
    if options.peer is None or not _crashed(ended.stderr):
        raise SystemExit("A launch has failed; its words are above.")
    slices.keep(_described(case, first, options) | {"died": True}, kept)


def _crashed(words: str) -> bool:
    """Whether a worker was ended by a signal, by what torchrun says; SIGTERM is its own."""
    codes = [int(code) for code in re.findall(r"exitcode\s*:\s*(-\d+)", words)]
    return any(code != -signal.SIGTERM for code in codes)


def _described(case: str, first: str, options: argparse.Namespace) -> dict[str, Any]:
    """What a launch was; only those that are alike are told together."""
    return {
        "case": case,
        "peer": options.peer,
        "block_seconds": _block_seconds(case),
        "first": first,
        "at": round(time.time()),
    }


def _worker(options: argparse.Namespace) -> None:
    import torch
    from overhead_sides import make_sides

    from stash.engine.gang import DistributedGang

    rank = int(os.environ["LOCAL_RANK"])
    if "emulated" not in options.only and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.manual_seed(0)
    folder = Path(tempfile.mkdtemp(prefix="stash-overhead-"))
    sides, board = make_sides(options.only, options.peer, folder, options.first)
    gang = DistributedGang()
    for side in sides.values():
        with side.around_block():
            side.run(10)
    seconds, processor_seconds = _rounds(sides, board, gang, options)
    if rank == 0:
        found = {"seconds": seconds, "processor_seconds": processor_seconds}
        slices.keep(_described(options.only, options.first, options) | found, options.append)
    gang.barrier()
    os._exit(0)


def _rounds(sides: Any, board: Any, gang: Any, options: argparse.Namespace) -> tuple[Times, Times]:
    """One block of every side, in random order, again and again."""
    order = random.Random(gang.follow(time.time_ns()))  # alike in all workers of a launch
    names = list(sides)
    clock: Times = {name: [] for name in names}
    processor: Times = {name: [] for name in names}
    length, calibrated = 1, False
    began = time.perf_counter()
    while True:
        order.shuffle(names)
        for name in names:
            with sides[name].around_block():
                sides[name].run(LEAD_IN)
                board.synchronize()
                gang.barrier()
                start, used = time.perf_counter(), time.process_time()
                sides[name].run(length)
                board.synchronize()
                own = [time.perf_counter() - start, time.process_time() - used]
            slowest = [max(column) / length for column in zip(*gang.gather(own), strict=True)]
            clock[name].append(slowest[0])
            processor[name].append(slowest[1])
        if not calibrated and len(clock["bare"]) == CALIBRATING_ROUNDS:
            calibrated = True
            typical = sorted(clock["bare"])[CALIBRATING_ROUNDS // 2]
            length = gang.follow(max(1, round(_block_seconds(options.only) / typical)))
            clock, processor = ({name: [] for name in names} for _ in range(2))
        late = gang.follow(time.perf_counter() - began > options.minutes * 60)
        if late and clock["bare"] and calibrated:
            return clock, processor


def _block_seconds(case: str) -> float:
    return LONG_BLOCK_SECONDS.get(case, BLOCK_SECONDS)


def _tell(launches: Sequence[dict[str, Any]]) -> None:
    for told in summaries(launches):
        print(json.dumps(told), flush=True)


def _key(one: dict[str, Any]) -> Key:
    """What is alike in launches that are told together; early ones did not note the processor."""
    return one["case"], one["peer"], one["block_seconds"], one.get("cpu")


def summaries(launches: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What every case cost in all its launches on a processor, alone and beside each peer."""
    keys = {_key(one) for one in launches}
    for key in sorted(keys, key=lambda key: tuple(part or "" for part in key)):
        yield _summary([one for one in launches if _key(one) == key])


def _summary(launches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One case: the engine, and the peer if there was one."""
    case, peer, block_seconds, cpu = _key(launches[0])
    ended = [one for one in launches if not one.get("died")]
    told: dict[str, Any] = {
        "case": case,
        "peer": peer,
        "block_seconds": block_seconds,
        "cpu": cpu,
        "launches": len(ended),
        "died": len(launches) - len(ended),
    }
    if not ended:
        return told
    bare = [one["seconds"]["bare"] for one in ended]
    told |= {
        "pairs": sum(len(rounds) for rounds in bare),
        "iteration_ms": round(1e3 * statistics.trimmed_mean([t for b in bare for t in b]), 2),
        "bound": BOUNDS[case],
        "engine": _cost(case, ended, ""),
        "engine_processor": _cost(case, ended, "processor_"),
    }
    if peer is not None:
        told |= {
            "tool": _interval(ended, peer, "bare", offset=1.0),
            "tool_processor": _interval(ended, peer, "bare", kind="processor_", offset=1.0),
            "engine_less_tool": _interval(ended, "engine", peer, offset=0.0),
            "engine_less_tool_processor": _interval(
                ended, "engine", peer, kind="processor_", offset=0.0
            ),
        }
    return told


def _cost(case: str, launches: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The engine over the bare loop, and whether that shows what is wanted."""
    ratio, low, high = _interval(launches, "engine", "bare", kind=kind, offset=1.0)
    return {
        "ratio": ratio,
        "low": low,
        "high": high,
        "passed": _shows(low, high, case, len(launches)),
    }


def _shows(low: float | None, high: float | None, case: str, launches: int) -> bool:
    """Whether an interval, of several launches, can tell anything and ends below the bound."""
    if launches < 2 or low is None or high is None:
        return False
    return (high - low) / 2 <= half_width_wanted(case) and high <= BOUNDS[case]


def half_width_wanted(case: str) -> float:
    """Wider intervals show nothing."""
    return HALF_WIDTHS.get(case, HALF_WIDTH)


def _interval(
    launches: Sequence[dict[str, Any]], side: str, less: str, *, kind: str = "", offset: float
) -> list[float | None]:
    """One side less another, over the bare loop's time; differences are taken within rounds.

    Every launch is one number. A launch that the machine disturbed is trimmed, as a round is.
    """
    parts = []
    for one in launches:
        times = one[f"{kind}seconds"]
        extra = [s - t for s, t in zip(times[side], times[less], strict=True)]
        parts.append(statistics.trimmed_mean(extra) / statistics.trimmed_mean(times["bare"]))
    found = statistics.estimate([parts])
    ends = (found.value, found.low, found.high)
    return [None if end is None else round(offset + end, 4) for end in ends]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--launches", type=int, default=24, help="per case")
    parser.add_argument("--minutes", type=float, default=6.0, help="per case, for all launches")
    parser.add_argument("--only", choices=tuple(BOUNDS))
    parser.add_argument("--peer", choices=PEERS, help="run the loop under this tool, too")
    parser.add_argument("--first", choices=("bare", "engine"), help=argparse.SUPPRESS)
    parser.add_argument("--append", type=Path, metavar="FILE", help="keep every block's time here")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="tell what is kept there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
