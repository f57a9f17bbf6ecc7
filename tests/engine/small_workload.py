"""A net of many small tensors, for tests that count messages."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

import stash


def small() -> stash.Workload:
    return stash.Workload(
        name="small",
        model=nn.Sequential(*[nn.Linear(64, 64) for _ in range(15)]),
        data=TensorDataset(torch.randn(64, 64), torch.randn(64, 64)),
        loss=stash.supervised(nn.MSELoss()),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        batch_size=4,
    )
