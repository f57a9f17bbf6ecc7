"""Does a model fit on a GPU: peak memory of a training worker, and the largest batch that fits."""

from __future__ import annotations

import math

from stash.hardware.gpus import Gpu
from stash.predict.facts import ModelFacts

#: Weight, gradient, bucket and what the optimizer keeps, for one parameter.
STATE_BYTES_PER_PARAMETER = {"SGD": 16, "Adam": 20, "AdamW": 20}
#: A half-precision copy of the weights, where layers compute with one.
CAST_BYTES_PER_PARAMETER = 2
#: What libraries, the allocator and the driver keep for themselves.
USABLE_FRACTION = 0.9


def peak_bytes(facts: ModelFacts, batch: int, dtype: str) -> int:
    """Weights, gradients, optimizer state, and activations kept for the backward pass."""
    half = dtype in ("amp", "bf16")
    state = STATE_BYTES_PER_PARAMETER.get(facts.optimizer, 20)
    fixed, per_sample = facts.activation_bytes
    activations = (fixed + per_sample * batch) * (0.5 if half else 1.0)
    cast = CAST_BYTES_PER_PARAMETER if half else 0
    return math.ceil(facts.parameters * (state + cast) + activations)


def usable_bytes(gpu: Gpu) -> int:
    return int(gpu.memory_bytes * USABLE_FRACTION)


def largest_batch(facts: ModelFacts, gpu: Gpu, dtype: str) -> int:
    """The most samples that fit at once; 0 when not even one does."""
    nothing, one = peak_bytes(facts, 0, dtype), peak_bytes(facts, 1, dtype)
    left = usable_bytes(gpu) - nothing
    return max(0, math.floor(left / (one - nothing))) if one > nothing else 0
