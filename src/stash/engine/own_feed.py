"""`stash.feed`: for loops that take their batches from no torch DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

_Batch = TypeVar("_Batch")

#: Set while a script runs on the engine.
wrap: Callable[[Iterable[Any]], Iterator[Any]] | None = None


def feed(batches: Iterable[_Batch]) -> Iterator[_Batch]:
    """Hand a loop's own batches to the engine, which can then switch them; else do nothing.

    for x, y in stash.feed(my_batches()): ...
    """
    return iter(batches) if wrap is None else wrap(batches)
