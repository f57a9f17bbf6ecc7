"""`stash profile` on several lab hosts at once: starts one command a host, and waits for them.

Used by the truth of the network, by the faults and by tests.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from children import end_with_us

from stash.lab.network import Host
from stash.launch.meeting import until
from stash.results.profile import Profile

PORT = 29400
#: Nothing may last longer after its --timeout than this: ending workers and writing the profile.
GRACE_SECONDS = 30.0


@dataclass
class Node:
    """The command on one host."""

    number: int
    host: Host
    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def output(self) -> str:
        """What it printed."""
        return (self.folder / "out.txt").read_text(errors="replace")

    @property
    def errors(self) -> str:
        """What it told of its progress, and of failures."""
        return (self.folder / "err.txt").read_text(errors="replace")

    def family(self) -> list[psutil.Process]:
        """The command and all that it has started."""
        with contextlib.suppress(psutil.Error):
            own = psutil.Process(self.process.pid)
            return [own, *own.children(recursive=True)]
        return []

    def rounds(self) -> int:
        """Complete rounds so far, as the first worker has recorded them."""
        recordings = list(self.folder.glob("stash-run-*/launch-*/recording.jsonl"))
        return sum(path.read_bytes().count(b'"kind":"round"') for path in recordings)

    def profile(self) -> Profile | None:
        """The profile that it has written, if any."""
        written = sorted(self.folder.glob("profiles/*.json"))
        return Profile.load(written[-1]) if written else None


def start(
    hosts: Sequence[Host],
    folder: Path,
    arguments: Sequence[object],
    *,
    endpoint: str | None = None,
    environments: Sequence[Mapping[str, str]] = (),
) -> list[Node]:
    """One command a host; temporary files of each lie in its own folder."""
    where = endpoint or f"{hosts[0].address}:{PORT}"
    nodes = []
    for number, host in enumerate(hosts):
        own = folder / f"node-{number}"
        own.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "stash", "profile", *map(str, arguments)]
        words += ["--nnodes", str(len(hosts)), "--node-rank", str(number)]
        words += ["--rdzv-endpoint", where, "--out", str(own / "profiles")]
        extra = environments[number] if environments else {}
        with (own / "out.txt").open("wb") as out, (own / "err.txt").open("wb") as err:
            process = subprocess.Popen(
                [*host.inside, *words],
                stdout=out,
                stderr=err,
                env={**os.environ, "TMPDIR": str(own), **extra},
                preexec_fn=end_with_us,
            )
        nodes.append(Node(number, host, process, own))
    return nodes


def wait(nodes: Sequence[Node], seconds: float) -> list[int | None]:
    """Exit codes; none for a command that still runs after so many seconds."""
    end = time.monotonic() + seconds
    codes: list[int | None] = []
    for node in nodes:
        try:
            codes.append(node.process.wait(max(0.0, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            codes.append(None)
    return codes


def measures(nodes: Sequence[Node], seconds: float = 150.0) -> bool:
    """Wait for the first complete round; whether there is one, and all still run."""
    until(lambda: nodes[0].rounds() > 0 or not all_run(nodes), seconds)
    return nodes[0].rounds() > 0 and all_run(nodes)


def all_run(nodes: Sequence[Node]) -> bool:
    """Whether no command has ended."""
    return all(node.process.poll() is None for node in nodes)


@contextlib.contextmanager
def running(
    hosts: Sequence[Host], folder: Path, arguments: Sequence[object], **options: object
) -> Iterator[list[Node]]:
    """The same, and whatever happens none of it is left."""
    nodes = start(hosts, folder, arguments, **options)  # type: ignore[arg-type]
    try:
        yield nodes
    finally:
        for node in nodes:
            for process in node.family():
                with contextlib.suppress(psutil.Error):
                    process.kill()
            node.process.wait()


def power_off(node: Node) -> None:
    """End a node at once, as a lost machine ends: no process of it says good-bye."""
    for process in node.family():
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
