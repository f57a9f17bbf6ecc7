"""Are links and disks of the lab as fast as their closed forms say? Root is needed.

Bytes are sent one way between two hosts, and read cold from a file, each several times; seconds and
bytes on the wire are divided by what the rate alone implies.

    python benchmarks/lab_rates.py [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from stash.engine import pagecache
from stash.lab import network, resources
from stash.lab.network import Host
from stash.workloads.generate import cache_folder

LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 5000)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    left = int(sys.argv[2])
    while left:
        left -= len(connection.recv(1 << 20))
    connection.sendall(b"k")
"""
SEND = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 5000)) as connection:
    began = time.perf_counter()
    connection.sendall(bytes(int(sys.argv[2])))
    connection.recv(1)
    print(time.perf_counter() - began)
"""
READ = """
import sys, time
began = time.perf_counter()
with open(sys.argv[1], "rb", buffering=0) as file:
    while file.read(1 << 20):
        pass
print(time.perf_counter() - began)
"""
LINKS = (("50mbit", 5_000_000), ("200mbit", 20_000_000), ("1gbit", 60_000_000))
DISKS = (("10MB/s", 10_000_000), ("40MB/s", 40_000_000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    for rate, size in LINKS:
        print(json.dumps(link_against_closed_form(rate, size, repeats)), flush=True)
    for rate, size in DISKS:
        print(json.dumps(disk_against_closed_form(rate, size, repeats)), flush=True)


def link_against_closed_form(rate: str, size: int, repeats: int) -> dict[str, object]:
    """Seconds and bytes on the wire over those that the rate and the headers imply."""
    with network.hosts(2, rate) as (first, second):
        link = first.link
        seconds = [send(first, second, size) for _ in range(repeats)]
        wire = first.sent_bytes() / repeats
    headers = (link.mtu + network.ETHERNET_HEADER) / (link.mtu - network.TCP_IP_HEADERS)
    return {
        "link": rate,
        "bytes": size,
        "seconds_over_closed_form": _spread([one * link.goodput / size for one in seconds]),
        "wire_bytes_over_closed_form": round(wire / (size * headers), 4),
    }


def disk_against_closed_form(rate: str, size: int, repeats: int) -> dict[str, object]:
    """Seconds of a cold read over those that the rate implies."""
    place = cache_folder()  # on a disk: temporary folders may lie in memory
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"lab-rates-{os.getpid()}"
    try:
        path.write_bytes(os.urandom(size))
        with resources.storage(place, rate) as disk:
            seconds = [read_cold(disk.inside, path) for _ in range(repeats)]
    finally:
        path.unlink(missing_ok=True)
    implied = size / (disk.limits.read_bytes_per_second or 0)
    ratios = [one / implied for one in seconds]
    return {"disk": rate, "bytes": size, "seconds_over_closed_form": _spread(ratios)}


def send(sender: Host, receiver: Host, size: int) -> float:
    """Seconds that so many bytes take from one host to another, until they are all there."""
    listen = [*receiver.inside, sys.executable, "-I", "-c", LISTEN, receiver.address, str(size)]
    with subprocess.Popen(listen, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None and listener.stdout.readline() == "ready\n"
        return _seconds(sender.inside, SEND, receiver.address, str(size))


def read_cold(inside: list[str], path: Path) -> float:
    """Seconds that a file takes which is not in memory."""
    pagecache.evict([path])
    return _seconds(inside, READ, str(path))


def _seconds(inside: list[str], program: str, *arguments: str) -> float:
    command = [*inside, sys.executable, "-I", "-c", program, *arguments]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def _spread(ratios: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(ratios), 4),
        "least": round(min(ratios), 4),
        "most": round(max(ratios), 4),
    }


if __name__ == "__main__":
    main()
