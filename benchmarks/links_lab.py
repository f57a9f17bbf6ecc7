"""Does `stash links` find the bandwidth that a link of the lab has by its closed form? Root needed.

Two hosts of one worker each exchange messages over links of known rates. Every worker sends and
receives as many bytes as a message has, in both directions at once, so bus bandwidth is the link's
goodput and nothing is fitted to it.

    python benchmarks/links_lab.py [--rates 50mbit,200mbit,1gbit] [--rounds 20] [--short]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from stash.lab.network import Host, hosts
from stash.results.links import Links

PORT = 29500
MAX_BYTES = {"50mbit": 1 << 20, "200mbit": 4 << 20, "1gbit": 16 << 20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default=",".join(MAX_BYTES))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--short", action="store_true", help="one rate, five rounds")
    options = parser.parse_args()
    rates = ["200mbit"] if options.short else options.rates.split(",")
    for rate in rates:
        found = against_closed_form(rate, 5 if options.short else options.rounds)
        print(json.dumps(found), flush=True)


def against_closed_form(rate: str, rounds: int) -> dict[str, Any]:
    """Bus bandwidth, and bytes on the wire, over what the rate and the headers imply."""
    with hosts(2, rate) as pair, tempfile.TemporaryDirectory(prefix="stash-links-") as folder:
        found = probe(pair, Path(folder), rounds=rounds, max_bytes=MAX_BYTES.get(rate, 4 << 20))
        goodput = pair[0].link.goodput
    (between,) = found.all_reduce
    assert between.line is not None
    largest = between.messages[-1]
    return {
        "link": rate,
        "rounds": found.run.rounds,
        "goodput_mb_per_s": round(goodput / 1e6, 3),
        "line_over_goodput": _over(between.line.bus_bytes_per_second, goodput),
        "largest_message_bytes": largest.bytes,
        "largest_over_goodput": _over(largest.bus_bytes_per_second, goodput),
        "latency_ms": _over(between.line.latency_seconds, 1e-3),
        "line_off_by_percent": round(between.line.worst_misfit_percent, 1),
    }


def probe(
    pair: tuple[Host, ...], folder: Path, *, rounds: int, max_bytes: int, workers: int = 1
) -> Links:
    """`stash links` on both hosts at once; the document that the first one writes."""
    asked = ["--nproc-per-node", str(workers), "--rounds", str(rounds)]
    asked += ["--max-bytes", str(max_bytes), "--no-storage", "--out", str(folder)]
    running = [
        subprocess.Popen(
            [*host.inside, *command(pair, node), *asked],
            env={**os.environ, **host.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for node, host in enumerate(pair)
    ]
    told = [one.communicate(timeout=300)[0].decode() for one in running]
    if any(one.returncode for one in running):
        raise SystemExit("\n".join(told)[-4000:])
    (path,) = folder.glob("*.links.json")
    return Links.load(path)


def command(pair: tuple[Host, ...], node: int) -> list[str]:
    """`stash links` as one node among all."""
    words = [sys.executable, "-m", "stash", "links", "--nnodes", str(len(pair))]
    words += ["--node-rank", str(node), "--rdzv-endpoint", f"{pair[0].address}:{PORT}"]
    return words


def _over(value: Any, reference: float) -> list[float]:
    numbers = (value.estimate, value.low, value.high)
    return [round(number / reference, 4) for number in numbers if number is not None]


if __name__ == "__main__":
    main()
