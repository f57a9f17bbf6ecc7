"""Parts of the predictor against other people's measurements: all-reduce times and layer times.

    python benchmarks/predictor_parts.py --data FOLDER

All-reduce: from NCCL's own latencies and the link by specification, as a bare collective (without
the efficiencies that were fitted to training). Layers: how the time of an iteration is spread over
the layers that have parameters; the device is not told, so both sides are scaled to the same sum.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from stash.hardware import gpus
from stash.predict import communication, compute, facts
from stash.predict.communication import Link, Links
from stash.predict.constants import FITTED, TRANSPORTS

#: A collective alone: the whole link, and nothing beside it.
BARE = replace(
    FITTED,
    bandwidth_efficiency=dict.fromkeys(TRANSPORTS, 1.0),
    latency_factor=1.0,
    message_seconds=0.0,
    pcie_sharing=0.0,
)
GBIT = 1e9 / 8
CARDS = (
    (r"a100", "a100-sxm4-40gb"),
    (r"h100", "h100-sxm5-80gb"),
    (r"h200", "h200-sxm-141gb"),
    (r"b200", "b200-sxm"),
    (r"v100", "v100-sxm2-32gb"),
)
#: Layers of these were measured by PipeDream's profiler; batch sizes follow from its activations.
PROFILED = {
    "alexnet": 256,
    "vgg16": 128,
    "resnet18": 256,
    "resnet50": 128,
    "resnet101": 64,
    "inception_v3": 128,
}


def all_reduce(data: Path) -> list[dict]:
    """Errors of all-reduce times by source: links told, messages of 64 KiB and up."""
    errors: dict[str, list[float]] = defaultdict(list)
    with (data / "links.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            setting = _setting(row)
            if setting is None:
                continue
            size, per_node, nodes, inside, between, seconds = setting
            links = Links.of([inside], [between], BARE)
            found = communication.all_reduce_seconds(
                np.array([size]), np.array([per_node]), np.array([nodes]), links, BARE
            )
            errors[row["source"]].append(100 * (float(found[0]) / seconds - 1))
    return [_line(f"all-reduce, {source}", values) for source, values in sorted(errors.items())]


def _setting(row: dict[str, str]) -> tuple | None:
    if row["op"] != "all_reduce" or row["metric"] not in ("time", "busbw"):
        return None
    if not row["message_bytes"].isdigit() or "early" in row["network"]:
        return None
    size, workers = float(row["message_bytes"]), float(row["total_gpus"] or 0)
    nodes = float(row["nodes"] or 1)
    if size < 65536 or workers < 2:
        return None
    inside = _inside(row, workers / nodes)
    between = _between(row["network"]) if nodes > 1 else None
    value = float(row["value"])
    if inside is None or (nodes > 1 and between is None) or value <= 0:
        return None
    moved = 2 * (workers - 1) / workers * size
    seconds = value * 1e-6 if row["metric"] == "time" else moved / (value * 1e9)
    return size, workers / nodes, nodes, inside, between, seconds


def _inside(row: dict[str, str], per_node: float) -> Link | None:
    kind = row["interconnect"].lower()
    if "pcie" in kind and "nvlink" not in kind:
        return Link("pcie", 12e9) if "3.0" in kind else None
    for pattern, key in CARDS:
        if re.search(pattern, row["gpu"].lower()) and "pair" not in kind and "bridge" not in kind:
            card = gpus.find(key)
            if "nvswitch" in kind:
                return communication.through_switch(card)
            return communication.inside(None, card, int(per_node))
    return None


def _between(text: str) -> Link | None:
    if "FDR" in text:
        return Link("rdma", 56 * GBIT)
    found = re.search(r"(\d+)x(\d+) Gbit", text) or re.search(r"()(\d+) Gbit", text)
    if found is None or "TCP" in text:
        return None
    return Link("rdma", int(found[1] or 1) * int(found[2]) * GBIT)


def layers(data: Path) -> list[dict]:
    """Errors of each layer's share of the time, weighted by that share."""
    measured: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    with (data / "layer_profiles.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["model"] in PROFILED and float(row["parameter_bytes"]) > 0:
                number = int(row["node"].removeprefix("node"))
                seconds = float(row["forward_ms"]) + float(row["backward_ms"])
                measured[row["model"]].append((number, float(row["parameter_bytes"]), seconds))
    return [_layer_line(model, sorted(rows)) for model, rows in sorted(measured.items())]


def _layer_line(model: str, rows: list[tuple[int, float, float]]) -> dict:
    known = facts.find(model)
    device = compute.devices([gpus.find("v100")], ["fp32"], FITTED)
    found = compute.layer_seconds(known, np.array([float(PROFILED[model])]), device, FITTED)
    seconds = (found.forward + found.backward)[0]
    ours: dict[int, list[float]] = defaultdict(list)
    sizes: dict[int, int] = defaultdict(int)
    for layer, elements in known.gradients:
        sizes[layer] += 4 * elements
    for layer, size in sizes.items():
        ours[size].append(float(seconds[layer]))
    theirs: dict[int, list[float]] = defaultdict(list)
    for _, size, milliseconds in rows:
        theirs[int(size)].append(milliseconds)
    # Layers with as many parameters are alike: both sides are added up over them.
    both = sorted(set(ours) & set(theirs))
    pairs = np.array([(sum(ours[size]), sum(theirs[size])) for size in both])
    shares = pairs / pairs.sum(0)
    return {
        "kind": f"layers, {model}",
        "rows": len(rows),
        "kinds_of_layers_matched": len(both),
        "share_misplaced_percent": round(50 * float(np.abs(shares[:, 0] - shares[:, 1]).sum()), 1),
    }


def _line(name: str, values: list[float]) -> dict:
    return {
        "kind": name,
        "rows": len(values),
        "median_error_percent": round(float(np.median(np.abs(values))), 1),
        "bias_percent": round(float(np.median(values)), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    for line in [*all_reduce(data), *layers(data)]:
        print(json.dumps(line))


if __name__ == "__main__":
    main()
