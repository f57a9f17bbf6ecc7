"""What can be told about a batch, whatever it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def tensors_of(batch: Any) -> Iterator[torch.Tensor]:
    """All tensors inside."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from tensors_of(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors_of(value)


def bytes_of(batch: Any) -> int:
    """Their size."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(batch))


def shapes_of(batch: Any) -> tuple[tuple[int, ...], ...]:
    """Their shapes."""
    return tuple(tuple(tensor.shape) for tensor in tensors_of(batch))


def first_dimension(batch: Any) -> int | None:
    """Samples, by the first tensor that has a dimension."""
    return next((int(tensor.shape[0]) for tensor in tensors_of(batch) if tensor.dim()), None)


def versions_of(batches: list[Any]) -> list[int]:
    """How often each tensor was written to, as PyTorch counts it (not for inference tensors)."""
    return [
        0 if tensor.is_inference() else tensor._version
        for batch in batches
        for tensor in tensors_of(batch)
    ]
