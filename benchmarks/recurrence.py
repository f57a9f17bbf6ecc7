"""The overlap recurrence: what exchanging gradients costs after compute has hidden its part.

    start_k = max(ready_k, end_{k-1});  end_k = start_k + latency + bytes_k / bandwidth - free_k
    stall = max(0, end_K - backward)

A token bucket fills while nobody sends; `free_k` is what of a message it lets pass at once.

Ready times come from the layers' costs, messages from PyTorch's bucket rules; nothing is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from stash.workloads.emulated import Accelerator

#: PyTorch fills its first bucket up to the first of these, all others up to the second.
BUCKET_CAPS = (1 << 20, 25 << 20)
GRADIENT_BYTES = 4


@dataclass(frozen=True)
class Message:
    """One bucket of gradients."""

    ready_seconds: float  # after the start of the backward pass
    bytes: int
    latency_seconds: float = 0.0  # of its own, beside what every message has


def messages(accelerator: Accelerator) -> list[Message]:
    """The buckets that DDP sends in one iteration, in the order in which it sends them."""
    ready = [
        (at, GRADIENT_BYTES * elements)
        for at, layer in zip(
            accelerator.planned_ready_seconds, reversed(accelerator.layers), strict=True
        )
        # Within a layer the weight comes before the bias, in order of registration.
        for elements in layer.gradient_elements
    ]
    sent: list[Message] = []
    size = 0
    for position, (at, gradient_bytes) in enumerate(ready):
        size += gradient_bytes
        cap = BUCKET_CAPS[min(len(sent), 1)] * accelerator.name.byte_scale
        if size >= cap or position == len(ready) - 1:
            sent.append(Message(at, size))
            size = 0
    return sent


def exchange_stall(
    sent: Iterable[Message],
    backward_seconds: float,
    *,
    latency_seconds: float = 0.0,
    bytes_per_second: float = math.inf,
    burst_seconds: float = 0.0,
) -> float:
    """Seconds by which the last message ends after the backward pass."""
    end = -math.inf
    for message in sent:
        start = max(message.ready_seconds, end)
        free = min(start - end, burst_seconds)
        latency = latency_seconds + message.latency_seconds
        end = start + latency + max(0.0, message.bytes / bytes_per_second - free)
    return max(0.0, end - backward_seconds)
