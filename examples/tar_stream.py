"""A stream of tar files, WebDataset style: samples can only be had one after the other.

torchrun --nproc-per-node 2 examples/tar_stream.py --data shards --steps 20
stash profile examples/tar_stream.py --nproc-per-node 2 -- --data shards
"""

from __future__ import annotations

import argparse
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FEATURES = 512


class TarStream(IterableDataset[tuple[torch.Tensor, int]]):
    """Shards are dealt out to workers and their loader workers; a label belongs to each array."""

    def __init__(self, shards: list[Path]) -> None:
        self.shards = shards

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        info = get_worker_info()
        loaders, loader = (1, 0) if info is None else (info.num_workers, info.id)
        first, count = dist.get_rank() * loaders + loader, dist.get_world_size() * loaders
        for shard in self.shards[first::count]:
            with tarfile.open(shard, "r|") as tar:
                for member in tar:
                    file = tar.extractfile(member)
                    assert file is not None
                    array = np.load(io.BytesIO(file.read()))
                    yield torch.from_numpy(array), int(member.name.split(".")[1])


def write_shards(folder: Path, shards: int, samples: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(0)
    for shard in range(shards):
        with tarfile.open(folder / f"{shard:04d}.tar", "w") as tar:
            for number in range(samples):
                content = io.BytesIO()
                np.save(content, chance.standard_normal(FEATURES, dtype=np.float32))
                member = tarfile.TarInfo(f"{number:06d}.{number % 10}.npy")
                member.size = content.tell()
                content.seek(0)
                tar.addfile(member, content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("shards"))
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    if dist.get_rank() == 0 and not options.data.exists():
        write_shards(options.data, 8, 128)
    dist.barrier()
    torch.manual_seed(0)
    stream = TarStream(sorted(options.data.glob("*.tar")))
    loader = DataLoader(stream, batch_size=16, num_workers=options.workers)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = 0
    while steps < options.steps:
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps == options.steps:
                break
    if dist.get_rank() == 0:
        print(f"{steps} steps, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
