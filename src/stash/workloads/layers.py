"""The layers of any torch model, with their work, by running it once without memory or data.

The run is a forward pass on the meta device, where tensors have shapes and no values. Changes
when a model of compute, gradients or memory needs to know something else about a layer.
"""

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode  # the documented extension point
from torch.utils.flop_counter import flop_registry

from stash.errors import StashError
from stash.workloads.workload import Batch, Loss, move

aten = torch.ops.aten
Operator: TypeAlias = Any

# They read the rows they are asked for, not the whole table.
_GATHERS = {aten.embedding, aten.gather, aten.index_select, aten.index}
_CREATE_WITHOUT_WRITING = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty}
_TRACED_BATCHES = (2, 4)


@dataclass(frozen=True)
class Parameter:
    """One tensor of weights; its gradient has the same size."""

    name: str
    shape: tuple[int, ...]
    element_bytes: int = 4
    trainable: bool = True

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.count * self.element_bytes


@dataclass(frozen=True)
class Layer:
    """Operators that one module runs in a row, for the whole batch."""

    name: str
    """Path of the module; '#2' from its second appearance on, be it run again or resumed."""

    forward_flops: int
    """A multiply-add counts as two."""

    forward_bytes: int
    """Bytes that the operators read and write, parameters included."""

    parameters: tuple[Parameter, ...]
    """Those that are used here for the first time, in order of registration."""


@dataclass(frozen=True)
class LayerList:
    """A model, as compute, gradient and memory models see it."""

    layers: tuple[Layer, ...]
    """In the order in which the forward pass runs them."""

    parameter_count: int
    parameter_bytes: int

    activation_bytes: int
    """Kept from the forward pass for the backward pass, the batch itself included."""

    @property
    def forward_flops(self) -> int:
        return sum(layer.forward_flops for layer in self.layers)

    @property
    def forward_bytes(self) -> int:
        return sum(layer.forward_bytes for layer in self.layers)


def list_layers(model: nn.Module | Callable[[], nn.Module], loss: Loss, batch: Batch) -> LayerList:
    """Run the forward pass of one batch on the meta device and write down what it does.

    Attention and dropout count as the fused kernels that accelerators run. A yes-or-no question
    about values (is any masked, is any NaN) is answered no, because there are no values.
    """
    ghost = _without_memory(model).train()
    ghost_batch = move(batch, "meta")
    parameters = [_record(name, value) for name, value in ghost.named_parameters()]
    work = _Work(ghost, parameters)
    saved = _Saved(ghost)
    try:
        with torch.device("meta"), torch.enable_grad(), saved.hooks(), _FusedKernels(), work:
            loss(ghost, ghost_batch)
    except Exception as error:
        raise StashError(
            f"The layers of {type(ghost).__name__} cannot be listed: {work.place} failed without "
            f"real data ({type(error).__name__}: {error}). A forward pass whose shape depends on "
            "the values in a batch can be measured, but not predicted or emulated."
        ) from error
    return LayerList(
        layers=work.layers(),
        parameter_count=sum(parameter.count for parameter in parameters),
        parameter_bytes=sum(parameter.bytes for parameter in parameters),
        activation_bytes=saved.bytes,
    )


def training_memory_bytes(layers: LayerList, *, bytes_per_parameter_state: int) -> int:
    """Memory of a training iteration: weights, gradients, optimizer state and activations.

    ``bytes_per_parameter_state`` is what one parameter costs in all: 12 for SGD with momentum in
    fp32 (weight, gradient, momentum), 16 for Adam, 4 more for the gradient buckets of DDP. The
    allocator's waste and the libraries' workspace come on top.
    """
    return layers.parameter_count * bytes_per_parameter_state + layers.activation_bytes


def largest_batch(
    make_layers: Callable[[int], LayerList],
    memory_bytes: int,
    *,
    bytes_per_parameter_state: int,
    at_most: int = 65_536,
) -> int:
    """The most samples that can be trained at once in ``memory_bytes``; 0 when not even one can.

    ``make_layers(batch_size)`` lists the layers. Memory grows by the same bytes with every sample,
    so two runs give the answer, and a third at the answer confirms it.
    """

    def needed(batch_size: int) -> int:
        return training_memory_bytes(
            make_layers(batch_size), bytes_per_parameter_state=bytes_per_parameter_state
        )

    # Not one sample: batch norm refuses to train on one value per channel.
    few, more = _TRACED_BATCHES
    needed_by_few = needed(few)
    per_sample = (needed(more) - needed_by_few) / (more - few)
    if per_sample <= 0:
        return at_most if needed_by_few <= memory_bytes else 0
    answer = few + math.floor((memory_bytes - needed_by_few) / per_sample)
    answer = min(max(answer, 0), at_most)
    if answer < few or needed(answer) <= memory_bytes:
        return answer
    return _last_that_fits(few, answer, lambda batch_size: needed(batch_size) <= memory_bytes)


def _last_that_fits(fits: int, too_large: int, is_enough: Callable[[int], bool]) -> int:
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        fits, too_large = (middle, too_large) if is_enough(middle) else (fits, middle)
    return fits


class _Work(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Books every operator on the module that is running, or on the loss around the model."""

    def __init__(self, model: nn.Module, parameters: Sequence[Parameter]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._running = [_Run("loss")]
        self._entries: list[_Entry] = []
        self._unused = dict(zip(map(id, model.parameters()), enumerate(parameters), strict=True))
        for name, module in model.named_modules():
            module.register_forward_pre_hook(partial(self._enter, name or type(model).__name__))
            module.register_forward_hook(self._leave, always_call=True)

    @property
    def place(self) -> str:
        """The module that ran last."""
        return self._entries[-1].run.name if self._entries else "the first operator"

    def layers(self) -> tuple[Layer, ...]:
        appearances: Counter[str] = Counter()
        layers = []
        for entry in self._entries:
            if entry.flops or entry.bytes or entry.parameters:
                appearances[entry.run.name] += 1
                layers.append(entry.as_layer(appearances[entry.run.name]))
        return tuple(layers)

    def _enter(self, name: str, module: nn.Module, inputs: object) -> None:
        self._running.append(_Run(name))

    def _leave(self, module: nn.Module, inputs: object, outputs: object) -> None:
        self._running.pop()

    def __torch_dispatch__(
        self,
        func: Operator,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        inputs = list({id(tensor): tensor for tensor in _tensors((args, kwargs))}.values())
        if func is aten._local_scalar_dense.default and inputs[0].dtype is torch.bool:
            return False
        result = func(*args, **kwargs)
        entry = self._entry()
        for tensor in inputs:
            if id(tensor) in self._unused:
                entry.parameters.append(self._unused.pop(id(tensor)))
        if not _moves_nothing(func):
            entry.flops += _flops(func, args, kwargs, result)
            entry.bytes += _bytes_moved(func, inputs, list(_tensors(result)))
        return result

    def _entry(self) -> "_Entry":
        run = self._running[-1]
        if not self._entries or self._entries[-1].run is not run:
            self._entries.append(_Entry(run))
        return self._entries[-1]


@dataclass(eq=False)
class _Run:
    """One call of one module."""

    name: str


@dataclass(eq=False)
class _Entry:
    """Operators of one call, up to where another module runs."""

    run: _Run
    flops: int = 0
    bytes: int = 0
    parameters: list[tuple[int, Parameter]] = field(default_factory=list)

    def as_layer(self, appearance: int) -> Layer:
        name = self.run.name if appearance == 1 else f"{self.run.name}#{appearance}"
        in_order = tuple(parameter for _, parameter in sorted(self.parameters, key=_registered))
        return Layer(name, self.flops, self.bytes, in_order)


def _registered(numbered: tuple[int, Parameter]) -> int:
    return numbered[0]


class _FusedKernels(TorchFunctionMode):
    """Runs attention and dropout as one operator each, as accelerators do.

    Left alone, the meta device spells them out, with whole attention matrices written and kept.
    """

    def __torch_function__(
        self,
        func: Operator,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            return _fused_attention(*args, **kwargs)
        if func is torch.dropout:
            return torch.native_dropout(*args, **kwargs)[0]
        return func(*args, **kwargs)


def _fused_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **others: Any,
) -> torch.Tensor:
    if query.dim() != 4 or query.shape[1] != key.shape[1]:
        spelled_out: torch.Tensor = functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, **others
        )
        return spelled_out
    others.pop("enable_gqa", None)
    fused: torch.Tensor = aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal, **others
    )[0]
    return fused


class _Saved:
    """Adds up what autograd keeps for the backward pass, each piece of memory once."""

    def __init__(self, model: nn.Module) -> None:
        self._always_there = {
            id(tensor.untyped_storage()): tensor for tensor in _state(model).values()
        }
        self._kept: dict[int, torch.UntypedStorage] = {}

    @property
    def bytes(self) -> int:
        return sum(storage.nbytes() for storage in self._kept.values())

    def hooks(self) -> AbstractContextManager[None]:
        return torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor)

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if id(storage) not in self._always_there:
            self._kept[id(storage)] = storage
        return tensor


def _without_memory(model: nn.Module | Callable[[], nn.Module]) -> nn.Module:
    """A copy with every tensor on the meta device; the model itself is left alone."""
    if not isinstance(model, nn.Module):
        with torch.device("meta"):
            model = model()
    # What is in the memo is taken for already copied, so no tensor is ever really copied.
    ghosts = {key: _ghost(tensor) for key, tensor in _state(model).items()}
    return copy.deepcopy(model, memo=dict(ghosts))


def _state(model: nn.Module) -> dict[int, torch.Tensor]:
    """Parameters, buffers and tensors kept as plain attributes, by identity."""
    tensors = [*model.parameters(), *model.buffers()]
    for module in model.modules():
        tensors += [value for value in vars(module).values() if isinstance(value, torch.Tensor)]
    return {id(tensor): tensor for tensor in tensors}


def _ghost(tensor: torch.Tensor) -> torch.Tensor:
    ghost = torch.empty_like(tensor, device="meta", requires_grad=False)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(ghost, requires_grad=tensor.requires_grad)
    return ghost


def _record(name: str, parameter: nn.Parameter) -> Parameter:
    return Parameter(
        name, tuple(parameter.shape), parameter.element_size(), parameter.requires_grad
    )


def _moves_nothing(func: Operator) -> bool:
    return getattr(func, "is_view", False) or _packet(func) in _CREATE_WITHOUT_WRITING


def _flops(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    count = flop_registry.get(_packet(func))
    if count is not None:
        return int(count(*args, **kwargs, out_val=result))
    return sum(tensor.numel() for tensor in _tensors(result))


def _bytes_moved(func: Operator, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> int:
    written = sum(map(_bytes, outputs))
    if _packet(func) in _GATHERS:
        return 2 * written + sum(map(_bytes, inputs[1:]))
    return written + sum(map(_bytes, inputs))


def _bytes(tensor: torch.Tensor) -> int:
    # A tensor that was expanded to a shape is no larger in memory than before.
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _packet(func: Operator) -> Operator:
    return getattr(func, "overloadpacket", func)


def _tensors(nested: Any) -> Iterator[torch.Tensor]:
    if isinstance(nested, torch.Tensor):
        yield nested
    elif isinstance(nested, list | tuple):
        for value in nested:
            yield from _tensors(value)
    elif isinstance(nested, dict):
        yield from _tensors(list(nested.values()))
