"""Known delays put into a training job from outside the measuring code; no root is needed.

Each takes a given time, waits for a deadline instead of sleeping for it, and keeps account of what
it really took. They are meant to be installed by a workload's factory, inside every worker.
"""

from __future__ import annotations

import itertools
import os
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import Dataset

from stash.lab.account import Account
from stash.lab.neighbours import Neighbours
from stash.workloads import emulated

#: A plain sleep overshoots by 0.1 to 0.2 ms; the last part of a wait is spent watching the clock.
WATCHED_SECONDS = 0.0005
#: As in the engine's exchange: older releases of torch forget a handle that C++ still asks.
HANDLES_KEPT = 1024


def wait_until(deadline: float) -> None:
    """Until `time.perf_counter()` says so."""
    _sleep_until_shortly_before(deadline)
    _watch_until(deadline)


class Delay:
    """A wait of known length, and an account of the waits so far."""

    def __init__(self, name: str, seconds: float) -> None:
        self.seconds = seconds
        self.account = Account(name)

    def __call__(self, began: float | None = None, seconds: float | None = None) -> None:
        """Wait once, from now or from an earlier moment on, as long as always or this once."""
        seconds = self.seconds if seconds is None else seconds
        if seconds <= 0:
            return
        began = time.perf_counter() if began is None else began
        deadline = began + seconds
        _sleep_until_shortly_before(deadline)
        self.account.add(1, seconds, 0.0)  # here it costs nothing, after the wait it would
        _watch_until(deadline)
        self.account.add(0, 0.0, time.perf_counter() - began)


def _sleep_until_shortly_before(deadline: float) -> None:
    left = deadline - time.perf_counter() - WATCHED_SECONDS
    if left > 0:
        time.sleep(left)


def _watch_until(deadline: float) -> None:
    while time.perf_counter() < deadline:
        pass


class SlowSamples(Dataset[Any]):
    """A data set whose every sample takes so much longer."""

    def __init__(self, data: Any, seconds: float) -> None:
        self._data = data
        self.delay = Delay("samples", seconds)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        sample = self._data[index]
        self.delay()
        return sample


class SlowBatches(Dataset[Any]):
    """A data set whose every batch takes so much longer, whatever its size.

    The wait is counted from when the batch has been made, or from a moment that is told.
    """

    def __init__(
        self, data: Any, seconds: float, since: Callable[[], float] = time.perf_counter
    ) -> None:
        self._data = data
        self._since = since
        self.delay = Delay("batches", seconds)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        return self._data[index]

    def __getitems__(self, indices: list[int]) -> Any:
        whole = getattr(self._data, "__getitems__", None)
        batch = [self._data[index] for index in indices] if whole is None else whole(indices)
        now = time.perf_counter()
        self.delay(max(self._since(), now - self.delay.seconds))  # at the earliest it is over now
        return batch


class Installed:
    """A delay that is in place until it is removed."""

    def __init__(self, delay: Delay, remove: Callable[[], None]) -> None:
        self.delay = delay
        self.remove = remove


def slow_forward(
    seconds: float, *, only_rank: int | None = None, model: nn.Module | None = None
) -> Installed:
    """Every forward pass begins so much later: of a model, or of whatever DDP wraps.

    The wait begins when the device is idle, so that none of it hides under work that is queued.
    With `only_rank`, one worker alone is slow.
    """
    delay = Delay("forward", seconds)

    def before(module: nn.Module, inputs: Any) -> None:
        if model is None and not isinstance(module, DistributedDataParallel):
            return
        if only_rank is None or _rank() == only_rank:
            _wait_for_device()
            delay()

    hook = register_module_forward_pre_hook if model is None else model.register_forward_pre_hook
    return Installed(delay, hook(before).remove)


def uneven_iterations(mean_seconds: float, seed: int) -> Installed:
    """Iterations take longer by times drawn evenly from 0 to twice the mean.

    All workers draw the same time for the same iteration, so that nobody waits for anybody; every
    worker must run every iteration, as on the engine.
    """
    numbers = itertools.count()
    delay = Delay("uneven", mean_seconds)

    def before(module: nn.Module, inputs: Any) -> None:
        if isinstance(module, DistributedDataParallel):
            drawn = random.Random(f"{seed} {next(numbers)}").uniform(0.0, 2 * mean_seconds)
            _keep_device_busy(delay, drawn)

    return Installed(delay, register_module_forward_pre_hook(before).remove)


def slow_neighbours(seconds: float, marks: Path) -> Installed:
    """An iteration takes so much longer if another worker of this machine computes during it.

    Workers tell each other by a small file, `marks`, which all of them are given. One that is held,
    or waits for data, does not compute. The delay stands between backward pass and optimizer.
    """
    delay = Delay("neighbours", seconds)
    neighbours = Neighbours(marks, _rank_in_environment())

    def before_forward(module: nn.Module, inputs: Any) -> None:
        if isinstance(module, DistributedDataParallel):
            neighbours.begin()

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if neighbours.any_since_begin():
            _keep_device_busy(delay, delay.seconds)
        neighbours.end()

    undo = ExitStack()
    undo.callback(register_module_forward_pre_hook(before_forward).remove)
    undo.callback(register_optimizer_step_pre_hook(before_step).remove)
    return Installed(delay, undo.close)


def slow_exchange(seconds: float, *, only_rank: int | None = None) -> Installed:
    """Every all-reduce of gradients takes so long, one after the other as on a slow link.

    The delay lies under the engine's switch, in the group that moves bytes, so an exchange that is
    off is not delayed. The k-th message of a worker, asked for at `ready_k`, ends at
    `end_k = max(ready_k, end_{k-1}) + seconds`, or when it really ends if that is later: what
    compute hides of that stays hidden. Install it before the process group is made.
    """
    delay = Delay("exchange", seconds)
    original = dist.ProcessGroupGloo

    def make(store: Any, rank: int, size: int, *args: Any, **kwargs: Any) -> Any:
        real = original(store, rank, size, *args, **kwargs)
        return real if only_rank not in (None, rank) else _SlowGroup(real, delay)

    dist.ProcessGroupGloo = make  # type: ignore[misc, assignment]
    return Installed(delay, lambda: setattr(dist, "ProcessGroupGloo", original))


class _SlowGroup:
    """Passes everything on to a real group; its all-reduces take longer."""

    def __init__(self, real: Any, delay: Delay) -> None:
        self._real = real
        self._delay = delay
        self._pending: queue.SimpleQueue[_Late] = queue.SimpleQueue()
        self._handles: deque[_Late] = deque(maxlen=HANDLES_KEPT)
        threading.Thread(target=self._finish_in_order, daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def allreduce(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        """As the real one, later."""
        ready = time.perf_counter()
        late = _Late(self._real.allreduce(tensors, *args, **kwargs), tensors, ready)
        self._handles.append(late)
        self._pending.put(late)
        return late

    def _finish_in_order(self) -> None:
        ended = 0.0
        while True:
            late = self._pending.get()
            late.finish(self._delay, max(late.ready, ended))
            ended = time.perf_counter()


class _Late(dist.Work):
    """The handle of a collective that is over some time after it was asked for."""

    def __init__(self, real: Any, tensors: Any, ready: float) -> None:
        super().__init__()
        self.ready = ready
        self._real = real
        self._tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        self._future: torch.futures.Future[Any] = torch.futures.Future()

    def finish(self, delay: Delay, began: float) -> None:
        try:
            self._real.wait()
        except Exception as error:
            self._future.set_exception(error)
            return
        delay(began)
        self._future.set_result(self._tensors)

    def wait(self, timeout: Any = None) -> bool:
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        return self._future.done()

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future


def _wait_for_device() -> None:
    accelerator = emulated.current()
    if accelerator is not None:
        accelerator.clock.synchronize()
    elif torch.cuda.is_available():
        torch.cuda.synchronize()


def _keep_device_busy(delay: Delay, seconds: float) -> None:
    """An emulated device computes for longer; for any other the host waits once it is idle."""
    accelerator = emulated.current()
    if accelerator is None:
        _wait_for_device()
        delay(seconds=seconds)
    else:
        accelerator.clock.enqueue(seconds)
        delay.account.add(1, seconds, seconds)


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else _rank_in_environment()


def _rank_in_environment() -> int:
    return int(os.environ.get("RANK", "0"))
