"""Where the switchboard meets PyTorch: few seams, installed before a script runs.

Public functions and methods are wrapped, and undone again in tests; the optimizer hooks are
PyTorch's own. Holds for torch 2.6 to 2.13 (tests/engine/test_seams.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from stash.engine import exchange, own_feed
from stash.engine.switchboard import Switchboard
from stash.errors import StashError


def install(switchboard: Switchboard) -> Callable[[], None]:
    """Put the switchboard under every script that runs in this process; returns how to undo it."""
    undo = ExitStack()
    _install_exchange(switchboard, undo)
    _install_feed(switchboard, undo)
    _install_hooks(switchboard, undo)
    _install_scaler(switchboard, undo)
    _install_autocast(switchboard, undo)
    _refuse_spawning(switchboard, undo)
    return undo.close


def _replace(place: Any, name: str, new: Any, undo: ExitStack) -> None:
    undo.callback(setattr, place, name, getattr(place, name))
    setattr(place, name, new)


def _install_exchange(switchboard: Switchboard, undo: ExitStack) -> None:
    asked = [_real_backend(None)]
    exchange.register(switchboard.group_made, lambda: asked[0])
    init, new_group, get_backend = dist.init_process_group, dist.new_group, dist.get_backend

    @functools.wraps(init)
    def switchable_init(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        asked[0] = _real_backend(backend)
        kwargs.pop("device_id", None)  # only the real backends can bind to a device
        init(exchange.BACKEND, *args, **kwargs)

    @functools.wraps(new_group)
    def switchable_group(
        ranks: Any = None, timeout: Any = None, backend: str | None = None, *rest: Any, **more: Any
    ) -> Any:
        """A group with a backend of its own would hang when only one worker runs."""
        more.pop("device_id", None)
        default = asked[0]
        asked[0] = default if backend is None else _real_backend(backend)
        try:
            return new_group(ranks, timeout, exchange.BACKEND, *rest, **more)
        finally:
            asked[0] = default

    @functools.wraps(get_backend)
    def real_name(group: Any = None) -> str:
        name = get_backend(group)
        if name != exchange.BACKEND:
            return name
        switched: Any = dist.group.WORLD if group is None else group
        return str(switched.real_backend)

    for place in (dist, dist.distributed_c10d):
        _replace(place, "init_process_group", switchable_init, undo)
    # PyTorch's own modules keep the originals, and so does the gang (engine/gang.py).
    _replace(dist, "new_group", switchable_group, undo)
    _replace(dist, "get_backend", real_name, undo)


def _real_backend(asked: str | None) -> str:
    """The backend that gradients travel on: with `cpu:gloo,cuda:nccl` or none, the device's own."""
    if asked is None or ":" in asked:
        return "nccl" if torch.cuda.is_available() else "gloo"
    if asked.lower() not in exchange.REAL_BACKENDS:
        raise StashError(
            f"The script exchanges gradients by {asked!r}, which Stash cannot switch. It can "
            f"switch {' and '.join(exchange.REAL_BACKENDS)}: let the script use one of these"
        )
    return asked.lower()


def _install_feed(switchboard: Switchboard, undo: ExitStack) -> None:
    original = DataLoader.__iter__

    def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
        if not switchboard.is_here:
            return original(loader)
        return _Fed(loader, switchboard, switchboard.iterate)

    def feed(batches: Iterable[Any]) -> Iterator[Any]:
        return _Fed(batches, switchboard, iter) if switchboard.is_here else iter(batches)

    _replace(DataLoader, "__iter__", iterate, undo)
    _replace(own_feed, "wrap", feed, undo)


def _install_hooks(switchboard: Switchboard, undo: ExitStack) -> None:
    def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if switchboard.is_here:
            switchboard.step_begins(optimizer)

    def after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if switchboard.is_here:
            switchboard.step_ended(optimizer)

    undo.callback(register_optimizer_step_pre_hook(before).remove)
    undo.callback(register_optimizer_step_post_hook(after).remove)


def _install_scaler(switchboard: Switchboard, undo: ExitStack) -> None:
    """A scaler that finds an overflow skips the step, and no hook of the optimizer tells."""
    original = torch.amp.GradScaler.step

    @functools.wraps(original)
    def step(scaler: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        before = switchboard.steps
        result = original(scaler, optimizer, *args, **kwargs)
        if switchboard.steps == before and switchboard.is_here:
            switchboard.iteration_ended(optimizer)
        return result

    _replace(torch.amp.GradScaler, "step", step, undo)


def _install_autocast(switchboard: Switchboard, undo: ExitStack) -> None:
    original = torch.autocast.__enter__

    def enter(context: torch.autocast) -> Any:
        entered = original(context)  # type: ignore[no-untyped-call]
        if torch.is_autocast_enabled(context.device) and switchboard.is_here:
            switchboard.autocast_entered(torch.get_autocast_dtype(context.device))
        return entered

    _replace(torch.autocast, "__enter__", enter, undo)


def _refuse_spawning(switchboard: Switchboard, undo: ExitStack) -> None:
    """Workers that a script starts by itself would train for real, out of our sight."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        switchboard.fail(
            StashError(
                "The script starts training processes of its own (torch.multiprocessing.spawn), "
                "where Stash starts one process per worker, as torchrun does. Run the function of "
                "one process directly, with rank and world size from torchrun's environment"
            )
        )

    for name in ("spawn", "start_processes"):
        _replace(torch.multiprocessing, name, refuse, undo)


class _Fed:
    """A loader's iterator: its own batches at first, the switchboard's once measuring has begun."""

    def __init__(
        self, origin: Any, switchboard: Switchboard, iterate: Callable[[Any], Iterator[Any]]
    ) -> None:
        self._origin = origin
        self._switchboard = switchboard
        self._iterate = iterate
        self._natural: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._origin)

    def __next__(self) -> Any:
        if self._switchboard.is_feeding(self._origin):
            self._natural = None  # its workers would only compete with those being measured
            return self._switchboard.fed_batch()
        if self._natural is None:
            self._natural = self._iterate(self._origin)
        batch = next(self._natural)
        self._switchboard.batch_taken(self._origin)
        return batch
