"""Are the intervals honest? Many short runs with a known stall, and with none.

Every run is a gang of its own on emulated devices. `prep` has a known size: the data set's delay,
less the part of it that hides under the device's optimizer step. `noise` is one step against
itself: its truth is zero. A second set of runs uses a stall of twice the *detectable* that the
first set stated.

    python benchmarks/coverage.py [--runs 100]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

from known_stall import DELAY

from stash.hardware.device_names import parse
from stash.launch.api import _run_launches
from stash.launch.nodes import Lead
from stash.launch.prepare import Prepared, prepare
from stash.launch.request import Request
from stash.results.assemble import Recording
from stash.results.estimates import Times
from stash.results.statistics import Estimate
from stash.results.steps import STALL_BY_NAME
from stash.workloads import zoo
from stash.workloads.emulated import Accelerator

DEVICE = "emulated:v100:bytes=0.001:time=0.5"
WORKLOAD = str(Path(__file__).with_name("known_stall.py")) + ":prep"
DELAY_SECONDS = 0.005


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()
    tail = Accelerator(parse(DEVICE), zoo.layers("resnet18", 32), "fp32").optimizer_seconds
    known = [_run(DELAY_SECONDS, tail, seed) for seed in range(options.runs)]
    detectable = statistics.mean(prep.detectable or 0.0 for prep, _ in known)
    # The exposed part is what must be twice the detectable.
    small = [_run(2 * detectable + tail, tail, 1000 + seed) for seed in range(options.runs)]
    truth = DELAY_SECONDS - tail
    print(
        json.dumps(
            {
                "runs": options.runs,
                "truth_ms": round(1e3 * truth, 3),
                "estimates_ms_mean": round(1e3 * statistics.mean(p.value for p, _ in known), 3),
                "half_width_ms_mean": round(
                    1e3 * statistics.mean(p.half_width or 0 for p, _ in known), 3
                ),
                "covered": sum(_covers(p, truth) for p, _ in known),
                "false_alarms": sum(noise.significant for _, noise in known),
                "false_alarms_small": sum(noise.significant for _, noise in small),
                "detectable_ms": round(1e3 * detectable, 4),
                "twice_detectable_found": sum(p.significant and p.value > 0 for p, _ in small),
                "twice_detectable_covered": sum(_covers(p, 2 * detectable) for p, _ in small),
            },
            indent=1,
        )
    )


def _covers(estimate: Estimate, truth: float) -> bool:
    assert estimate.low is not None and estimate.high is not None
    return estimate.low <= truth <= estimate.high


def _run(delay: float, tail: float, seed: int) -> tuple[Estimate, Estimate]:
    """Estimates of `prep` and `noise`; the device's tail hides a part of the delay."""
    os.environ[DELAY] = repr(delay)
    recording = Recording()
    with tempfile.TemporaryDirectory(prefix="stash-coverage-") as folder:
        failure, interrupted = _run_launches(
            _prepared(seed), Lead.alone(), None, Path(folder), recording, lambda events: None
        )
    if failure or interrupted:
        raise SystemExit(failure or "interrupted")
    times = Times.of(recording.rounds)
    prep, noise = (times.stall(STALL_BY_NAME[name]) for name in ("prep", "noise"))
    print(
        f"run {seed}: prep {1e3 * prep.value:.3f} ms +- {1e3 * (prep.half_width or 0):.3f}, "
        f"truth {1e3 * (delay - tail):.3f}; noise {1e3 * noise.value:+.3f} "
        f"+- {1e3 * (noise.half_width or 0):.3f}",
        flush=True,
    )
    return prep, noise


_PREPARED: list[Prepared] = []


def _prepared(seed: int) -> Prepared:
    if not _PREPARED:
        request = Request(
            workload=WORKLOAD,
            nproc_per_node=2,
            num_workers=0,
            device=DEVICE,
            steps=("node", "again", "warm"),
            max_rounds=20,
        )
        _PREPARED.append(prepare(request))
    first = _PREPARED[0]
    return Prepared(
        first.request,
        first.plan.model_copy(update={"seed": seed}),
        first.workers,
        first.script,
        first.found,
    )


if __name__ == "__main__":
    main()
