"""The overlap recurrence: what exchanging gradients costs after compute has hidden its part.

    start_k = max(ready_k, end_{k-1});  end_k = start_k + latency + bytes_k / bandwidth - free_k
    stall = max(0, end_K - backward)

A token bucket fills while nobody sends, until it is full; `free_k` is what it then lets pass at
once. It fills during a message's latency, too.

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
#: Depth of a link whose stall is held against this: cores of shared machines pause for some
#: milliseconds, and a bucket that is full by then would lose rate.
LINK_BURST = "3ms"


@dataclass(frozen=True)
class Message:
    """One bucket of gradients."""

    ready_seconds: float  # after the start of the backward pass
    bytes: int


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
    end, saved = -math.inf, 0.0
    for message in sent:
        begin = max(message.ready_seconds, end) + latency_seconds
        free = min(saved + begin - end, burst_seconds)
        needed = message.bytes / bytes_per_second
        end, saved = begin + max(0.0, needed - free), max(0.0, free - needed)
    return max(0.0, end - backward_seconds)
