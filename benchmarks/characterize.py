"""Both studies on this machine with short lists: killed on the way, resumed, every figure drawn.

    python benchmarks/characterize.py macro|micro --out FOLDER [--minutes 0.3]

The first run is killed (SIGKILL) as soon as its first cell is complete and the next one is under
way; the same command then goes on. Printed: seconds of each part, cells, figures, and whether the
cell from before the kill was kept as it was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
from children import end_with_us

DEVICE = "emulated:v100:bytes=0.05:time=4"
#: What a core prepares is measured here, model by model; storage is what Amazon documents for gp2.
LISTS = {
    "macro": [
        "--models", "shufflenet,resnet18,vgg11", "--batches", "32,64",
        "--num-workers", "1", "--storage-mb-per-second", "250",
    ],
    "micro": ["--depths", "10,50,11,16", "--repeats", "1"],
}  # fmt: skip
FIGURES = {"macro": range(4, 16), "micro": range(16, 17)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=sorted(LISTS))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=0.3)
    options = parser.parse_args()
    command = [sys.executable, "-m", "stash", "characterize", options.kind, *LISTS[options.kind]]
    command += ["--device", DEVICE, "--nproc-per-node", "2", "--instances", "paper"]
    command += ["--max-minutes", str(options.minutes), "--out", str(options.out)]
    started = time.monotonic()
    first = run_until_killed(command, options.out)
    killed_after = time.monotonic() - started
    before = first.read_bytes()
    done = subprocess.run(
        [*command, "--json"], stdout=subprocess.PIPE, check=False, preexec_fn=end_with_us
    )
    study = json.loads(done.stdout)
    names = {path.name for path in (options.out / "figures").iterdir()}
    wanted = list(FIGURES[options.kind])
    print(
        json.dumps(
            {
                "study": options.kind,
                "seconds_until_killed": round(killed_after),
                "seconds_in_all": round(time.monotonic() - started),
                "exit_code": done.returncode,
                "cells": count(study, "done"),
                "cells_measured_here": sum(c["machine"].startswith("here") for c in study["cells"]),
                "cells_that_do_not_fit": count(study, "does not fit"),
                "cells_failed": count(study, "failed"),
                "first_cell_kept": first.read_bytes() == before,
                "paper_figures": [
                    number
                    for number in wanted
                    if any(name.startswith(f"figure-{number:02d}-") for name in names)
                ],
                "figures_missing": [
                    number
                    for number in wanted
                    if not any(name.startswith(f"figure-{number:02d}-") for name in names)
                ],
                "files": len(names),
            }
        )
    )


def count(study: dict, status: str) -> int:
    return sum(cell["status"] == status for cell in study["cells"])


def run_until_killed(command: list[str], out: Path) -> Path:
    """Kill the study while its second cell is under way; its first cell's file."""
    study = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, start_new_session=True, preexec_fn=end_with_us
    )
    try:
        while study.poll() is None:
            found = sorted((out / "cells").glob("*.json"))
            if found and (out / "under-way").is_dir():
                return found[0]
            time.sleep(0.2)
        raise SystemExit("The study ended before it could be killed.")
    finally:
        if study.poll() is None:
            root = psutil.Process(study.pid)
            for process in (*root.children(recursive=True), root):
                process.kill()
            study.wait()


if __name__ == "__main__":
    main()
