"""What overhead is measured on: an emulated device, a convolutional net, a net of tiny layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stash.hardware.device_names import parse
from stash.workloads import zoo
from stash.workloads.emulated import Accelerator, EmulatedModel, EmulatedOptimizer
from stash.workloads.train import _buckets

TINY_LAYERS = 75


@dataclass(frozen=True)
class Case:
    """A model that can be built several times, its data, and how DDP shall wrap it."""

    loader: DataLoader[Any]
    make_model: Callable[[], nn.Module]
    make_optimizer: Callable[[Any], torch.optim.Optimizer]
    loss: Callable[[nn.Module, Any], torch.Tensor]
    settings: dict[str, Any]


def device_of(case: str) -> str:
    """The device of a case, as a plan names it."""
    return "emulated:v100:bytes=0.1" if case in ("emulated", "idle-emulated") else "cpu"


def build(case: str) -> Case:
    """A case by its name."""
    builders = {
        "emulated": _emulated,
        "conv": partial(_conv, batch_size=8),
        "tiny-layers": _tiny_layers,
        "idle": partial(_conv, batch_size=16),  # as the zoo trains it on CPUs
        "idle-small": partial(_conv, batch_size=8),
        "idle-emulated": _emulated,
    }
    return builders[case]()


def _emulated() -> Case:
    name = parse(device_of("emulated"))
    accelerator = Accelerator(name, zoo.layers("resnet50", 32), "fp32")
    return Case(
        DataLoader(TensorDataset(torch.zeros(8, 1)), batch_size=2),
        lambda: EmulatedModel(accelerator),
        lambda parameters: EmulatedOptimizer(parameters, accelerator),
        lambda model, batch: model(batch),
        {"gradient_as_bucket_view": True, **_buckets(name)},
    )


def _conv(*, batch_size: int) -> Case:
    entry = zoo.get("tinycnn")
    size = entry.inputs.size  # type: ignore[union-attr]
    samples = 4 * batch_size
    pictures = torch.randn(samples, 3, size, size)
    data = TensorDataset(pictures, torch.zeros(samples, dtype=torch.long))
    return Case(DataLoader(data, batch_size=batch_size), entry.builder, _sgd, entry.loss, {})


def _tiny_layers() -> Case:
    def model() -> nn.Module:
        layers = [nn.Linear(64, 64, bias=False) for _ in range(TINY_LAYERS)]
        for layer in layers:
            # By default every layer shrinks its input, and what reaches the last ones and comes
            # back is too small for normal floats: a processor takes several times as long then.
            nn.init.orthogonal_(layer.weight)
        return nn.Sequential(*layers)

    return Case(
        DataLoader(TensorDataset(torch.randn(64, 64)), batch_size=16),
        model,
        _sgd,
        lambda model, batch: model(batch[0]).square().mean(),
        {},
    )


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-6, momentum=0.9)
