"""How long each layer computes: a roofline per layer, times efficiencies that were calibrated.

Changes when the model of compute does. All functions take many configurations at once: arrays
have one row a configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stash.errors import UsageError
from stash.hardware.gpus import Gpu
from stash.predict.constants import Constants
from stash.predict.facts import Array, ModelFacts

#: Arithmetic and traffic of the backward pass over the forward pass: inputs, then weights.
BACKWARD_OVER_FORWARD = 2.0
#: What an optimizer reads and writes, in passes over the parameters.
OPTIMIZER_PASSES = {"SGD": 5, "AdamW": 7, "Adam": 7}
#: How precisions are named, and what they mean: rates of convolutions and of other arithmetic,
#: and the size of what is moved. PyTorch computes convolutions of `fp32` in TF32 where it can.
DTYPES = {
    "fp32": ("tf32", "fp32", 1.0),
    "tf32": ("tf32", "tf32", 1.0),
    "amp": ("amp", "amp", 0.5),
    "bf16": ("amp", "amp", 0.5),
}


@dataclass(frozen=True, eq=False)
class Devices:
    """The accelerators of many configurations, after efficiencies."""

    convolution_flops: Array  # [configurations]
    other_flops: Array
    memory_bytes_per_second: Array
    relative_size: Array  # of what is moved, against fp32

    def __len__(self) -> int:
        return len(self.other_flops)


@dataclass(frozen=True, eq=False)
class LayerSeconds:
    """One iteration of one worker alone, without data and without exchange."""

    forward: Array  # [configurations, layers]
    backward: Array
    optimizer: Array  # [configurations]

    @property
    def whole(self) -> Array:
        total: Array = self.forward.sum(1) + self.backward.sum(1) + self.optimizer
        return total

    def scaled(self, factor: Array) -> LayerSeconds:
        """All of it slower or faster, as a measurement of the whole says."""
        column = factor[:, None]
        return LayerSeconds(self.forward * column, self.backward * column, self.optimizer * factor)


def devices(gpus: Sequence[Gpu], dtypes: Sequence[str], constants: Constants) -> Devices:
    """What GPUs sustain in a precision."""
    rates = [_rates(gpu, dtype, constants) for gpu, dtype in zip(gpus, dtypes, strict=True)]
    columns = np.array(rates, dtype=float).reshape(len(rates), 4).T
    return Devices(*columns)


def layer_seconds(
    facts: ModelFacts, batch: Array, device: Devices, constants: Constants
) -> LayerSeconds:
    """Every layer in every configuration."""
    flops = facts.flops[0] + np.outer(batch, facts.flops[1])
    moved = (facts.bytes[0] + np.outer(batch, facts.bytes[1])) * device.relative_size[:, None]
    rate = np.where(
        facts.convolution, device.convolution_flops[:, None], device.other_flops[:, None]
    )
    arithmetic = flops / rate
    traffic = moved / device.memory_bytes_per_second[:, None]
    forward = np.maximum(np.maximum(arithmetic, traffic), constants.layer_seconds)
    backward = BACKWARD_OVER_FORWARD * forward
    passes = OPTIMIZER_PASSES.get(facts.optimizer, 7)
    optimizer = passes * 4 * facts.parameters / device.memory_bytes_per_second
    return LayerSeconds(forward, backward, optimizer + constants.iteration_seconds)


def check_dtype(dtype: str) -> None:
    """Refuse a precision that nothing is known of."""
    if dtype not in DTYPES:
        raise UsageError(f"Unknown precision {dtype!r}; there are {', '.join(DTYPES)}.")


def _rates(gpu: Gpu, dtype: str, constants: Constants) -> tuple[float, float, float, float]:
    check_dtype(dtype)
    convolution, other, size = DTYPES[dtype]
    if gpu.memory_bytes_per_second is None:
        raise UsageError(
            f"The GPU table has no memory bandwidth for {gpu.name}, so it cannot be predicted."
        )
    return (
        _effective_flops(gpu, convolution, constants.convolution_efficiency),
        _effective_flops(gpu, other, constants.other_efficiency),
        gpu.memory_bytes_per_second * constants.memory_efficiency,
        size,
    )


def _effective_flops(gpu: Gpu, kind: str, efficiency: Mapping[str, float]) -> float:
    """Without tensor cores for a precision, its arithmetic runs as fp32 does."""
    if gpu.flops[kind] == gpu.flops["fp32"]:
        kind = "fp32"
    return gpu.flops[kind] * efficiency[kind]
