"""An emulated accelerator: kernels are deadlines on one device clock, gradients are real memory.

DDP, gloo, links, loaders and storage stay real; only the arithmetic is not done. Layers last as
long as their roofline on the emulated GPU says, and gradients become ready in that order.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stash.hardware.device_names import DeviceName
from stash.hardware.gpus import Gpu, find
from stash.workloads.layers import LayerList

#: Arithmetic of the backward pass over the forward pass: once for inputs, once for weights.
BACKWARD_OVER_FORWARD = 2.0
#: A sleep ends some tenths of a millisecond late. Where that would make the device late, too, the
#: last part of a wait is spent watching the clock: before the host goes on to queue more work, and
#: in layers of which it is a twentieth at most.
WATCHED_SECONDS = 0.0005
LONG_LAYER_SECONDS = 20 * WATCHED_SECONDS
#: SGD with momentum reads weight, gradient and momentum and writes weight and momentum.
OPTIMIZER_PASSES = 5


class DeviceClock:
    """Work queued on a device that runs beside the host, in order, each piece for a known time."""

    def __init__(
        self,
        now: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.now = now
        self._sleep = sleep
        self._free_at = 0.0

    def enqueue(self, seconds: float) -> float:
        """Queue work; returns the time at which it starts."""
        start = self.done_at()
        self._free_at = start + seconds
        return start

    def wait_until(self, deadline: float, *, exactly: bool = False) -> None:
        """Sleep until a queued piece is done; exactly: not a moment longer, watching the clock."""
        watched = WATCHED_SECONDS if exactly else 0.0
        while (left := deadline - self.now()) > 0:
            self._sleep(max(0.0, left - watched))

    def done_at(self) -> float:
        """When everything queued is done; now, if nothing is left."""
        return max(self.now(), self._free_at)

    def synchronize(self) -> None:
        """Wait until everything queued is done."""
        self.wait_until(self._free_at, exactly=True)


@dataclass(frozen=True)
class LayerTimes:
    """One layer on the emulated device."""

    name: str
    forward_seconds: float
    backward_seconds: float
    gradient_elements: tuple[int, ...]


class Accelerator:
    """The emulated device of one worker: a GPU's figures, a model's layers and a clock."""

    def __init__(self, name: DeviceName, layers: LayerList, dtype: str) -> None:
        assert name.gpu is not None
        self.gpu: Gpu = find(name.gpu)
        self.name = name
        self.clock = DeviceClock()
        trained = [p for layer in layers.layers for p in layer.parameters if p.trainable]
        self.parameters = sum(parameter.count for parameter in trained)
        self.gradient_bytes = sum(parameter.bytes for parameter in trained)
        self.layers = tuple(_times(self.gpu, name, layer, dtype) for layer in layers.layers)
        optimizer_bytes = OPTIMIZER_PASSES * self.gradient_bytes
        self.optimizer_seconds = self.gpu.seconds(0, optimizer_bytes, "fp32") * name.time_scale
        #: When gradients of each layer, last layer first, should be ready in the backward pass.
        self.planned_ready_seconds = tuple(
            itertools.accumulate(layer.backward_seconds for layer in reversed(self.layers))
        )
        self._exact_positions = _exact_positions(self.layers)
        #: Seconds after the start of the backward pass at which each layer's gradients were ready,
        #: in the last iteration: what the overlap of communication depends on.
        self.ready_seconds: list[float] = []

    @property
    def forward_seconds(self) -> float:
        """The whole forward pass."""
        return sum(layer.forward_seconds for layer in self.layers)

    @property
    def backward_seconds(self) -> float:
        """The whole backward pass."""
        return sum(layer.backward_seconds for layer in self.layers)

    def start_backward(self) -> None:
        """Queue the whole backward pass at once, as a host that runs ahead of its GPU does."""
        self._backward_started = self.clock.enqueue(self.backward_seconds)
        self.ready_seconds = []

    def finish_layer(self, position: int) -> None:
        """Wait until the gradients of a layer are there; positions count from the last layer."""
        ready = self._backward_started + self.planned_ready_seconds[position]
        self.clock.wait_until(ready, exactly=position in self._exact_positions)
        self.ready_seconds.append(self.clock.now() - self._backward_started)


_CURRENT: list[Accelerator] = []


def current() -> Accelerator | None:
    """The accelerator that this process trains on, if it is an emulated one."""
    return _CURRENT[-1] if _CURRENT else None


class EmulatedModel(nn.Module):
    """Parameters of the model's shapes; passes that take the emulated device's time."""

    def __init__(self, accelerator: Accelerator) -> None:
        super().__init__()
        self._accelerator = accelerator
        self._anchor = torch.zeros((), requires_grad=True)
        self._layer_parameters: list[list[nn.Parameter]] = []
        for number, layer in enumerate(accelerator.layers):
            own = [nn.Parameter(torch.zeros(size)) for size in layer.gradient_elements]
            for index, parameter in enumerate(own):
                self.register_parameter(f"layer{number}_{index}", parameter)
            self._layer_parameters.append(own)
        _CURRENT[:] = [accelerator]

    def forward(self, batch: Any) -> torch.Tensor:
        """Queue the forward pass and return a loss whose backward pass takes its time."""
        accelerator = self._accelerator
        accelerator.clock.enqueue(accelerator.forward_seconds)
        value: torch.Tensor = self._anchor
        last = len(accelerator.layers) - 1
        for number, own in enumerate(self._layer_parameters):
            if own or number == last:
                value = _Layer.apply(value, accelerator, last - number, *own)  # type: ignore[no-untyped-call]
        return value


class _Layer(torch.autograd.Function):
    """Its backward pass returns when the device clock says that the gradients are ready."""

    @staticmethod
    def forward(ctx: Any, value: Any, accelerator: Any, position: int, *parameters: Any) -> Any:
        ctx.accelerator, ctx.position = accelerator, position
        ctx.shapes = [parameter.shape for parameter in parameters]
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        if ctx.position == 0:
            ctx.accelerator.start_backward()
        ctx.accelerator.finish_layer(ctx.position)
        # A broadcast zero: the values do not matter, the memory that DDP keeps for them is real.
        zeros = [torch.zeros(()).expand(shape) for shape in ctx.shapes]
        return gradient, None, None, *zeros


class EmulatedOptimizer(torch.optim.Optimizer):
    """Takes the time of an optimizer on the device; keeps gradients in place, as buffers."""

    def __init__(self, parameters: Iterable[nn.Parameter], accelerator: Accelerator) -> None:
        super().__init__(parameters, {"lr": 0.0})
        self._accelerator = accelerator

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Queue the update."""
        self._accelerator.clock.enqueue(self._accelerator.optimizer_seconds)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Fresh gradient memory in every iteration would cost pages, which no GPU pays."""


def _exact_positions(layers: Sequence[LayerTimes]) -> frozenset[int]:
    """Long layers, and the one after which the backward pass returns to the training loop."""
    backward = list(enumerate(reversed(layers)))
    long = {position for position, layer in backward if layer.backward_seconds > LONG_LAYER_SECONDS}
    last = max((position for position, layer in backward if layer.gradient_elements), default=0)
    return frozenset(long | {last})


def _times(gpu: Gpu, name: DeviceName, layer: Any, dtype: str) -> LayerTimes:
    forward = gpu.seconds(layer.forward_flops, layer.forward_bytes, dtype)
    trained: Sequence[Any] = [p for p in layer.parameters if p.trainable]
    return LayerTimes(
        name=layer.name,
        forward_seconds=forward * name.time_scale,
        backward_seconds=forward * BACKWARD_OVER_FORWARD * name.time_scale,
        gradient_elements=tuple(max(1, round(p.count * name.byte_scale)) for p in trained),
    )
