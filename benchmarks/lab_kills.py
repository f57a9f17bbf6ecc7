"""Does the lab leave anything behind? Labs killed (-9) at random moments, then the next start.

Every run is a process that makes and removes labs over and over: hosts, throttled storage, and
processes inside both. It is killed at a random moment; then another process opens a lab once, and
everything that carries a lab's name, or was started in one, is looked for.

    python benchmarks/lab_kills.py [--runs 20] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from children import end_with_us

from stash.lab import cgroups, network, registry, resources
from stash.workloads.generate import cache_folder

SLEEP_SECONDS = 3600
WINDOW_SECONDS = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--victim", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.victim:
        make_and_remove_labs(options.victim)
    chance = random.Random(options.seed)
    found = [one_run(chance.uniform(0, WINDOW_SECONDS)) for _ in range(options.runs)]
    result = {
        "runs": options.runs,
        "killed_with_something_left": sum(any(before.values()) for before, _ in found),
        "left_by_kills": _sum([before for before, _ in found]),
        "left_after_next_start": _sum([after for _, after in found]),
    }
    print(json.dumps(result, indent=1))
    if not result["killed_with_something_left"]:
        sys.exit("No kill left anything, so nothing was shown.")
    sys.exit(any(result["left_after_next_start"].values()))


def one_run(seconds: float) -> tuple[dict[str, int], dict[str, int]]:
    """What a lab leaves that is killed after so many seconds: at once, and after the next start."""
    links = _links()
    mark = secrets.token_hex(8)
    victim = start_victim(mark)
    time.sleep(seconds)
    victim.kill()
    if victim.wait() != -signal.SIGKILL:
        sys.exit("What should have been killed had ended before; its words are above.")
    before = leftovers(victim.pid, mark, links)
    with network.hosts(1, "100mbit"):
        pass
    _wait_for_those_that_found_no_lab(mark)
    after = leftovers(victim.pid, mark, links)
    print(f"killed after {seconds:.3f} s: left {before}, after the next start {after}", flush=True)
    return before, after


def start_victim(mark: str) -> subprocess.Popen[str]:
    """A process that makes and removes labs until it is killed; returns when it has begun."""
    victim = subprocess.Popen(
        [sys.executable, __file__, "--victim", mark],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_us,
    )
    assert victim.stdout is not None and victim.stdout.readline() == "begun\n"
    return victim


def make_and_remove_labs(mark: str) -> None:
    """Hosts and storage, each with a process inside that would stay for an hour."""
    print("begun", flush=True)
    # The mark is a word of the command, so that the process can be found when its lab is gone.
    stay = ["sh", "-c", f"sleep {SLEEP_SECONDS} # {mark}"]
    place = cache_folder()  # on a disk: temporary folders may lie in memory
    place.mkdir(parents=True, exist_ok=True)
    while True:
        with (
            network.hosts(2, "100mbit") as hosts,
            resources.storage(place, "20MB/s", workers=2) as disk,
        ):
            for inside in (*(host.inside for host in hosts), disk.inside):
                subprocess.Popen([*inside, *stay])
            time.sleep(0.1)


def leftovers(pid: int, mark: str, links_before: set[str]) -> dict[str, int]:
    """How much there is of what a process made; labs carry the number of their maker."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "records": len(list(registry.ROOT.glob(f"{pid}-*"))),
        "namespaces": sum(f"{registry.ROOT}/{pid}-" in line for line in mounts),
        "groups": len(cgroups.folders_of(f"{pid}-*")),
        "processes": len(_processes_with(mark)),
        "links": len(_links() - links_before),
    }


def _wait_for_those_that_found_no_lab(mark: str) -> None:
    """A process that was about to enter a lab that is gone ends by itself, a moment later."""
    deadline = time.monotonic() + 5
    while _processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.02)


def _processes_with(mark: str) -> list[Path]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path] if mark.encode() in path.read_bytes() else []
        except OSError:
            continue  # it has ended
    return found


def _links() -> set[str]:
    """The links of the machine itself: a lab must never add one there."""
    return {path.name for path in Path("/sys/class/net").iterdir()}


def _sum(counts: list[dict[str, int]]) -> dict[str, int]:
    return {key: sum(one[key] for one in counts) for key in counts[0]}


if __name__ == "__main__":
    main()
