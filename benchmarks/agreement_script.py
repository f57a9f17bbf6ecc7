"""A plain training script over a model and the data of the zoo, with a loop of its own."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from stash.workloads import zoo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    workload = zoo.build(options.model, data=options.data, batch_size=options.batch_size)
    model = DistributedDataParallel(workload.build_model().train())
    optimizer = workload.optimizer(model.parameters())
    sampler = DistributedSampler(workload.data)  # type: ignore[arg-type, var-annotated]
    loader = DataLoader(
        workload.data,  # type: ignore[arg-type]
        batch_size=options.batch_size,
        sampler=sampler,
        num_workers=options.workers,
        collate_fn=workload.collate,
        persistent_workers=options.workers > 0,
    )
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for batch in loader:
            loss: torch.Tensor = workload.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        epoch += 1


if __name__ == "__main__":
    main()
