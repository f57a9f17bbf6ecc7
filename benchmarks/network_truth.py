"""Is the network stall what the link's closed form says? Two lab hosts, five rates (root needed).

Emulated workers, two on each host, so `cluster` is one on each. Its exchange is a ring over the
link (2 (n-1)/n of the gradients each way), cut into PyTorch's buckets and overlapped with the
backward pass (recurrence.py). Nothing is fitted. Two forms of it are told:

- *closed form*: the link carries its rate less headers, and every message costs a tiny all-reduce;
- *alone on the link*: each bucket costs what an all-reduce of its size takes there, alone.

The first is good to a percent or two of an iteration, which is more than intervals are wide here;
how often these hold the truth is told of the second.

    python benchmarks/network_truth.py [--models resnet50 vgg11] [--minutes 1] [--short]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lab_cluster
from overlap import TINY_BYTES, accelerator_of
from recurrence import Message, exchange_stall, messages
from scipy import stats

from stash.lab.network import TCP_IP_HEADERS, Host, Link, hosts
from stash.results.estimates import Times
from stash.results.profile import Profile
from stash.results.steps import STALL_BY_NAME

MODELS = ("resnet50", "vgg11", "resnet18")
#: So few of the bytes that two cores carry them; a link with this part of a rate is its equal.
BYTE_SCALE = 0.005
DEVICE = f"emulated:v100:bytes={BYTE_SCALE:g}"
#: Equal to 4, 6, 10, 16 and 25 Gbit/s.
RATES = ("20mbit", "30mbit", "50mbit", "80mbit", "125mbit")
STEPS = "node,cluster"
#: Rounds of the small runs that one run is cut into, to see how often intervals hold the truth.
PART_ROUNDS = 8
OVERLAP = Path(__file__).with_name("overlap.py")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS[:2]))
    parser.add_argument("--rates", nargs="*", default=list(RATES))
    parser.add_argument("--minutes", type=float, default=1.0, help="for each model and rate")
    parser.add_argument("--short", action="store_true", help="one model, two rates")
    options = parser.parse_args()
    if options.short:
        options.models, options.rates, options.minutes = ["resnet50"], ["30mbit", "125mbit"], 0.5
    found = []
    for rate in options.rates:
        with hosts(2, rate) as pair:
            for model in options.models:
                found.append(run_case(pair, model, rate, options.minutes))
                print(json.dumps(found[-1]), flush=True)
    print(json.dumps(summary(found)))


def run_case(pair: Sequence[Host], model: str, rate: str, minutes: float) -> dict[str, Any]:
    """Profile one model on two hosts; its network stall beside the closed form's."""
    forms = closed_forms(pair, model)
    arguments = [model, "--device", DEVICE, "--nproc-per-node", 2, "--steps", STEPS]
    arguments += ["--half-width", "0.01%", "--max-minutes", minutes, "--num-workers", 0]
    with (
        tempfile.TemporaryDirectory(prefix="stash-network-") as folder,
        lab_cluster.running(pair, Path(folder), arguments) as nodes,
    ):
        codes = lab_cluster.wait(nodes, 60 * minutes + 200)
        profile = nodes[0].profile()
        if any(codes) or profile is None:
            raise SystemExit(nodes[0].errors[-3000:] + nodes[1].errors[-3000:])
    stall = profile.stalls["network"].seconds_per_iteration
    return {
        "model": model,
        "rate": rate,
        "equal_to_gbit": pair[0].link.bits_per_second / BYTE_SCALE / 1e9,
        "rounds": profile.run.rounds,
        "iteration_ms": round(1e3 * profile.steps["node"].seconds_per_iteration.estimate, 2),
        "closed_form_ms": round(1e3 * forms.closed, 3),
        "alone_on_the_link_ms": round(1e3 * forms.alone, 3),
        "message_ms": forms.message_ms,
        "measured_ms": [
            None if value is None else round(1e3 * value, 3)
            for value in (stall.estimate, stall.low, stall.high)
        ],
        "percent_of_node": round(profile.stalls["network"].percent.estimate, 1),
        "parts": parts(profile, forms.alone),
        "wire_over_closed_form": round(wire_ratio(profile, pair[0].link.mtu), 4),
        "warnings": [check.name for check in profile.checks if check.status == "warn"],
    }


def parts(profile: Profile, truth: float) -> list[int]:
    """Of runs of a few rounds each, how many there are and how many intervals hold the truth."""
    rounds = profile.rounds()
    held = count = 0
    for start in range(0, len(rounds) - PART_ROUNDS + 1, PART_ROUNDS):
        found = Times.of(rounds[start : start + PART_ROUNDS]).stall(STALL_BY_NAME["network"])
        count += 1
        held += (
            found.low is not None and found.high is not None and found.low <= truth <= found.high
        )
    return [count, held]


def wire_ratio(profile: Profile, mtu: int) -> float:
    """Bytes that left node 0 in cluster blocks over 2 (n-1)/n of the gradients, headers included.

    Its other worker is held, so its loopback is quiet but for the barriers of a block.
    """
    blocks = profile.steps["cluster"].blocks
    sent = sum(block.disturbance.network_bytes for block in blocks)
    iterations = sum(block.iterations + block.lead_in_iterations for block in blocks)
    payload = BYTE_SCALE * profile.workload.gradient_bytes  # 2 (n-1)/n is one for two workers
    return sent / iterations / (payload * mtu / (mtu - TCP_IP_HEADERS))


@dataclass(frozen=True)
class Forms:
    """What the network stall should be, in seconds, and what it was made from."""

    closed: float
    alone: float
    message_ms: dict[str, list[float]]  # a tiny one, then the buckets


def closed_forms(pair: Sequence[Host], model: str) -> Forms:
    """Exchange across the link less exchange inside a host, both after overlap."""
    device = accelerator_of(model, DEVICE)
    sent, link = messages(device), pair[0].link
    sizes = [TINY_BYTES, *(message.bytes for message in sent)]
    across, inside = probe(pair, sizes), probe(pair[:1], sizes)

    def stall(messages: Sequence[Message], latency: float, to: Link | None) -> float:
        return exchange_stall(
            messages,
            device.backward_seconds,
            latency_seconds=latency,
            bytes_per_second=math.inf if to is None else to.goodput,
            burst_seconds=0.0 if to is None else to.burst_seconds,
        )

    def with_own(seconds: Sequence[float], rate: float) -> list[Message]:
        return [
            replace(message, latency_seconds=taken - message.bytes / rate)
            for message, taken in zip(sent, seconds, strict=True)
        ]

    return Forms(
        closed=stall(sent, across[0], link) - stall(sent, inside[0], None),
        alone=stall(with_own(across[1:], link.goodput), 0.0, link)
        - stall(with_own(inside[1:], math.inf), 0.0, None),
        message_ms={
            "across": [round(1e3 * one, 3) for one in across],
            "inside": [round(1e3 * one, 3) for one in inside],
        },
    )


def probe(pair: Sequence[Host], sizes: Sequence[int]) -> list[float]:
    """Seconds of an all-reduce of each size: between workers of two hosts, or of one."""
    workers = 2 // len(pair)
    commands = []
    for number, host in enumerate(pair):
        words = [*host.inside, sys.executable, "-m", "torch.distributed.run"]
        words += ["--nnodes", str(len(pair)), "--node-rank", str(number)]
        words += ["--nproc-per-node", str(workers), "--master-addr", pair[0].address]
        words += ["--master-port", "29500", str(OVERLAP), "--probe"]
        words += ["--probe-bytes", *map(str, sizes)]
        environment = {**os.environ, **host.environment, "OMP_NUM_THREADS": "1"}
        if len(pair) == 1:
            environment["GLOO_SOCKET_IFNAME"] = "lo"
        commands.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE))
    printed = [command.communicate()[0] for command in commands]
    return [float(line) for line in printed[0].decode().split()[-len(sizes) :]]


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The line through all cases for both forms, and how often intervals held the truth."""
    result: dict[str, Any] = {
        "cases": len(found),
        "parts": sum(one["parts"][0] for one in found),
        "parts_that_hold": sum(one["parts"][1] for one in found),
        "wire_over_closed_form": [
            min(one["wire_over_closed_form"] for one in found),
            max(one["wire_over_closed_form"] for one in found),
        ],
    }
    if len(found) > 2:
        measured = [one["measured_ms"][0] for one in found]
        for form in ("closed_form_ms", "alone_on_the_link_ms"):
            result[form] = line_through([one[form] for one in found], measured)
    return result


def line_through(truth: Sequence[float], measured: Sequence[float]) -> dict[str, list[float]]:
    """Slope and intercept, each with half of its 95 % interval."""
    line = stats.linregress(truth, measured)
    quantile = float(stats.t.ppf(0.975, len(truth) - 2))
    return {
        "slope": [round(line.slope, 4), round(quantile * line.stderr, 4)],
        "intercept_ms": [round(line.intercept, 3), round(quantile * line.intercept_stderr, 3)],
    }


if __name__ == "__main__":
    main()
