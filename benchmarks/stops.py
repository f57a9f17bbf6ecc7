"""Does an example ever hang? Each is stopped at a random round and started again, many times.

A stopped run must end by itself, with exit code 3, and keep every round that was complete.

    python benchmarks/stops.py [--times 20] [--most-rounds 10] [--only plain_ddp.py ...]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from children import end_with_us

from stash.results.profile import Profile

EXAMPLES = Path(__file__).parent.parent / "examples"
ARGUMENTS = {"imagenet_style.py": ["photos"]}
#: Longer than any of them needs to come to its rounds, and to end in order.
START_SECONDS = 180.0
PATIENCE_SECONDS = 60.0


def main() -> None:
    names = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "own_workload.py")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--most-rounds", type=int, default=10, help="before a stop")
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.only:
        chance = random.Random(f"{options.seed} {name}")
        with tempfile.TemporaryDirectory(prefix="st-") as folder:
            kept = [
                _stopped(
                    name, Path(folder), chance.randint(1, options.most_rounds), chance.random()
                )
                for _ in range(options.times)
            ]
        print(f"{name}: {len(kept)} stops, all with exit code 3, rounds kept {kept}", flush=True)


def _stopped(name: str, folder: Path, rounds: int, seconds: float) -> int:
    """Start it, let some rounds and a moment of the next pass, interrupt it; the rounds kept."""
    (run := Path(tempfile.mkdtemp(dir=folder)) / "run").mkdir()
    command = [sys.executable, "-m", "stash", "profile", str(EXAMPLES / name)]
    command += ["--nproc-per-node", "2", "--half-width", "0.00001%", "--out", str(run / "kept")]
    command += ["--", *ARGUMENTS.get(name, [])]
    environment = {**os.environ, "TMPDIR": str(run)}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=end_with_us,
    )
    try:
        _wait_for_rounds(process, run, rounds)
        time.sleep(seconds)
        seen = _rounds(run)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{name} hangs") from None
    finally:
        process.kill()
    if process.returncode != 3:
        raise SystemExit(f"{name} ended with {process.returncode}:\n{errors.decode()[-3000:]}")
    (path,) = (run / "kept").glob("*.json")
    kept = Profile.load(path).run.rounds
    if kept < seen:
        raise SystemExit(f"{name} had {seen} rounds and kept {kept}")
    return kept


def _wait_for_rounds(process: subprocess.Popen[bytes], run: Path, rounds: int) -> None:
    began = time.monotonic()
    while _rounds(run) < rounds:
        if process.poll() is not None or time.monotonic() - began > START_SECONDS:
            process.kill()
            raise SystemExit(f"No round was measured: {process.communicate()[1].decode()[-3000:]}")
        time.sleep(0.1)


def _rounds(run: Path) -> int:
    """Complete rounds so far, as the first worker has recorded them."""
    recordings = run.glob("stash-run-*/launch-*/recording.jsonl")
    return sum(path.read_bytes().count(b'"kind":"round"') for path in recordings)


if __name__ == "__main__":
    main()
