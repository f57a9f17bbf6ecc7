"""A training script as people write them. Its compute sleeps, so that its stalls are known."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Slow(torch.autograd.Function):
    """Takes its time in the backward pass; gradients before it are ready only then."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(ctx.seconds)
        return gradients[0], None


class Net(nn.Module):
    """One tensor of weights, in front of all that takes time: nothing hides its exchange."""

    def __init__(self, gradient_bytes: int, seconds: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(gradient_bytes // 4))
        self.seconds = seconds

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds / 2)
        return Slow.apply(self.weight.sum(), self.seconds / 2) * batch.float().mean()


class Data(Dataset[int]):
    """Numbers that take a while, or files that have to be read."""

    def __init__(self, samples: int, seconds: float, files: Path | None) -> None:
        self.samples = samples
        self.seconds = seconds
        self.files = files

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        if self.seconds:
            time.sleep(self.seconds)
        if self.files is not None:
            with (self.files / str(index)).open("rb", buffering=0) as file:
                return len(file.read(1 << 20))
        return index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compute-seconds", type=float, required=True)
    parser.add_argument("--prepare-seconds", type=float, default=0.0, help="of a sample")
    parser.add_argument("--files", type=Path)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--gradient-bytes", type=int, required=True)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    net = Net(options.gradient_bytes, options.compute_seconds)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Data(options.samples, options.prepare_seconds, options.files)
    sampler: DistributedSampler[int] = DistributedSampler(data)
    loader = DataLoader(
        data,
        batch_size=options.batch_size,
        sampler=sampler,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    for epoch in range(100):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
