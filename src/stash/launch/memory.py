"""Does it fit? Memory of a training worker, estimated from shapes alone before anything starts."""

from __future__ import annotations

from dataclasses import replace

import torch

from stash.errors import StashError, UsageError
from stash.hardware import gpus, nvml
from stash.hardware.device_names import DeviceName
from stash.hardware.machine import available_memory_bytes
from stash.workloads import layers, train
from stash.workloads.workload import Workload

#: Weight, gradient, momentum and the bucket that carries the gradient, in bytes.
STATE_BYTES_PER_PARAMETER = 16
#: What libraries, the allocator and other processes need on top of the estimate.
USABLE_MEMORY_FRACTION = 0.9


def per_worker_bytes(device: DeviceName, workers: int) -> int:
    """What one worker may use: its device's memory, or its share of the host's."""
    if device.kind == "emulated":
        assert device.gpu is not None
        return int(gpus.find(device.gpu).memory_bytes * USABLE_MEMORY_FRACTION)
    if device.kind == "cuda":
        return int(_free_gpu_bytes(workers) * USABLE_MEMORY_FRACTION)
    return int(available_memory_bytes() * USABLE_MEMORY_FRACTION / workers)


def _free_gpu_bytes(workers: int) -> int:
    """Of the fullest GPU. Asked of NVML where it tells: CUDA itself would take memory there."""
    free = [
        gpu.memory_bytes - gpu.used_bytes
        for gpu in nvml.gpus()[:workers]
        if gpu.memory_bytes is not None and gpu.used_bytes is not None
    ]
    return min(free) if free else int(torch.cuda.mem_get_info()[0])


def largest_batch(workload: Workload, memory_bytes: int) -> int:
    def listed(batch_size: int) -> layers.LayerList:
        return train.layers_of(replace(workload, batch_size=batch_size))

    number = layers.largest_batch(
        listed, memory_bytes, bytes_per_parameter_state=STATE_BYTES_PER_PARAMETER
    )
    if number < 1:
        raise UsageError(
            f"{workload.name} does not fit: not even one sample in "
            f"{memory_bytes / 2**30:.1f} GiB per worker. Use fewer workers or a larger device."
        )
    return number


def check_fits(workload: Workload, memory_bytes: int, device: DeviceName) -> None:
    """Refuse what would bring the machine down, where that can be told from shapes alone."""
    try:
        traced = train.layers_of(workload)
    except UsageError:
        raise
    except StashError:
        if device.kind == "emulated":
            raise
        return  # measurable all the same; only the estimate is missing
    needed = layers.training_memory_bytes(
        traced, bytes_per_parameter_state=STATE_BYTES_PER_PARAMETER
    )
    if needed > memory_bytes:
        fits = largest_batch(workload, memory_bytes)
        raise UsageError(
            f"{workload.name} at batch {workload.batch_size} needs about {needed / 2**30:.1f} GiB "
            f"per worker, and there are {memory_bytes / 2**30:.1f} GiB. "
            f"--batch-size {fits} would fit."
        )
