"""Where the switchboard meets PyTorch: four seams, installed before a script runs.

`init_process_group` and `DataLoader.__iter__` are wrapped; the optimizer hooks are PyTorch's own
public ones. Holds for torch 2.6 to 2.13 (tests/engine/test_seams.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from stash.engine import exchange
from stash.engine.switchboard import Switchboard


def install(switchboard: Switchboard) -> Callable[[], None]:
    """Put the switchboard under every script that runs in this process; returns how to undo it."""
    undo = ExitStack()
    _install_exchange(switchboard, undo)
    _install_feed(switchboard, undo)
    _install_hooks(switchboard, undo)
    return undo.close


def _install_exchange(switchboard: Switchboard, undo: ExitStack) -> None:
    asked = ["gloo"]
    exchange.register(switchboard.group_made, lambda: asked[0])
    original = dist.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        asked[0] = _real_backend(backend)
        kwargs.pop("device_id", None)  # only the real backends can bind to a device
        original(exchange.BACKEND, *args, **kwargs)

    for place in (dist, dist.distributed_c10d):
        undo.callback(setattr, place, "init_process_group", original)
        place.init_process_group = init_process_group  # type: ignore[attr-defined]


def _real_backend(asked: str | None) -> str:
    """The backend that gradients travel on: with `cpu:gloo,cuda:nccl` or none, the device's own."""
    if asked in ("gloo", "nccl"):
        return str(asked)
    return "nccl" if torch.cuda.is_available() else "gloo"


def _install_feed(switchboard: Switchboard, undo: ExitStack) -> None:
    original = DataLoader.__iter__

    def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
        return _Fed(loader, switchboard)

    undo.callback(setattr, DataLoader, "__iter__", original)
    DataLoader.__iter__ = iterate  # type: ignore[method-assign, assignment]


def _install_hooks(switchboard: Switchboard, undo: ExitStack) -> None:
    before = register_optimizer_step_pre_hook(lambda o, args, kwargs: switchboard.step_begins(o))
    undo.callback(before.remove)
    after = register_optimizer_step_post_hook(lambda o, args, kwargs: switchboard.step_ended(o))
    undo.callback(after.remove)


class _Fed:
    """A loader's iterator: its own batches at first, the switchboard's once measuring has begun."""

    def __init__(self, loader: DataLoader[Any], switchboard: Switchboard) -> None:
        self._loader = loader
        self._switchboard = switchboard
        self._natural: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        if self._switchboard.is_feeding(self._loader):
            self._natural = None  # its workers would only compete with those being measured
            return self._switchboard.fed_batch()
        if self._natural is None:
            self._natural = self._switchboard.iterate(self._loader)
        self._switchboard.loader_used(self._loader)
        return next(self._natural)
