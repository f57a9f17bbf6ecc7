"""Sixteen emulated workers on four lab hosts: a profile with all stalls (root needed).

Bytes and durations are scaled so that two cores carry it; the check of CPU headroom says whether
they did.

    python benchmarks/sixteen_workers.py [--rate 100mbit] [--minutes 10]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import lab_cluster

from stash.lab.network import hosts

HOSTS, WORKERS = 4, 4
#: Four pictures a worker and iteration, so that decoding them leaves cores free.
WORKLOAD = ("resnet18", "--batch-size", 4, "--device", "emulated:v100:bytes=0.002:time=150")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    arguments = (*WORKLOAD, "--nproc-per-node", WORKERS, "--num-workers", 1)
    arguments += ("--max-minutes", options.minutes)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="st-") as folder,
        hosts(HOSTS, options.rate) as four,
        lab_cluster.running(four, Path(folder), arguments) as nodes,
    ):
        codes = lab_cluster.wait(nodes, 60 * options.minutes + 300)
        profile = nodes[0].profile()
        if any(codes) or profile is None:
            raise SystemExit("\n".join(node.errors[-2000:] for node in nodes))
    found = {
        "seconds": round(time.monotonic() - began),
        "rounds": profile.run.rounds,
        "stopped_because": profile.run.stopped_because,
        "half_width_percent": round(100 * (profile.run.half_width_reached or 0), 2),
        "steps_ms": {
            name: round(1e3 * step.seconds_per_iteration.estimate, 1)
            for name, step in profile.steps.items()
        },
        "stalls_ms": {
            name: [
                None if value is None else round(1e3 * value, 1)
                for value in (
                    stall.seconds_per_iteration.estimate,
                    stall.seconds_per_iteration.low,
                    stall.seconds_per_iteration.high,
                )
            ]
            for name, stall in profile.stalls.items()
        },
        "checks": {check.name: check.status for check in profile.checks},
        "headroom": next(c.message for c in profile.checks if c.name == "emulation headroom"),
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
