"""Workloads small enough for tests, some with a fault that a file beside the data sets off."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from stash.workloads.workload import Workload, supervised

CLASSES = 4
SIDE = 24


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Every picture of a folder, opened with PIL as users do."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.paths[index]) as picture:
            pixels = np.asarray(picture.resize((SIDE, SIDE)), dtype=np.float32)
        return torch.from_numpy(pixels).permute(2, 0, 1) / 255, index % CLASSES


class Faulty(Pictures):
    """In worker 1, a file named `raise` or `hang` in the folder makes reading do so."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if os.environ.get("RANK") == "1":
            if (self.folder / "raise").exists():
                raise ValueError(f"sample {index} is spoilt")
            if (self.folder / "hang").exists():
                time.sleep(3600)
        return super().__getitem__(index)


class Stream(IterableDataset[tuple[torch.Tensor, int]]):
    """Samples that can only be had one after the other."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        return ((torch.full((3, SIDE, SIDE), float(i)), i % CLASSES) for i in range(self.length))


def write_pictures(folder: Path, count: int, side: int = 48) -> Path:
    """Noisy JPEG files, each larger than a page."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(0)
    for number in range(count):
        pixels = chance.integers(0, 256, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:04d}.jpg", quality=95)
    return folder


def model() -> nn.Module:
    """With batch norm, whose buffers DDP broadcasts in every forward pass."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 11 * 11, CLASSES),
    )


def _workload(name: str, data: Any, batch_size: int) -> Workload:
    return Workload(
        name=name,
        model=model,
        data=data,
        loss=supervised(nn.CrossEntropyLoss()),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        batch_size=batch_size,
    )


def pictures(data: Path, batch_size: int = 4) -> Workload:
    return _workload("tiny pictures", Pictures(data), batch_size)


def faulty(data: Path, batch_size: int = 4) -> Workload:
    return _workload("faulty", Faulty(data), batch_size)


def own_loader(data: Path) -> Workload:
    loader = DataLoader(Pictures(data), batch_size=3, shuffle=True, num_workers=1)
    return _workload("own loader", loader, 1)


def spoilt_data(batch_size: int = 4) -> Workload:
    class Spoilt(Dataset[Any]):
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> Any:
            raise KeyError(f"no label for sample {index}")

    return _workload("spoilt", Spoilt(), batch_size)


def raises() -> Workload:
    raise RuntimeError("the licence server is down")


def returns_a_model() -> nn.Module:
    return model()


def empty_data(batch_size: int = 4) -> Workload:
    return _workload("empty", Stream(0), batch_size)


def _model_that_only_launchers_can_build() -> nn.Module:
    if os.environ.get("RANK") == "1":
        raise FileNotFoundError("weights.pt")
    return model()


def fails_in_a_worker(data: Path) -> Workload:
    return replace(pictures(data), model=_model_that_only_launchers_can_build)


def model_is_a_number(data: Path) -> Workload:
    return replace(pictures(data), model=lambda: 3)  # type: ignore[arg-type, return-value]
