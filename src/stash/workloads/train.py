"""An ordinary DDP training script over a workload: the same under torchrun and on the engine.

torchrun --nproc-per-node 2 -m stash.workloads.train resnet18 --iterations 50
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from stash.errors import StashError, UsageError
from stash.hardware.device_names import DeviceName, parse
from stash.workloads import zoo
from stash.workloads.emulated import Accelerator, EmulatedModel, EmulatedOptimizer
from stash.workloads.factory import call_factory, load_factory
from stash.workloads.layers import LayerList, list_layers
from stash.workloads.workload import Batch, Workload, move

#: PyTorch's own bucket sizes (the first, all others), to be scaled with an emulated device's bytes.
BUCKET_CAPS_MIB = (1.0, 25.0)

#: Read to learn the shapes of a batch; not one, which batch norm refuses to train on.
EXAMPLE_SAMPLES = 2

#: For gloo's threads to come to rest after the last exchange.
QUIET_SECONDS = 0.2

Loss = Callable[[nn.Module, Batch], torch.Tensor]


def main(arguments: list[str] | None = None) -> None:
    """Train until told to stop."""
    options = _parse(arguments)
    device_name = parse(options.device)
    workload = resolve(
        options.workload, options.data, options.batch_size, device_name, options.problems
    )
    device = _torch_device(device_name)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    model, optimizer, loss = _prepare(workload, device_name, device, options.dtype)
    loader = make_loader(workload, options.num_workers, pin_memory=device.type == "cuda")
    _train(model, optimizer, loss, loader, device, options)
    _leave_group()


def _leave_group() -> None:
    """End the exchange while its threads are idle.

    After an exchange gloo's threads still drop Python objects, for which they need the interpreter;
    a group that is destroyed together with its model waits for them without letting go of it
    (seen with torch 2.13: a worker that never ends).
    """
    dist.barrier()
    time.sleep(QUIET_SECONDS)
    dist.destroy_process_group()


def resolve(
    spec: str,
    data: Path | None,
    batch_size: int | None,
    device: DeviceName,
    problems: Path | None = None,
) -> Workload:
    """The workload that a name in the zoo or a `file.py:factory` stands for."""
    if ":" in spec:
        return call_factory(load_factory(spec), batch_size=batch_size, data=data)
    kind: zoo.DeviceKind = "cpu" if device.kind == "cpu" else "accelerator"
    return zoo.build(spec, data=data, batch_size=batch_size, device_kind=kind, problems=problems)


def make_loader(workload: Workload, num_workers: int, *, pin_memory: bool) -> DataLoader[Any]:
    """The user's own loader, or one over the workload's data set, sharded over the workers."""
    if isinstance(workload.data, DataLoader):
        return workload.data
    endless = isinstance(workload.data, IterableDataset)
    sampler: Any = None if endless else DistributedSampler(workload.data)
    return DataLoader(
        workload.data,
        batch_size=workload.batch_size,
        sampler=sampler,
        num_workers=num_workers,
        collate_fn=workload.collate,
        pin_memory=pin_memory,
        persistent_workers=num_workers > 0,
    )


def layers_of(workload: Workload) -> LayerList:
    """The workload's layers at its batch size, from the shapes of two real samples."""
    batch = _example(workload)
    try:
        return list_layers(workload.build_model, workload.loss, batch)
    except StashError:
        raise
    except Exception as error:
        raise StashError(
            f"The model of {workload.name} cannot be built without memory, so its layers are not "
            f"known ({type(error).__name__}: {error}). It can be measured, but not emulated."
        ) from error


def _example(workload: Workload) -> Batch:
    """A batch as the data set gives it; one that cannot be read is the user's to mend."""
    data = workload.data
    try:
        if isinstance(data, DataLoader):
            return next(iter(data))
        few = DataLoader(data, batch_size=EXAMPLE_SAMPLES, collate_fn=workload.collate)
        return _widened(next(iter(few)), workload.batch_size)
    except StopIteration:
        raise UsageError(f"The data of {workload.name} holds not one sample.") from None
    except StashError as error:
        raise UsageError(error.message) from error
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"The data of {workload.name} cannot be read: {type(error).__name__}: {error} "
            f"({frame.filename}:{frame.lineno}, in {frame.name})."
        ) from error


def _widened(batch: Batch, batch_size: int) -> Batch:
    """The same batch with more samples, without memory: only shapes are wanted."""
    if isinstance(batch, torch.Tensor):
        if batch.dim() == 0 or batch.shape[0] != EXAMPLE_SAMPLES:
            return batch
        return torch.empty((batch_size, *batch.shape[1:]), dtype=batch.dtype, device="meta")
    if isinstance(batch, dict):
        return {key: _widened(value, batch_size) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        parts = [_widened(part, batch_size) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


def _prepare(
    workload: Workload, name: DeviceName, device: torch.device, dtype: str
) -> tuple[nn.Module, torch.optim.Optimizer, Loss]:
    if name.kind == "emulated":
        accelerator = Accelerator(name, layers_of(workload), dtype)
        # Gradients stay inside the buckets: nothing is copied, as little as on a GPU.
        emulated_model = DistributedDataParallel(
            EmulatedModel(accelerator), gradient_as_bucket_view=True, **_buckets(name)
        )
        optimizer = EmulatedOptimizer(emulated_model.parameters(), accelerator)
        return emulated_model, optimizer, lambda model, batch: model(batch)
    model = workload.build_model().to(device).train()
    devices = [device.index] if device.type == "cuda" else None
    wrapped = DistributedDataParallel(model, device_ids=devices)
    return wrapped, workload.optimizer(wrapped.parameters()), workload.loss


def _buckets(name: DeviceName) -> dict[str, Any]:
    """PyTorch's own buckets, or where bytes are scaled the same buckets in scaled sizes."""
    if name.byte_scale == 1:
        return {}
    first, others = (cap * name.byte_scale for cap in BUCKET_CAPS_MIB)
    if "bucket_cap_mb_list" in inspect.signature(DistributedDataParallel).parameters:
        return {"bucket_cap_mb_list": [first, others]}
    # Older releases (before 2.13) cut the first bucket by this documented setting.
    dist._DEFAULT_FIRST_BUCKET_BYTES = int(first * 2**20)  # type: ignore[attr-defined]
    return {"bucket_cap_mb": others}


def _train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    loader: DataLoader[Any],
    device: torch.device,
    options: argparse.Namespace,
) -> None:
    scaler = torch.amp.GradScaler(enabled=options.dtype == "amp" and device.type == "cuda")
    autocast = _autocast(options.dtype, device)
    left = options.iterations
    for epoch in range(options.epochs) if options.epochs else itertools.count():
        began = time.perf_counter()
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for batch in loader:
            with autocast:
                value = loss(model, move(batch, device, non_blocking=True))
            optimizer.zero_grad()
            scaler.scale(value).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
            left -= 1
            if left == 0:
                return
        if options.epochs and dist.get_rank() == 0:
            print(f"epoch {epoch} seconds {time.perf_counter() - began:.6f}", flush=True)


def _autocast(dtype: str, device: torch.device) -> torch.autocast:
    half = torch.float16 if dtype == "amp" and device.type == "cuda" else torch.bfloat16
    return torch.autocast(device.type, dtype=half, enabled=dtype != "fp32")


def _torch_device(name: DeviceName) -> torch.device:
    if name.kind != "cuda":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="stash.workloads.train", description=__doc__)
    parser.add_argument("workload", help="a model of the zoo, or path/file.py:factory")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("fp32", "amp", "bf16"), default="fp32")
    parser.add_argument("--iterations", type=int, default=-1, help="stop after so many")
    parser.add_argument("--epochs", type=int, help="stop after so many, printing each one's time")
    parser.add_argument("--problems", type=Path, help="file for the names of unreadable samples")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
