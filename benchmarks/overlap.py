"""Does an emulated gang stall on a slow link as the overlap recurrence says?

Runs emulated VGG11 and ResNet50 on a slow loopback of the lab (root needed). The link's bandwidth
is the rate asked for, less headers; its latency is that of a tiny all-reduce. With the layers'
costs and PyTorch's bucket rules the recurrence (recurrence.py) then gives the communication stall,
and nothing is fitted.

    python benchmarks/overlap.py [--rate 125mbit]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stash.lab.network import Host, Link, loopback

if TYPE_CHECKING:
    from stash.workloads.emulated import Accelerator

CASES = (("resnet50", 0.05), ("vgg11", 0.02), ("resnet18", 0.1))
#: All-reduces in a row: that workers leave a barrier one after the other then weighs little.
PROBE_CHAIN = 20
#: Chains are repeated for so long, as cores are slow for moments; there are so many at least.
PROBE_SECONDS, LEAST_CHAINS = 1.5, 3
TINY_BYTES = 64
#: Slowed down together with the link, so that a host's milliseconds weigh little beside a device's.
DEVICE = "emulated:v100:bytes={scale:g}:time=4"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", default="125mbit")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        _probe_worker()
        return
    with loopback(options.rate) as host:
        latency = probe(host)
        link = {
            "rate": options.rate,
            "latency_ms": round(1e3 * latency, 3),
            "bytes_per_second": round(host.link.goodput),
        }
        print(json.dumps(link), flush=True)
        for model, scale in CASES:
            found = run_case(host, model, scale, latency, options.minutes)
            print(json.dumps(found), flush=True)


def run_case(
    host: Host, model: str, scale: float, latency: float, minutes: float
) -> dict[str, Any]:
    """Profile one emulated model on the link; its communication stall beside the recurrence's."""
    device = DEVICE.format(scale=scale)
    predicted, buckets = predict(model, device, latency, host.link)
    with tempfile.TemporaryDirectory(prefix="stash-overlap-") as folder:
        command = [sys.executable, "-m", "stash", "profile", model, "--device", device]
        command += ["--nproc-per-node", "2", "--steps", "unsynced,node", "--half-width", "0.5%"]
        command += ["--max-minutes", str(minutes), "--out", folder, "--json"]
        done = subprocess.run(
            [*host.inside, *command], env=_environment(host), stdout=subprocess.PIPE
        )
        if done.returncode:
            raise SystemExit(done.stdout.decode()[-2000:])
    profile = json.loads(done.stdout)
    stall = profile["stalls"]["communication"]["seconds_per_iteration"]
    unsynced = profile["steps"]["unsynced"]["seconds_per_iteration"]["estimate"]
    return {
        "model": model,
        "byte_scale": scale,
        "buckets": buckets,
        "rounds": profile["run"]["rounds"],
        "iteration_ms": round(1e3 * unsynced, 1),
        "measured_ms": [round(1e3 * stall[key], 2) for key in ("estimate", "low", "high")],
        "recurrence_ms": round(1e3 * predicted, 2),
        "measured_over_recurrence": round(stall["estimate"] / predicted, 4),
        "warnings": [c["name"] for c in profile["checks"] if c["status"] == "warn"],
    }


def predict(model: str, device: str, latency: float, link: Link | None) -> tuple[float, int]:
    """The recurrence's communication stall in seconds, and the number of buckets.

    Without a link, messages cost their latency alone.
    """
    from recurrence import exchange_stall, messages

    accelerator = accelerator_of(model, device)
    sent = messages(accelerator)
    stall = exchange_stall(
        sent,
        accelerator.backward_seconds,
        latency_seconds=latency,
        bytes_per_second=math.inf if link is None else link.goodput,
        burst_seconds=0.0 if link is None else link.burst_seconds,
    )
    return stall, len(sent)


def accelerator_of(model: str, device: str) -> Accelerator:
    """The emulated device with a model of the zoo on it."""
    from stash.hardware.device_names import parse
    from stash.workloads import zoo
    from stash.workloads.emulated import Accelerator

    layers = zoo.layers(model, zoo.get(model).batch_size)
    return Accelerator(parse(device), layers, "fp32")


def probe(host: Host) -> float:
    """Seconds of an all-reduce of a few bytes: what every message costs beside its size."""
    command = [*host.inside, sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(Path(__file__).resolve()), "--probe"]
    done = subprocess.run(command, check=True, env=_environment(host), stdout=subprocess.PIPE)
    return float(done.stdout.decode().strip().splitlines()[-1])


def _probe_worker() -> None:
    """The first worker prints the seconds of a tiny all-reduce."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    seconds = _seconds_of_all_reduce()
    if dist.get_rank() == 0:
        print(seconds, flush=True)
    dist.barrier()
    dist.destroy_process_group()


def _seconds_of_all_reduce() -> float:
    import statistics

    import torch
    import torch.distributed as dist

    tensor, samples = torch.zeros(TINY_BYTES // 4), []
    began, over = time.perf_counter(), torch.zeros(1)
    while not over.item() or len(samples) < LEAST_CHAINS:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(PROBE_CHAIN):
            dist.all_reduce(tensor)
        samples.append((time.perf_counter() - start) / PROBE_CHAIN)
        over.fill_(time.perf_counter() - began > PROBE_SECONDS)
        dist.broadcast(over, src=0)
    return statistics.median(samples)


def _environment(host: Host) -> dict[str, str]:
    return {**os.environ, **host.environment, "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    main()
