"""Does an example ever hang? Each is stopped at a random moment and started again, many times.

python benchmarks/stops.py [--times 20] [--only plain_ddp.py]
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
ARGUMENTS = {"imagenet_style.py": ["photos"]}
#: Longer than any of them needs to end in order.
PATIENCE_SECONDS = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    names = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "own_workload.py")
    for name in [options.only] if options.only else names:
        with tempfile.TemporaryDirectory(prefix="st-") as folder:
            codes = [_stopped(name, Path(folder), chance) for _ in range(options.times)]
        print(f"{name}: {len(codes)} stops, exit codes {sorted(set(codes))}", flush=True)


def _stopped(name: str, folder: Path, chance: random.Random) -> int:
    """Start it, let some rounds pass, interrupt it; it must end by itself, with exit code 3."""
    command = [sys.executable, "-m", "stash", "profile", str(EXAMPLES / name)]
    command += ["--nproc-per-node", "2", "--half-width", "0.00001%", "--", *ARGUMENTS.get(name, [])]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "round" in line:
            break
    time.sleep(chance.uniform(0.0, 3.0))
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise SystemExit(f"{name} hangs") from None
    if process.returncode != 3:
        raise SystemExit(f"{name} ended with {process.returncode}")
    return process.returncode


if __name__ == "__main__":
    main()
