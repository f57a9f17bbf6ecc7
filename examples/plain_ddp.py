"""A plain DDP loop over small picture files.

torchrun --nproc-per-node 2 examples/plain_ddp.py --data DIR
stash profile examples/plain_ddp.py --nproc-per-node 2 -- --data DIR
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SIDE = 32
CLASSES = 10


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """One file a picture; the label stands in its name."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.npy"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        pixels = torch.from_numpy(np.load(path)).float() / 255
        return pixels, int(path.stem.split("-")[1])


def write_pictures(folder: Path, count: int) -> None:
    """Something to train on, where there is nothing yet."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(0)
    for number in range(count):
        pixels = chance.integers(0, 256, (3, SIDE, SIDE), dtype=np.uint8)
        np.save(folder / f"{number:05d}-{number % CLASSES}.npy", pixels)


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 15 * 15, CLASSES),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("pictures"))
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()

    dist.init_process_group()
    if dist.get_rank() == 0 and not options.data.exists():
        write_pictures(options.data, 256)
    dist.barrier()
    torch.manual_seed(0)
    data = Pictures(options.data)
    sampler: DistributedSampler[tuple[torch.Tensor, int]] = DistributedSampler(data)
    loader = DataLoader(
        data, batch_size=options.batch_size, sampler=sampler, num_workers=options.workers
    )
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for pixels, labels in loader:
            loss = nn.functional.cross_entropy(model(pixels), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
