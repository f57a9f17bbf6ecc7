"""Does one profile stand for whole epochs? Full epochs timed by the clock against its intervals.

Profiles a workload over a small folder of pictures, then trains on the same folder under plain
torchrun, without Stash: one cold epoch (page cache emptied) and two warm ones, several times.

Epochs run in launches of their own, so the profile takes several launches too: only then does it
know how launches differ.

    python benchmarks/epochs.py [--images 2048] [--repeats 3] [--launches 4] [--minutes 3]
    python benchmarks/epochs.py --device emulated:v100:bytes=0.05:time=8    slower devices
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from children import end_with_us

from stash.engine import pagecache
from stash.hardware.machine import usable_cores
from stash.launch.api import measure
from stash.launch.request import Request
from stash.results.document import Interval
from stash.workloads.generate import cache_folder, generate_images

#: Loaders keep two cores busy beside it, so that epochs depend on who gets which core when.
DEVICE = "emulated:v100:bytes=0.05:time=4"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--launches", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--device", default=DEVICE)
    options = parser.parse_args()
    place = cache_folder()  # on a disk: temporary folders may lie in memory
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stash-epochs-", dir=place) as folder:
        data = generate_images(Path(folder) / "images", count=options.images)
        first, later = _profiled(data, Path(folder), options)
        inside = total = 0
        for repeat in range(options.repeats):
            seconds = _epochs(data, options.device)
            for name, value, interval in zip(
                ("cold", "warm", "warm"), seconds, (first, later, later), strict=True
            ):
                fits = interval.low <= value <= interval.high  # type: ignore[operator]
                inside, total = inside + fits, total + 1
                print(
                    f"repeat {repeat} {name}: {value:.2f} s by the clock, profile says "
                    f"{interval.estimate:.2f} ({interval.low:.2f} to {interval.high:.2f})"
                    f"{'' if fits else '  OUTSIDE'}",
                    flush=True,
                )
    print(json.dumps({"inside": inside, "epochs": total}))


def _profiled(data: Path, folder: Path, options: argparse.Namespace) -> tuple[Interval, Interval]:
    request = Request(
        workload="resnet18",
        data=data,
        nproc_per_node=2,
        num_workers=1,
        device=options.device,
        steps=("node", "warm", "cold"),
        half_width=0.01,
        max_minutes=options.minutes,
        launches=options.launches,
        out=folder / "profiles",
    )
    epoch = measure(request).profile.epoch
    assert epoch.first is not None and epoch.later is not None
    return epoch.first.seconds, epoch.later.seconds


def _epochs(data: Path, device: str) -> list[float]:
    """Seconds of a cold epoch and two warm ones, as rank 0 of a plain training run prints them."""
    pagecache.evict(path for path in data.rglob("*") if path.is_file())
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "stash.workloads.train", "resnet18"]
    command += ["--data", str(data), "--device", device, "--num-workers", "1", "--epochs", "3"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, usable_cores() // 2))}
    done = subprocess.run(
        command,
        check=True,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=end_with_us,
    )
    return [
        float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("epoch ")
    ]


if __name__ == "__main__":
    main()
