"""Worlds in which the truth is known: machines, prices and what a job really takes on each.

A small simulator of its own: it steps through layers and messages one event at a time and shares no
code with the predictor. Every machine has an efficiency that no table tells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from stash.hardware import catalog
from stash.hardware.catalog import Instance

BUCKET_BYTES = 25 * 2**20
MACHINES, MAX_NODES = 40, 8
#: Spread of what tables do not tell, as a fraction: of the model, of a kind of GPU, of a machine,
#: of the links inside one, of its network; and of a profile's own reading.
COMMON, KIND, MACHINE, INSIDE, NETWORK, READING = 0.3, 0.15, 0.08, 0.2, 0.3, 0.02


@dataclass(frozen=True)
class Layer:
    """Work of one sample."""

    flops: float
    moved_bytes: float
    parameters: int
    convolution: bool


@dataclass(frozen=True)
class Hidden:
    """What one machine of a world is really like."""

    flops: float  # sustained by one GPU
    memory_bytes_per_second: float
    inside_bytes_per_second: float
    network_bytes_per_second: float


@dataclass(frozen=True)
class World:
    """Everything, with the truth."""

    number: int
    layers: tuple[Layer, ...]
    batch: int
    samples: int
    epochs: int
    machines: tuple[Instance, ...]
    hidden: tuple[Hidden, ...]
    launch_seconds: float  # what starting a layer takes
    contention: float  # how much slower layers are while gradients travel
    jitter: float  # by which iterations of single workers scatter

    def solo_seconds(self, machine: int) -> float:
        return sum(self._layer_seconds(machine)) * 3

    def iteration_seconds(self, machine: int, nodes: int) -> float:
        """One iteration, event by event: backward layers end, buckets fill, messages queue."""
        forward = self._layer_seconds(machine)
        one, true = self.machines[machine], self.hidden[machine]
        workers = one.gpus * nodes
        clock, link_free, filled = sum(forward), 0.0, 0
        for position in reversed(range(len(forward))):
            disturbed = 1 + self.contention if clock < link_free else 1.0
            clock += 2 * forward[position] * disturbed
            filled += 4 * self.layers[position].parameters
            if workers > 1 and (filled >= BUCKET_BYTES or position == 0):
                arrives = max(clock, link_free)
                link_free = arrives + self._travel_seconds(filled, true, one.gpus, nodes)
                filled = 0
        slowest = 1 + self.jitter * math.sqrt(2 * math.log(workers))
        return max(clock, link_free) * slowest

    def _layer_seconds(self, machine: int) -> list[float]:
        true = self.hidden[machine]
        return [
            math.hypot(
                self.batch * layer.flops / true.flops,
                self.batch * layer.moved_bytes / true.memory_bytes_per_second,
            )
            + self.launch_seconds
            for layer in self.layers
        ]

    @staticmethod
    def _travel_seconds(size: float, true: Hidden, gpus: int, nodes: int) -> float:
        """Reduce inside, ring across nodes, spread inside."""
        inside = 2 * (gpus - 1) / gpus * size / true.inside_bytes_per_second
        across = 2 * (nodes - 1) / nodes * size / true.network_bytes_per_second
        return inside + across + 2e-5 * (gpus - 1) + 6e-5 * (nodes - 1)

    def hours(self, machine: int, nodes: int, overhead_seconds: float) -> float:
        each = math.ceil(
            math.ceil(self.samples / (self.machines[machine].gpus * nodes)) / self.batch
        )
        training = self.epochs * each * self.iteration_seconds(machine, nodes)
        return (overhead_seconds + training) / 3600


def world(number: int) -> World:
    """The same number, the same world."""
    random = np.random.default_rng(20_000 + number)
    available = [
        one
        for one in catalog.instances()
        if one.accelerator is not None
        and one.gpus
        and one.accelerator.memory_bytes_per_second
        and one.accelerator.memory_bytes >= 15 * 2**30
        and one.price_usd_per_hour is not None
        and one.status == "available"
    ]
    chosen = random.choice(len(available), MACHINES, replace=False)
    machines = tuple(
        replace(one, price_usd_per_hour=one.price_usd_per_hour * math.exp(random.normal(0, 0.25)))
        for one in (available[position] for position in chosen)
    )
    layers = _layers(random)
    common = math.exp(random.normal(math.log(0.5), COMMON))
    kinds = {one.gpu: math.exp(random.normal(0, KIND)) for one in machines}
    hidden = tuple(_hidden(one, common * kinds[one.gpu], random) for one in machines)
    batch = int(random.choice([16, 32, 64]))
    flops = 3 * sum(layer.flops for layer in layers)
    samples = int(random.choice([50_000, 300_000, 1_281_167]))
    wanted_hours = math.exp(random.uniform(math.log(2), math.log(40)))  # on eight A100s or so
    epochs = max(1, round(wanted_hours * 3600 * 8 * 60e12 / (flops * samples)))
    launch = math.exp(random.normal(math.log(5e-5), 0.3))
    contention, jitter = random.uniform(0.1, 0.4), random.uniform(0.01, 0.05)
    return World(
        number, layers, batch, samples, epochs, machines, hidden, launch, contention, jitter
    )


def _layers(random: np.random.Generator) -> tuple[Layer, ...]:
    """A convolutional net that narrows, or a transformer with layers all alike."""
    count = int(random.integers(20, 90))
    flops = math.exp(random.uniform(math.log(4e9), math.log(4e10)))
    parameters = math.exp(random.uniform(math.log(1.2e7), math.log(2.5e8)))
    if random.random() < 0.6:
        work = random.uniform(0.5, 1.5, count)
        weights = np.linspace(0.05, 1.0, count) ** 2
        moved = np.linspace(1.0, 0.2, count)
        convolution = True
    else:
        work, weights, moved, convolution = np.ones(count), np.ones(count), np.ones(count), False
    traffic = flops / random.uniform(60, 150)
    return tuple(
        Layer(
            float(flops * w / work.sum()),
            float(traffic * m / moved.sum()),
            int(parameters * p / weights.sum()),
            convolution,
        )
        for w, p, m in zip(work, weights, moved, strict=True)
    )


def _hidden(one: Instance, efficiency: float, random: np.random.Generator) -> Hidden:
    gpu = one.accelerator
    assert gpu is not None
    efficiency *= math.exp(random.normal(0, MACHINE))
    fast = "sxm" in gpu.key and gpu.nvlink_bytes_per_second
    inside = (
        gpu.nvlink_bytes_per_second * 0.5 if fast else (gpu.pcie_bytes_per_second or 16e9) * 0.3
    )
    network = one.network_bytes_per_second or 1.25e9
    across = network * 0.4 if one.has_rdma else min(network, 1.25e9) * 0.6
    memory = gpu.memory_bytes_per_second
    assert memory is not None
    return Hidden(
        flops=gpu.flops["amp"] * efficiency,
        memory_bytes_per_second=memory * efficiency * 1.3,
        inside_bytes_per_second=inside * math.exp(random.normal(0, INSIDE)),
        network_bytes_per_second=across * math.exp(random.normal(0, NETWORK)),
    )
