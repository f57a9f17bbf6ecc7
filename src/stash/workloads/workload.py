"""What is trained: the one description of a model, its data, its loss and its optimizer.

Changes when a training loop needs to know something else about what it trains.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from stash.errors import UsageError

# Whatever the user's loader yields: only the user's own loss looks inside.
Batch: TypeAlias = Any
Loss: TypeAlias = Callable[[nn.Module, Batch], torch.Tensor]
Criterion: TypeAlias = Callable[[Any, Any], torch.Tensor]
OptimizerFactory: TypeAlias = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

_AnyBatch = TypeVar("_AnyBatch")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One training job, as one worker sees it."""

    name: str
    """Shown in reports, and compared before two profiles are."""

    model: nn.Module | Callable[[], nn.Module]
    """The model, or a function that builds it (then shapes can be had without memory)."""

    data: Dataset[Any] | DataLoader[Any]
    """Samples (map-style or iterable), or the user's own loader."""

    loss: Loss
    """Takes the model and a batch, returns the scalar to differentiate."""

    optimizer: OptimizerFactory
    """Takes the parameters, returns the optimizer."""

    batch_size: int
    """Samples per worker and iteration; not used where ``data`` is a loader."""

    collate: Callable[[list[Any]], Batch] | None = None
    """Makes a batch of samples; None is PyTorch's own way."""

    def __post_init__(self) -> None:
        for field, (is_right, expected) in _EXPECTED.items():
            value = getattr(self, field)
            if not is_right(value):
                raise UsageError(
                    f"Workload field '{field}' is {_describe(value)}; expected {expected}."
                )

    def build_model(self) -> nn.Module:
        if isinstance(self.model, nn.Module):
            return self.model
        built = self.model()
        if not isinstance(built, nn.Module):
            raise UsageError(
                f"The model function of workload '{self.name}' returned {_describe(built)}; "
                "expected a torch.nn.Module."
            )
        return built


@dataclass(frozen=True)
class _Supervised:
    criterion: Criterion

    def __call__(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        inputs, target = batch
        return self.criterion(model(inputs), target)


def supervised(criterion: Criterion) -> Loss:
    """The loss of ``(inputs, target)`` batches: ``criterion(model(inputs), target)``."""
    return _Supervised(criterion)


def move(batch: _AnyBatch, device: torch.device | str, non_blocking: bool = False) -> _AnyBatch:
    """The same batch, however nested, with every tensor on ``device``."""
    moved: Any = _move(batch, device, non_blocking)
    return moved  # type: ignore[no-any-return]


def _move(batch: Any, device: torch.device | str, non_blocking: bool) -> Any:
    def again(value: Any) -> Any:
        return _move(value, device, non_blocking)

    if callable(getattr(batch, "to", None)):
        return batch.to(device, non_blocking=non_blocking)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(again, batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map(again, batch))
    if isinstance(batch, Mapping):
        return _move_mapping(batch, again)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return _move_dataclass(batch, again)
    return batch


def _move_mapping(batch: Mapping[Any, Any], again: Callable[[Any], Any]) -> Mapping[Any, Any]:
    values = {key: again(value) for key, value in batch.items()}
    if not isinstance(batch, MutableMapping):
        return values
    # A copy keeps what its class adds to a dict, such as a default factory.
    moved = copy.copy(batch)
    moved.update(values)
    return moved


def _move_dataclass(batch: Any, again: Callable[[Any], Any]) -> Any:
    moved = copy.copy(batch)
    for field in dataclasses.fields(batch):
        # Not dataclasses.replace: it refuses fields that __init__ does not take.
        object.__setattr__(moved, field.name, again(getattr(batch, field.name)))
    return moved


def _is_data(value: object) -> bool:
    if isinstance(value, Dataset | DataLoader | IterableDataset):
        return True
    # Datasets of other libraries index like PyTorch's without being a subclass.
    is_indexed = hasattr(value, "__getitem__") and hasattr(value, "__len__")
    return is_indexed and not isinstance(value, str | bytes | Mapping | type)


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, nn.Module | torch.optim.Optimizer)


def _is_batch_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


_EXPECTED: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "name": (lambda value: isinstance(value, str) and value != "", "a name, as a string"),
    "model": (callable, "a torch.nn.Module, or a function without arguments that builds one"),
    "data": (_is_data, "a torch Dataset or DataLoader (a path must be opened by the factory)"),
    "loss": (
        _is_function,
        "a function of the model and a batch; stash.supervised(criterion) makes one for "
        "(inputs, target) batches",
    ),
    "optimizer": (
        _is_function,
        "a function of the parameters that returns the optimizer, such as "
        "lambda parameters: torch.optim.SGD(parameters, lr=0.1)",
    ),
    "batch_size": (_is_batch_size, "a whole number of samples per worker, at least 1"),
    "collate": (
        lambda value: value is None or callable(value),
        "a function that makes a batch from a list of samples, or None",
    ),
}


def _describe(value: object) -> str:
    if value is None or isinstance(value, int | float | str):
        return f"{value!r} ({type(value).__name__})" if value is not None else "None"
    return f"a {type(value).__name__}"
