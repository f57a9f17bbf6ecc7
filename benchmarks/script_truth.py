"""Does an unchanged script give its stalls back? Known ones go in from the lab (root needed).

Preparing takes a known time, files lie on a throttled disk, gradients cross a slow link; the
script (script_truth_train.py) knows nothing of Stash. What each stall must be follows from closed
forms, as in truth.py.

    python benchmarks/script_truth.py --out FOLDER [--kinds prep fetch communication] [--minutes 1]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from children import end_with_us
from truth_numbers import SLOPE_BAR, Result, fit_of, sweep_of
from truth_worlds import WORKERS, World, write_files

from stash.lab import network, resources

SCRIPT = Path(__file__).with_name("script_truth_train.py")
COMPUTE_SECONDS = 0.2
GRADIENT_BYTES = 1 << 19
#: A throttled disk answers at ticks of the kernel (4 ms); a batch takes a whole number of them.
AMOUNTS = (0.04, 0.10, 0.20, 0.50, 1.00)
STEPS = {
    "prep": "node,warm",
    "fetch": "node,warm,cold",
    "communication": "unsynced,node",
}
#: Workers go into their own group of the throttled disk before the script begins.
ENTER_GROUP = """\
import os
if "RANK" in os.environ:
    from stash.lab.resources import enter_own_group
    enter_own_group()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("script-truth-results"))
    parser.add_argument("--kinds", nargs="+", choices=tuple(STEPS), default=list(STEPS))
    parser.add_argument("--minutes", type=float, default=1.0, help="at most, for one profile")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for kind in options.kinds:
        for amount in AMOUNTS:
            path = options.out / f"{kind}-{100 * amount:g}.json"
            if not path.exists():
                result = run(kind, amount, options.minutes)
                path.write_text(json.dumps(result, indent=1))
                print(json.dumps(result), flush=True)
    results = [json.loads(path.read_text()) for path in sorted(options.out.glob("*.json"))]
    for kind in options.kinds:
        fit = fit_of(sweep_of(results, kind))
        met = abs(fit.slope - 1) <= SLOPE_BAR
        print(json.dumps({"kind": kind, **asdict(fit), "slope_met": met}))


def run(kind: str, amount: float, minutes: float) -> Result:
    """One profile of the script with one stall put in."""
    with (
        tempfile.TemporaryDirectory(prefix="stash-script-truth-") as name,
        _surroundings(kind, amount, Path(name)) as (inside, environment, flags, truth),
    ):
        command = [*inside, sys.executable, "-m", "stash", "profile", str(SCRIPT)]
        command += ["--nproc-per-node", str(WORKERS), "--steps", STEPS[kind]]
        command += ["--half-width", "0.5%", "--max-minutes", str(minutes)]
        command += ["--out", str(Path(name) / "profiles"), "--json", "--"]
        command += ["--compute-seconds", str(COMPUTE_SECONDS)]
        command += ["--gradient-bytes", str(GRADIENT_BYTES), *flags]
        began = time.time()
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            capture_output=True,
            preexec_fn=end_with_us,
        )
        if done.returncode:
            raise SystemExit(done.stderr.decode()[-3000:])
    profile: dict[str, Any] = json.loads(done.stdout)
    stall = profile["stalls"][kind]
    return {
        "kind": kind,
        "truth_seconds": {kind: truth},
        "measured": {kind: {**stall["seconds_per_iteration"], "significant": stall["significant"]}},
        "iteration_seconds": COMPUTE_SECONDS,
        "rounds": profile["run"]["rounds"],
        "stopped": profile["run"]["stopped_because"],
        "warnings": [check["name"] for check in profile["checks"] if check["status"] == "warn"],
        "created": profile["created"],
        "seconds": round(time.time() - began, 1),
    }


@contextlib.contextmanager
def _surroundings(
    kind: str, amount: float, folder: Path
) -> Iterator[tuple[list[str], dict[str, str], list[str], float]]:
    """Words in front of the command, environment, the script's flags, and the stall in seconds."""
    stall = amount * COMPUTE_SECONDS
    world = World(samples_per_batch=2)
    flags = ["--samples", str(world.samples), "--batch-size", str(world.samples_per_batch)]
    if kind == "prep":
        seconds = stall / world.samples_per_batch
        yield [], {}, [*flags, "--prepare-seconds", str(seconds)], stall
    elif kind == "fetch":
        read = COMPUTE_SECONDS + stall
        write_files(world, folder / "files")
        (folder / "sitecustomize.py").write_text(ENTER_GROUP)
        rate = f"{round(world.samples_per_batch * world.file_bytes / read)}B/s"
        with resources.storage(folder, rate, workers=WORKERS) as disk:
            environment = {**disk.environment, "PYTHONPATH": str(folder)}
            flags += ["--files", str(folder / "files"), "--workers", "1"]
            yield [], environment, flags, stall
    else:
        link = network.Link(bits_per_second=1e9, shared=True)
        # Goodput goes with the rate; a bucket's burst of two packets does not.
        rate = 1e9 * (GRADIENT_BYTES / stall) / link.goodput
        with network.loopback(f"{rate:.0f}bit") as host:
            exchange = GRADIENT_BYTES / host.link.goodput - host.link.burst_seconds
            yield host.inside, host.environment, flags, exchange


if __name__ == "__main__":
    main()
