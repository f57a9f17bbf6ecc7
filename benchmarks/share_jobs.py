"""What dividing loader workers gains on two real jobs that run at the same time.

Both jobs are profiled alone, with emulated devices and loaders of a known time. `stash.share`
divides loader workers between them; then both train at once, plainly and without Stash, with that
division and with an even one in turn. What counts is samples per second of both together.

    python benchmarks/share_jobs.py [--repeats 2] [--seconds 45]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from children import end_with_us
from truth_worlds import FACTORY, VARIABLE, World

import stash
from stash.results.profile import Profile

#: Loader workers that sleep need no core, so there may be more of them than this machine has cores.
LOADER_WORKERS = 8
EPOCH = re.compile(r"^epoch (\d+) seconds ([\d.]+)", re.MULTILINE)


@dataclass(frozen=True)
class Known:
    """A job of one worker."""

    name: str
    world: World


#: One waits for its loaders, the other for its device. Epochs are long enough for the start of one,
#: when the queue is empty, to weigh little.
SIZE = {"samples_per_batch": 8, "batches": 100}
JOBS = (
    Known("heavy", World(iteration_seconds=0.05, prepare_seconds=0.4, **SIZE)),
    Known("light", World(iteration_seconds=0.1, prepare_seconds=0.1, **SIZE)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=45.0, help="of training, each time")
    options = parser.parse_args()
    profiles = [profile(job) for job in JOBS]
    found = stash.share(*profiles, cores=LOADER_WORKERS + len(JOBS))
    best = [job.loader_workers_per_worker for job in found.jobs]
    even = [job.even_loader_workers_per_worker for job in found.jobs]
    measured: dict[str, list[float]] = {"even": [], "shared": []}
    for _ in range(options.repeats):
        for name, division in (("even", even), ("shared", best)):
            rates = together(division, options.seconds)
            measured[name].append(sum(rates))
            print(
                json.dumps(
                    {
                        "division": name,
                        "loader_workers": division,
                        "samples_per_second": [round(rate, 1) for rate in rates],
                    }
                ),
                flush=True,
            )
    print(
        json.dumps(
            {
                "predicted_gain_percent": round(found.gain_percent, 1),
                "predicted_samples_per_second": round(found.samples_per_second, 1),
                "measured_gain_percent": round(
                    100 * (mean(measured["shared"]) / mean(measured["even"]) - 1), 1
                ),
                **{name: [round(rate, 1) for rate in rates] for name, rates in measured.items()},
            }
        )
    )


def profile(job: Known) -> Profile:
    """The job alone, with two loader workers."""
    with tempfile.TemporaryDirectory(prefix="stash-share-") as folder:
        command = [sys.executable, "-m", "stash", "profile", FACTORY, "--device", job.world.device]
        command += ["--nproc-per-node", "1", "--num-workers", "2", "--steps", "node,warm"]
        command += ["--max-rounds", "6", "--out", folder, "--json"]
        done = subprocess.run(
            command,
            env=environment(job),
            capture_output=True,
            text=True,
            preexec_fn=end_with_us,
        )
    if done.returncode:
        raise SystemExit((done.stderr or done.stdout)[-2000:])
    return Profile.from_json(done.stdout)


def together(division: Sequence[int], seconds: float) -> list[float]:
    """Samples per second of each job while all of them train."""
    with tempfile.TemporaryDirectory(prefix="stash-share-") as folder:
        logs = [Path(folder) / job.name for job in JOBS]
        gangs = [
            start(job, loaders, log) for job, loaders, log in zip(JOBS, division, logs, strict=True)
        ]
        try:
            wait_for_epochs(gangs, logs, 1)  # the first one pays for the start
            time.sleep(seconds)
            # Both are still at it: an epoch counts when it ended before this moment.
            texts = [log.read_text() for log in logs]
        finally:
            for gang in gangs:
                os.killpg(gang.pid, signal.SIGTERM)
                gang.wait()
    return [rate(job, text) for job, text in zip(JOBS, texts, strict=True)]


def start(job: Known, loader_workers: int, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-u", "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "1", "-m", "stash.workloads.train", FACTORY]
    command += ["--device", job.world.device, "--num-workers", str(loader_workers)]
    with log.open("wb") as output:
        return subprocess.Popen(
            [*command, "--epochs", "100000"],
            env=environment(job),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_us,
        )


def wait_for_epochs(
    gangs: Sequence[subprocess.Popen[bytes]], logs: Sequence[Path], epochs: int
) -> None:
    while any(len(EPOCH.findall(log.read_text())) < epochs for log in logs):
        for gang, log in zip(gangs, logs, strict=True):
            if gang.poll() is not None:
                raise SystemExit(log.read_text()[-2000:])
        time.sleep(0.2)


def rate(job: Known, text: str) -> float:
    """Of all epochs but the first."""
    seconds = [float(found) for number, found in EPOCH.findall(text) if number != "0"]
    if not seconds:
        raise SystemExit(f"No epoch of {job.name} was complete: allow more --seconds.")
    return job.world.samples * len(seconds) / sum(seconds)


def environment(job: Known) -> dict[str, str]:
    return {**os.environ, VARIABLE: job.world.exported(), "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    main()
