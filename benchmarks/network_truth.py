"""Is the network stall what the link's closed form says? Two lab hosts, five rates (root needed).

Emulated workers, two on each host, so `cluster` is one on each. Its exchange is a ring over the
link (2 (n-1)/n of the gradients each way), cut into PyTorch's buckets and overlapped with the
backward pass (recurrence.py); the link carries its rate less headers, and a known burst after a
pause. Nothing is fitted or probed.

    python benchmarks/network_truth.py [--models resnet50 vgg11] [--minutes 1] [--short] [--bursts]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lab_cluster
import load
from overlap import accelerator_of
from recurrence import LINK_BURST, exchange_stall, messages
from scipy import stats

from stash.lab.network import TCP_IP_HEADERS, Host, Link, hosts
from stash.results.estimates import Times
from stash.results.profile import Profile
from stash.results.steps import STALL_BY_NAME

MODELS = ("resnet50", "vgg11", "resnet18")
#: So few of the bytes that two cores carry them; a link with this part of a rate is its equal.
BYTE_SCALE = 0.02
DEVICE = f"emulated:v100:bytes={BYTE_SCALE:g}"
#: Equal to 4, 6, 10, 16 and 25 Gbit/s.
RATES = ("80mbit", "120mbit", "200mbit", "320mbit", "500mbit")
STEPS = "node,cluster"
#: Rounds of the small runs that one run is cut into, to see how often intervals hold the truth.
PART_ROUNDS = 8


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS[:2]))
    parser.add_argument("--rates", nargs="*", default=list(RATES))
    parser.add_argument("--minutes", type=float, default=1.0, help="for each model and rate")
    parser.add_argument("--short", action="store_true", help="one model, two rates")
    parser.add_argument("--bursts", action="store_true", help="load the machine in bursts")
    options = parser.parse_args()
    if options.short:
        options.models, options.rates, options.minutes = ["resnet50"], ["120mbit", "500mbit"], 0.5
    found = []
    for rate in options.rates:
        loaded = load.bursts() if options.bursts else contextlib.nullcontext()
        with loaded, hosts(2, rate, burst=LINK_BURST) as pair:
            for model in options.models:
                found.append(run_case(pair, model, rate, options.minutes))
                print(json.dumps(found[-1]), flush=True)
    print(json.dumps(summary(found)))


def run_case(pair: Sequence[Host], model: str, rate: str, minutes: float) -> dict[str, Any]:
    """Profile one model on two hosts; its network stall beside the closed form's."""
    truth = closed_form(pair[0].link, model)
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
        "closed_form_ms": round(1e3 * truth, 3),
        "measured_ms": [
            None if value is None else round(1e3 * value, 3)
            for value in (stall.estimate, stall.low, stall.high)
        ],
        "percent_of_node": round(profile.stalls["network"].percent.estimate, 1),
        "parts": parts(profile, truth),
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


def closed_form(link: Link, model: str) -> float:
    """Seconds of exchange across the link after overlap. Inside a host it has no bytes to wait for;
    what a message takes beside its bytes is the same in both, and is not in their difference."""
    device = accelerator_of(model, DEVICE)
    return exchange_stall(
        messages(device),
        device.backward_seconds,
        bytes_per_second=link.goodput,
        burst_seconds=link.burst_seconds,
    )


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The line through the rates of each model, and how often intervals held the truth."""
    result: dict[str, Any] = {
        "cases": len(found),
        "parts": sum(one["parts"][0] for one in found),
        "parts_that_hold": sum(one["parts"][1] for one in found),
        "wire_over_closed_form": [
            min(one["wire_over_closed_form"] for one in found),
            max(one["wire_over_closed_form"] for one in found),
        ],
    }
    for model in dict.fromkeys(one["model"] for one in found):
        own = [one for one in found if one["model"] == model]
        if len(own) > 2:
            result[model] = line_through(own)
    return result


def line_through(found: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Slope and intercept in percent of an iteration, each with half of its 95 % interval."""
    whole = found[0]["iteration_ms"]
    truth = [100 * one["closed_form_ms"] / whole for one in found]
    line = stats.linregress(truth, [100 * one["measured_ms"][0] / whole for one in found])
    quantile = float(stats.t.ppf(0.975, len(truth) - 2))
    return {
        "slope": [round(line.slope, 4), round(quantile * line.stderr, 4)],
        "intercept_percent": [
            round(line.intercept, 2),
            round(quantile * line.intercept_stderr, 2),
        ],
    }


if __name__ == "__main__":
    main()
