"""A plain training script over a model and the data of the zoo, with a loop of its own."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from stash.hardware.device_names import parse
from stash.workloads import emulated, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    device = parse(options.device)
    workload = train.resolve(options.model, options.data, options.batch_size, device)
    if device.kind == "emulated":
        # As the zoo's workers on such devices, which are not pinned: where two workers read files
        # while they wait, the system puts them on one core for moments.
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        model, optimizer, loss_of = train._prepare(workload, device, torch.device("cpu"), "fp32")
    else:
        model = DistributedDataParallel(workload.build_model().train())
        optimizer, loss_of = workload.optimizer(model.parameters()), workload.loss
    sampler = DistributedSampler(workload.data)  # type: ignore[arg-type, var-annotated]
    loader = DataLoader(
        workload.data,  # type: ignore[arg-type]
        batch_size=options.batch_size,
        sampler=sampler,
        num_workers=options.workers,
        collate_fn=workload.collate,
        persistent_workers=options.workers > 0,
    )
    accelerator = emulated.current()
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for batch in loader:
            loss: torch.Tensor = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if accelerator is not None:
                accelerator.clock.synchronize()  # as a loop does that prints its loss
        epoch += 1


if __name__ == "__main__":
    main()
