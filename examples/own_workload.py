"""A workload of your own: a small network that tells signals apart.

    stash profile examples/own_workload.py:signals
    stash profile examples/own_workload.py:signals --data DIR --batch-size 64

Without --data the signals are computed, so there is no storage to wait for and Stash says so. With
--data they are read from .npy files of 1000 numbers each, named label_anything.npy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

import stash

LENGTH = 1000
CLASSES = 4


class ComputedSignals(Dataset[tuple[torch.Tensor, int]]):
    """Sines with noise; the class is the number of periods."""

    def __len__(self) -> int:
        return 2048

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        label = index % CLASSES
        noise = torch.randn(LENGTH, generator=torch.Generator().manual_seed(index))
        time = torch.linspace(0, 2 * torch.pi * (label + 1), LENGTH)
        return (time.sin() + noise).unsqueeze(0), label


class StoredSignals(Dataset[tuple[torch.Tensor, int]]):
    """One file a sample. Stash sees which files are opened: nothing here has to tell it."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.rglob("*.npy"))
        if not self.paths:
            raise ValueError(f"{folder} holds no .npy file.")

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        signal = torch.from_numpy(np.load(path).astype(np.float32))
        return signal.unsqueeze(0), int(path.name.split("_")[0])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(1, 32, kernel_size=9, stride=2),
        nn.ReLU(),
        nn.Conv1d(32, 64, kernel_size=9, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def signals(batch_size: int = 32, data: Path | None = None) -> stash.Workload:
    """Stash calls this in every worker, with --batch-size and --data where they were given."""
    return stash.Workload(
        name="signals",
        model=network,
        data=ComputedSignals() if data is None else StoredSignals(data),
        loss=stash.supervised(nn.CrossEntropyLoss()),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        batch_size=batch_size,
    )
