"""Gradient accumulation with automatic mixed precision: one optimizer step for four batches.

torchrun --nproc-per-node 2 examples/accumulate_amp.py --steps 20
stash profile examples/accumulate_amp.py --nproc-per-node 2
"""

from __future__ import annotations

import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUMULATE = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(kind, dist.get_rank() % max(1, torch.cuda.device_count()))
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,)))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=options.workers)
    network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(kind)
    half = torch.float16 if kind == "cuda" else torch.bfloat16

    steps = skipped = 0
    while steps < options.steps:
        for number, (inputs, labels) in enumerate(loader):
            last = (number + 1) % ACCUMULATE == 0
            # Gradients travel with the last batch of a step only.
            with contextlib.nullcontext() if last else model.no_sync():
                with torch.autocast(kind, dtype=half):
                    outputs = model(inputs.to(device))
                    loss = nn.functional.cross_entropy(outputs.float(), labels.to(device))
                scaler.scale(loss / ACCUMULATE).backward()
            if not last:
                continue
            scale = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            skipped += scaler.get_scale() < scale
            steps += 1
            if steps == options.steps:
                break
    if dist.get_rank() == 0:
        print(f"{steps} steps, {skipped} skipped, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
