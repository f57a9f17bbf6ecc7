"""Does an emulated gang stall on a slow link as the overlap recurrence says?

Runs emulated VGG11 and ResNet50 in a network namespace whose loopback is slowed by a token bucket
(root needed). The link's bandwidth is the token bucket's, less headers; its latency is that of a
tiny all-reduce. With the layers' costs and PyTorch's bucket rules the recurrence (recurrence.py)
then gives the communication stall, and nothing is fitted.

    python benchmarks/overlap.py [--rate 125mbit]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CASES = (("resnet50", 0.05), ("vgg11", 0.02), ("resnet18", 0.1))
#: Slowed down together with the link, so that a host's milliseconds weigh little beside a device's.
DEVICE = "emulated:v100:bytes={scale:g}:time=4"
MTU = 9000
TCP_IP_HEADERS = 52  # with time stamps
ETHERNET_HEADER = 14


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", default="125mbit")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        _probe_worker()
        return
    if os.geteuid() != 0:
        raise SystemExit("A slow link needs root: run as root, or leave this benchmark out.")
    with slow_link(options.rate) as inside:
        latency, bandwidth = probe(inside), goodput(options.rate)
        link = {
            "rate": options.rate,
            "latency_ms": round(1e3 * latency, 3),
            "bytes_per_second": round(bandwidth),
        }
        print(json.dumps(link), flush=True)
        for model, scale in CASES:
            found = run_case(inside, model, scale, latency, bandwidth, options.minutes)
            print(json.dumps(found), flush=True)


@contextlib.contextmanager
def slow_link(rate: str) -> Iterator[list[str]]:
    """A network namespace of our own with a slow loopback; gives the words to run inside it."""
    name = f"stash-overlap-{os.getpid()}"
    _run("ip", "netns", "add", name)
    try:
        _run("ip", "-n", name, "link", "set", "lo", "up", "mtu", str(MTU))
        shape = f"qdisc add dev lo root tbf rate {rate} burst 16kb latency 2s"
        _run("tc", "-n", name, *shape.split())
        yield ["ip", "netns", "exec", name]
    finally:
        _run("ip", "netns", "delete", name)


def run_case(
    inside: list[str], model: str, scale: float, latency: float, bandwidth: float, minutes: float
) -> dict[str, Any]:
    """Profile one emulated model on the link; its communication stall beside the recurrence's."""
    device = DEVICE.format(scale=scale)
    predicted, buckets = predict(model, device, latency, bandwidth)
    with tempfile.TemporaryDirectory(prefix="stash-overlap-") as folder:
        command = [sys.executable, "-m", "stash", "profile", model, "--device", device]
        command += ["--nproc-per-node", "2", "--steps", "unsynced,node", "--half-width", "0.5%"]
        command += ["--max-minutes", str(minutes), "--out", folder, "--json"]
        done = subprocess.run([*inside, *command], env=_environment(), stdout=subprocess.PIPE)
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


def predict(model: str, device: str, latency: float, bytes_per_second: float) -> tuple[float, int]:
    """The recurrence's communication stall in seconds, and the number of buckets."""
    from recurrence import exchange_stall, messages

    from stash.hardware.device_names import parse
    from stash.workloads import zoo
    from stash.workloads.emulated import Accelerator

    layers = zoo.layers(model, zoo.get(model).batch_size)
    accelerator = Accelerator(parse(device), layers, "fp32")
    sent = messages(accelerator)
    stall = exchange_stall(
        sent,
        accelerator.backward_seconds,
        latency_seconds=latency,
        bytes_per_second=bytes_per_second,
    )
    return stall, len(sent)


def goodput(rate: str) -> float:
    """Bytes per second of an all-reduce between two workers, from the token bucket's rate alone.

    Both directions share the loopback, and headers and acknowledgements share the bucket.
    """
    bits_per_second = float(rate.removesuffix("mbit")) * 1e6
    payload = MTU - TCP_IP_HEADERS
    sent = MTU + ETHERNET_HEADER + (TCP_IP_HEADERS + ETHERNET_HEADER) / 2  # an ACK every second
    return bits_per_second / 8 / 2 * payload / sent


def probe(inside: list[str]) -> float:
    """Seconds of an all-reduce of a few bytes: what every message costs beside its size."""
    command = [*inside, sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(Path(__file__).resolve()), "--probe"]
    done = subprocess.run(command, check=True, env=_environment(), stdout=subprocess.PIPE)
    return float(done.stdout.decode().strip().splitlines()[-1])


def _probe_worker() -> None:
    import statistics

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    tensor, samples = torch.zeros(16), []
    for _ in range(100):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        samples.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        print(statistics.median(samples), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def _environment() -> dict[str, str]:
    return {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
