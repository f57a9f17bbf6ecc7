"""Does the predictor foresee our own measurements? Fit on a few lab settings, predict the others.

Emulated gangs train over a loopback of known rate (root needed). The constants of communication
are fitted to two link rates and two world sizes; every other setting is predicted and then
compared. Bars: median error of the iteration time 5 %, worst 10 %.

    python benchmarks/predict_lab.py [--minutes 0.3] [--kept FILE] [--only-measured] [--short]

Measurements are appended to FILE, one line each, and those that are there are not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from stash.hardware.device_names import parse
from stash.predict.communication import BUCKET_BYTES, FIRST_BUCKET_BYTES, Link, Links, Message
from stash.predict.compute import LayerSeconds
from stash.predict.constants import FITTED, Constants
from stash.predict.times import iteration_seconds

#: (model, scale of its gradients): slowed down together with the link, so that a host's
#: milliseconds weigh little beside a device's.
MODELS = (("resnet50", 0.05), ("vgg11", 0.02), ("resnet18", 0.1))
DEVICE = "emulated:v100:bytes={scale:g}:time=4"
RATES = (60, 125, 250, 500)  # Mbit/s, of all workers together
WORLDS = (2, 3, 4)
FITTED_RATES, FITTED_WORLDS = (60, 250), (2, 4)
MEDIAN_BAR, WORST_BAR = 5.0, 10.0


@dataclass(frozen=True)
class Setting:
    """One gang on one link."""

    model: str
    scale: float
    rate: int
    world: int

    @property
    def key(self) -> str:
        return f"{self.model} {self.rate}mbit x{self.world}"

    @property
    def is_fitted(self) -> bool:
        return self.rate in FITTED_RATES and self.world in FITTED_WORLDS


def settings(models: tuple[tuple[str, float], ...] = MODELS) -> list[Setting]:
    return [
        Setting(model, scale, rate, world)
        for (model, scale), rate, world in itertools.product(models, RATES, WORLDS)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=0.3)
    parser.add_argument("--kept", type=Path, default=Path("predict-lab.jsonl"))
    parser.add_argument("--only-measured", action="store_true", help="measure nothing new")
    parser.add_argument("--most", type=int, help="measure at most so many settings now")
    parser.add_argument("--short", action="store_true", help="two models of three")
    options = parser.parse_args()
    measured = read(options.kept)
    if not options.only_measured:
        wanted = settings(MODELS[:2] if options.short else MODELS)
        missing = [one for one in wanted if one.key not in measured]
        for one in missing[: options.most]:
            measured[one.key] = measure(one, options.minutes)
            with options.kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"setting": one.key, **measured[one.key]}) + "\n")
    report(measured)


def read(path: Path) -> dict[str, dict]:
    if not path.is_file():
        return {}
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {record.pop("setting"): record for record in records}


def measure(one: Setting, minutes: float) -> dict:
    """Profile one gang on its link: seconds of a worker alone, and of all together."""
    from stash.lab import network

    # One bucket carries what all workers send; the lab's rate is that of the whole loopback.
    with network.loopback(f"{one.rate}mbit") as host, tempfile.TemporaryDirectory() as folder:
        command = [*host.inside, sys.executable, "-m", "stash", "profile", one.model]
        command += ["--device", DEVICE.format(scale=one.scale), "--nproc-per-node", str(one.world)]
        command += ["--steps", "solo,node", "--half-width", "1%", "--max-minutes", str(minutes)]
        environment = {**os.environ, **host.environment, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, "--out", folder, "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            check=False,
        )
    if done.returncode:
        raise SystemExit(done.stdout.decode()[-2000:])
    steps = json.loads(done.stdout)["steps"]
    seconds = {name: steps[name]["seconds_per_iteration"]["estimate"] for name in ("solo", "node")}
    return {**seconds, "goodput": host.link.goodput * 2}


def report(measured: dict[str, dict]) -> None:
    known = [one for one in settings() if one.key in measured]
    to_fit = [one for one in known if one.is_fitted]
    to_predict = [one for one in known if not one.is_fitted]
    if not to_fit or not to_predict:
        print(f"{len(known)} of {len(settings())} settings are measured; both kinds are needed.")
        return
    constants = fit(to_fit, measured)
    errors = []
    for one in to_predict:
        found = predicted(one, measured[one.key], constants)
        error = 100 * (found / measured[one.key]["node"] - 1)
        errors.append(abs(error))
        print(
            json.dumps(
                {
                    "setting": one.key,
                    "node_ms": round(1e3 * measured[one.key]["node"], 1),
                    "predicted_ms": round(1e3 * found, 1),
                    "error_percent": round(error, 1),
                }
            )
        )
    median, worst = float(np.median(errors)), max(errors)
    print(
        json.dumps(
            {
                "settings_fitted": len(to_fit),
                "settings_predicted": len(errors),
                "median_error_percent": round(median, 1),
                "worst_error_percent": round(worst, 1),
                "met": median <= MEDIAN_BAR and worst <= WORST_BAR,
            }
        )
    )


def fit(chosen: list[Setting], measured: dict[str, dict]) -> Constants:
    """Bandwidth, cost of a message and of a hop, and scatter of this machine."""

    def constants(x: np.ndarray) -> Constants:
        efficiency = {**FITTED.bandwidth_efficiency, "tcp": float(x[0])}
        return replace(
            FITTED,
            bandwidth_efficiency=efficiency,
            message_seconds=float(x[1]),
            latency_factor=float(x[2]),
            straggling=float(x[3]),
            sharing=0.0,
            contention=0.0,
        )

    def residuals(x: np.ndarray) -> list[float]:
        return [
            float(
                np.log(predicted(one, measured[one.key], constants(x)) / measured[one.key]["node"])
            )
            for one in chosen
        ]

    found = least_squares(
        residuals,
        [0.95, 1e-3, 5.0, 0.01],
        loss="soft_l1",
        f_scale=0.02,
        bounds=([0.3, 0.0, 0.0, 0.0], [1.2, 0.05, 500.0, 0.2]),
        x_scale=[0.1, 1e-3, 10.0, 0.01],
    )
    return constants(found.x)


def predicted(one: Setting, measured: dict, constants: Constants) -> float:
    layers, sent = emulated(one.model, one.scale)
    layers = layers.scaled(np.array([measured["solo"]]) / layers.whole)
    link = Link("tcp", measured["goodput"] / one.world)
    # Workers are hops of a network, whatever host they are on.
    links = Links.of([link], [link], constants)
    seconds = iteration_seconds(
        layers, sent, np.array([float(one.world)]), np.array([1.0]), links, constants
    )
    return float(seconds.together[0])


@cache
def emulated(model: str, scale: float) -> tuple[LayerSeconds, list[Message]]:
    """The layers of the emulated device, and its messages: bucket sizes are scaled like bytes."""
    from stash.workloads import zoo
    from stash.workloads.emulated import Accelerator

    device = Accelerator(
        parse(DEVICE.format(scale=scale)),
        zoo.layers(model, zoo.get(model).batch_size),
        "fp32",
    )
    forward = np.array([[layer.forward_seconds for layer in device.layers]])
    backward = np.array([[layer.backward_seconds for layer in device.layers]])
    sent, size, limit = [], 0, FIRST_BUCKET_BYTES * scale
    for position in reversed(range(len(device.layers))):
        for elements in device.layers[position].gradient_elements:
            size += elements
            if 4 * size >= limit:
                sent.append(Message(size, position))
                size, limit = 0, BUCKET_BYTES * scale
    if size:
        sent.append(Message(size, 0))
    return LayerSeconds(forward, backward, np.array([device.optimizer_seconds])), sent


if __name__ == "__main__":
    main()
