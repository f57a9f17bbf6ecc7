"""Where the switchboard meets PyTorch: four seams, installed before a script runs.

`init_process_group` and `DataLoader.__iter__` are wrapped; the optimizer hooks are PyTorch's own
public ones. Holds for torch 2.4 to 2.13 (tests/engine/test_seams.py).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
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


def install(switchboard: Switchboard) -> None:
    """Put the switchboard under every script that runs in this process from now on."""
    _install_exchange(switchboard)
    _install_feed(switchboard)
    register_optimizer_step_pre_hook(lambda o, args, kwargs: switchboard.step_begins(o))
    register_optimizer_step_post_hook(lambda o, args, kwargs: switchboard.step_ended(o))


def _install_exchange(switchboard: Switchboard) -> None:
    asked = ["gloo"]
    exchange.register(switchboard.group_made, lambda: asked[0])
    original = dist.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        asked[0] = _real_backend(backend)
        kwargs.pop("device_id", None)  # only the real backends can bind to a device
        original(exchange.BACKEND, *args, **kwargs)

    dist.init_process_group = init_process_group
    dist.distributed_c10d.init_process_group = init_process_group


def _real_backend(asked: str | None) -> str:
    """The backend that gradients travel on: with `cpu:gloo,cuda:nccl` or none, the device's own."""
    if asked in ("gloo", "nccl"):
        return str(asked)
    return "nccl" if torch.cuda.is_available() else "gloo"


def _install_feed(switchboard: Switchboard) -> None:
    def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
        return _Fed(loader, switchboard)

    DataLoader.__iter__ = iterate  # type: ignore[method-assign, assignment]


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
