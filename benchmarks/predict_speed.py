"""How fast is a prediction? Configurations a second on one core, and a first prediction from cold.

python benchmarks/predict_speed.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402 - after the number of threads

from stash.hardware import catalog, topologies  # noqa: E402
from stash.predict import communication, compute, facts, times  # noqa: E402
from stash.predict.communication import Links  # noqa: E402
from stash.predict.constants import FITTED  # noqa: E402

NODES = (1, 2, 4, 8)
BATCHES = (8, 16, 32, 64, 96, 128, 192, 256)
REPEATS = 5


def main() -> None:
    for model in ("resnet50", "vgg16", "bert-large"):
        count, seconds = configurations(model)
        print(
            json.dumps(
                {
                    "model": model,
                    "configurations": count,
                    "configurations_per_second": round(count / seconds),
                }
            )
        )
    print(json.dumps({"first_prediction_seconds": round(first_prediction(), 2)}))


def configurations(model: str) -> tuple[int, float]:
    """Every machine of the catalog at every number of nodes and batch; the best of a few runs."""
    known = facts.find(model)
    machines = [
        one
        for one in catalog.instances()
        if one.accelerator and one.accelerator.memory_bytes_per_second
    ]
    rows = [
        (one, n, b)
        for one in machines
        for n in NODES
        for b in BATCHES
        if n == 1 or communication.between(one) is not None
    ]
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        predict_all(known, rows)
        best = min(best, time.perf_counter() - start)
    return len(rows), best


def predict_all(known: facts.ModelFacts, rows: list) -> np.ndarray:
    gpus = [one.accelerator for one, _, _ in rows]
    device = compute.devices(gpus, ["amp"] * len(rows), FITTED)
    layers = compute.layer_seconds(known, np.array([float(b) for *_, b in rows]), device, FITTED)
    inside = [
        communication.inside(topologies.find(one.topology) if one.topology else None, gpu, one.gpus)
        for (one, _, _), gpu in zip(rows, gpus, strict=True)
    ]
    between = [communication.between(one) if n > 1 else None for one, n, _ in rows]
    return times.iteration_seconds(
        layers,
        communication.messages(known),
        np.array([float(one.gpus) for one, _, _ in rows]),
        np.array([float(n) for _, n, _ in rows]),
        Links.of(inside, between, FITTED),
        FITTED,
    ).together


def first_prediction() -> float:
    """From the start of the command to its answer."""
    command = [sys.executable, "-m", "stash", "predict", "resnet50", "--instance", "p3.16xlarge"]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
