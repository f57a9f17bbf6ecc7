"""What a run on two lab hosts makes of faults at random moments (root needed).

Each fault must end in an error that names the node, or in a finished profile; nothing may hang
longer than --timeout, no process may be left, and no complete round may be lost.

    python benchmarks/faults.py [--times 10] [--only NAME ...] [--short]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import lab_cluster
from lab_cluster import GRACE_SECONDS, Node

from stash.lab import namespaces
from stash.lab.network import Host, hosts

TIMEOUT_SECONDS = 15
RATE = "200mbit"
ARGUMENTS = ("tinycnn", "--device", "emulated:v100:bytes=0.05:time=20", "--nproc-per-node", 1)
STEPS = ("--steps", "node,scaleout", "--num-workers", 0, "--timeout", TIMEOUT_SECONDS)
#: Once it measures, a run goes on for so long unless something ends it.
MEASURE_MINUTES = 0.25
START_SECONDS = 120.0
#: By then an earlier run's node knocks at the address.
STALE_SECONDS = 8.0

SHIFTED_CLOCK = "import time\nreal = time.time\ntime.time = lambda: real() + 3600.0\n"
OTHER_TORCH = """
from importlib import metadata
real = metadata.version
metadata.version = lambda name: "2.6.0" if name == "torch" else real(name)
"""
OTHER_STASH = "import stash\nstash.__version__ = '0.0.9'\n"


@dataclass
class Setting:
    """One run: its hosts, its folder, chance, and what was started beside it."""

    pair: Sequence[Host]
    folder: Path
    chance: random.Random
    beside: list[Node] = field(default_factory=list)

    def started_with(self, code: str) -> dict[str, str]:
        """An environment in which Python runs this first."""
        where = self.folder / "first"
        where.mkdir(exist_ok=True)
        (where / "sitecustomize.py").write_text(code)
        return {"PYTHONPATH": str(where)}

    def tool(self, *words: str) -> None:
        """`ip` or `tc` at the switch's end of the second host's link."""
        port = self.pair[1].port
        assert port is not None
        namespaces.inside(port[0], lambda: subprocess.run([*words], check=True))


def power_off(setting: Setting, nodes: list[Node]) -> None:
    lab_cluster.power_off(nodes[1])


def terminate(setting: Setting, nodes: list[Node]) -> None:
    nodes[1].process.terminate()


def cut_and_restore(setting: Setting, nodes: list[Node]) -> None:
    setting.tool("ip", "link", "set", "h1", "down")
    time.sleep(setting.chance.uniform(1.0, TIMEOUT_SECONDS / 2))
    setting.tool("ip", "link", "set", "h1", "up")


def cut(setting: Setting, nodes: list[Node]) -> None:
    setting.tool("ip", "link", "set", "h1", "down")


def slow_down(setting: Setting, nodes: list[Node]) -> None:
    rate = ["rate", "20mbit", "burst", "30000", "latency", "2s"]
    setting.tool("tc", "qdisc", "change", "dev", "h1", "root", "handle", "1:", "tbf", *rate)


def fill_disk(setting: Setting, nodes: list[Node]) -> None:
    with contextlib.suppress(OSError), (nodes[0].folder / "profiles" / "filler").open("wb") as file:
        while True:
            file.write(bytes(1 << 16))
            file.flush()


def second_run(setting: Setting, nodes: list[Node]) -> None:
    arguments = (*ARGUMENTS, *STEPS, "--max-rounds", 1)
    setting.beside += lab_cluster.start(setting.pair, setting.folder / "second", arguments)


def nothing(setting: Setting, nodes: list[Node]) -> None:
    """The fault is there from the start."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and what may come of it on node 0: exit codes and words."""

    act: Callable[[Setting, list[Node]], None]
    codes: tuple[int, ...]
    words: str = ""  # in the error, where the run fails
    first: str | None = None  # Python code that node 1 starts with
    port_taken: bool = False
    stale_node: bool = False  # of an earlier run, which still looks for its first node
    small_disk: bool = False
    measures: bool = True
    minutes: float = MEASURE_MINUTES


FAULTS = {
    "node killed": Fault(power_off, (1,), r"[Nn]ode 1 \("),
    "node preempted (SIGTERM)": Fault(terminate, (3,)),
    "link cut and restored": Fault(cut_and_restore, (0, 1), r"[Nn]ode 1 \("),
    "link cut": Fault(cut, (1,), r"[Nn]ode 1 \("),
    "link at a tenth": Fault(slow_down, (0,)),
    "clock wrong by an hour": Fault(nothing, (0,), first=SHIFTED_CLOCK),
    "disk of node 0 full": Fault(fill_disk, (0, 1), small_disk=True),
    "two profiles at once": Fault(second_run, (0,), minutes=1.0),
    "another torch": Fault(
        nothing, (1,), r"Node 1 \(.*\) has torch 2\.6\.0", first=OTHER_TORCH, measures=False
    ),
    "another Stash": Fault(
        nothing, (1,), r"Node 1 \(.*\) has stash 0\.0\.9", first=OTHER_STASH, measures=False
    ),
    "stale rendezvous": Fault(nothing, (0, 1), r"[Nn]ode 1 \(", stale_node=True, measures=False),
    "port taken": Fault(nothing, (1,), r"Something else uses", port_taken=True, measures=False),
}


@dataclass
class Outcome:
    """What came of one fault."""

    codes: list[int | None]
    seconds: float
    rounds_seen: int
    rounds_kept: int
    orphans: int
    words: str
    problems: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=list(FAULTS))
    parser.add_argument("--short", action="store_true", help="each fault once")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    total: dict[str, dict[str, int]] = {}
    for name in options.only:
        counts = {"runs": 0, "hangs": 0, "orphans": 0, "lost rounds": 0, "problems": 0}
        for _ in range(1 if options.short else options.times):
            outcome = run(FAULTS[name], chance)
            print(json.dumps({"fault": name, **outcome.__dict__}), flush=True)
            counts["runs"] += 1
            counts["hangs"] += None in outcome.codes
            counts["orphans"] += outcome.orphans
            counts["lost rounds"] += max(0, outcome.rounds_seen - outcome.rounds_kept)
            counts["problems"] += bool(outcome.problems)
        total[name] = counts
    print(json.dumps(total, indent=1))
    sys.exit(any(any(v for k, v in counts.items() if k != "runs") for counts in total.values()))


def run(fault: Fault, chance: random.Random) -> Outcome:
    """One run on fresh hosts, with one fault."""
    with (
        tempfile.TemporaryDirectory(prefix="st-") as name,
        hosts(2, RATE) as pair,
        _surroundings(fault, pair, Path(name)),
    ):
        setting = Setting(pair, Path(name), chance)
        extra = [{}, setting.started_with(fault.first) if fault.first else {}]
        arguments = (*ARGUMENTS, *STEPS, "--half-width", "0.0001%", "--max-minutes")
        with lab_cluster.running(
            pair, setting.folder, (*arguments, fault.minutes), environments=extra
        ) as nodes:
            return _outcome(fault, setting, nodes)


def _outcome(fault: Fault, setting: Setting, nodes: list[Node]) -> Outcome:
    seen = 0
    if fault.measures:
        lab_cluster.measures(nodes, START_SECONDS)
        time.sleep(setting.chance.uniform(0.0, 3.0))  # a random moment of a random round
        seen = nodes[0].rounds()
        fault.act(setting, nodes)
    began = time.monotonic()
    limit = 60 * fault.minutes + TIMEOUT_SECONDS + GRACE_SECONDS + START_SECONDS / 2
    everyone = [*nodes, *setting.beside]
    codes = lab_cluster.wait(everyone, limit)
    profile = nodes[0].profile() or _kept_elsewhere(nodes[0])
    kept = profile.run.rounds if profile else 0
    told = (profile.run.message if profile else "") + nodes[0].errors
    problems = [] if codes[0] in fault.codes else [f"node 0 ended with {codes[0]}"]
    if fault.words and codes[0] == 1 and not re.search(fault.words, told):
        problems.append("the error does not name it")
    if setting.beside and codes[2:] != [1, 1]:
        problems.append("the second run did not fail")
    time.sleep(1.0)
    left = sum(len(node.family()) for node in everyone if node.process.poll() is not None)
    with namespaces.held_open([host.namespace for host in setting.pair]) as identities:
        running = namespaces.members(identities) - {node.process.pid for node in everyone}
    orphans = left + (0 if None in codes else len(running) - fault.port_taken)
    return Outcome(
        codes,
        round(time.monotonic() - began, 1),
        seen,
        kept,
        orphans,
        _told(told),
        problems,
    )


def _told(text: str) -> str:
    """The first line that is no progress."""
    lines = [line for line in text.splitlines() if line.strip() and " so far" not in line]
    return next((line for line in lines if "[W" not in line), "")[:300]


def _kept_elsewhere(node: Node) -> object:
    from stash.results.profile import Profile

    kept = sorted(node.folder.glob("stash-run-*/*.json"))
    return Profile.load(kept[-1]) if kept else None


def _earlier_node(pair: Sequence[Host]) -> subprocess.Popen[bytes]:
    """Node 1 of a run whose node 0 is gone, and which asked for something else."""
    words = [sys.executable, "-m", "stash", "profile", *map(str, ARGUMENTS), "--batch-size", "7"]
    words += [*map(str, STEPS), "--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint"]
    words += [f"{pair[0].address}:{lab_cluster.PORT}"]
    return subprocess.Popen([*pair[1].inside, *words], stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def _surroundings(fault: Fault, pair: Sequence[Host], folder: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if fault.port_taken:
            words = [sys.executable, "-m", "http.server", str(lab_cluster.PORT), "--bind"]
            server = subprocess.Popen(
                [*pair[0].inside, *words, pair[0].address], stderr=subprocess.DEVNULL
            )
            stack.callback(server.wait)
            stack.callback(server.terminate)
        if fault.stale_node:
            earlier = _earlier_node(pair)
            stack.callback(earlier.wait)
            time.sleep(STALE_SECONDS)
        if fault.small_disk:
            disk = folder / "node-0" / "profiles"
            disk.mkdir(parents=True)
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=True
            )
            stack.callback(subprocess.run, ["umount", str(disk)], check=True)
        yield


if __name__ == "__main__":
    main()
