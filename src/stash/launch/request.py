"""What a user asks for and how it becomes a plan: defaults that fit, checks beforehand."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from stash.engine.facts import UNREADABLE
from stash.engine.plan import Plan
from stash.errors import UsageError
from stash.hardware import device_names
from stash.hardware.device_names import DeviceName
from stash.hardware.machine import usable_cores
from stash.results.steps import DEFAULT_STEPS, STEP_BY_NAME
from stash.results.store import DEFAULT_FOLDER

if TYPE_CHECKING:
    from stash.workloads.workload import Workload

MAX_LOADER_WORKERS = 8
#: Weight, gradient, momentum and the bucket that carries the gradient, in bytes.
STATE_BYTES_PER_PARAMETER = 16
#: What libraries, the allocator and other processes need on top of the estimate.
USABLE_MEMORY_FRACTION = 0.9


@dataclass(frozen=True, kw_only=True)
class Request:
    """One `stash profile`, in torchrun's own words where it has some."""

    workload: str
    nproc_per_node: int | None = None
    batch_size: int | str | None = None  # a number, `max`, or the workload's own default
    data: Path | None = None
    num_workers: int | None = None
    device: str | None = None
    dtype: str = "fp32"
    steps: tuple[str, ...] | None = None
    half_width: float = 0.03
    launches: int = 1
    max_minutes: float | None = 10.0
    max_rounds: int | None = None
    max_usd: float | None = None
    timeout_seconds: float = 300.0
    price_usd_per_hour: float | None = None
    seed: int = 0
    out: Path = DEFAULT_FOLDER


@dataclass(frozen=True)
class Prepared:
    """A request with every default decided: what to write into the plan and what to run."""

    request: Request
    plan: Plan
    workers: int
    threads: int
    script: tuple[str, ...]  # module and arguments of the training script

    def script_in(self, run_folder: Path) -> tuple[str, ...]:
        """The script as one launch runs it, with where to note samples that cannot be read."""
        return (*self.script, "--problems", str(run_folder / UNREADABLE))


def prepare(request: Request) -> Prepared:
    """Decide defaults, and refuse before anything is started what cannot work."""
    _check_numbers(request)
    device = device_names.parse(request.device) if request.device else _default_device()
    workers = request.nproc_per_node or _default_workers(device)
    cores = usable_cores()
    loaders = (
        _default_loaders(cores, workers) if request.num_workers is None else request.num_workers
    )
    workload, batch = _resolve(request, device, workers)
    steps = _steps(request.steps, workers, device)
    pin = device.kind == "cpu" and 1 < workers <= cores
    plan = Plan(
        seed=request.seed,
        steps=steps,
        half_width=request.half_width,
        max_rounds=request.max_rounds,
        max_seconds=None if request.max_minutes is None else request.max_minutes * 60.0,
        max_usd=request.max_usd,
        timeout_seconds=request.timeout_seconds,
        workload=workload.name,
        data=_describe_data(request, workload),
        data_folder=None if request.data is None else str(request.data.resolve()),
        dtype=request.dtype,
        device=str(device),
        pin_cores=pin,
        price_usd_per_hour=request.price_usd_per_hour,
    )
    threads = max(1, cores // workers)
    return Prepared(request, plan, workers, threads, _script(request, device, loaders, batch))


def _check_numbers(request: Request) -> None:
    positive = {
        "--nproc-per-node": request.nproc_per_node,
        "--launches": request.launches,
        "--half-width": request.half_width,
        "--max-minutes": request.max_minutes,
        "--max-usd": request.max_usd,
        "--timeout": request.timeout_seconds,
        "--price-usd-per-hour": request.price_usd_per_hour,
        "--max-rounds": request.max_rounds,
    }
    for name, value in positive.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise UsageError(f"{name} must be above 0, not {value}.")
    if request.num_workers is not None and request.num_workers < 0:
        raise UsageError(f"--num-workers must be 0 or more, not {request.num_workers}.")
    if request.dtype not in ("fp32", "amp", "bf16"):
        raise UsageError(f"--dtype is fp32, amp or bf16, not {request.dtype!r}.")
    if request.max_usd is not None and request.price_usd_per_hour is None:
        raise UsageError("--max-usd needs a price: add --price-usd-per-hour.")


def _default_device() -> DeviceName:
    import torch

    return DeviceName("cuda" if torch.cuda.is_available() else "cpu")


def _default_workers(device: DeviceName) -> int:
    if device.kind != "cuda":
        return usable_cores()
    import torch

    return max(1, torch.cuda.device_count())


def _default_loaders(cores: int, workers: int) -> int:
    """As many loader workers as a worker has cores to itself, within reason."""
    return max(1, min(MAX_LOADER_WORKERS, cores // workers))


def _steps(asked: tuple[str, ...] | None, workers: int, device: DeviceName) -> tuple[str, ...]:
    """The steps that make sense: with one worker there is nobody to exchange with."""
    if asked is None:
        usual = DEFAULT_STEPS if workers > 1 else ("node", "warm", "cold")
        return (*usual, "staged") if device.kind == "cuda" else usual
    unknown = [step for step in asked if step not in STEP_BY_NAME]
    if unknown or not asked:
        raise UsageError(f"--steps: {unknown or asked!r}. There are: {', '.join(STEP_BY_NAME)}.")
    if workers == 1 and {"solo", "unsynced"} & set(asked):
        raise UsageError("--steps: solo and unsynced need two workers or more (--nproc-per-node).")
    if "staged" in asked and device.kind != "cuda":
        raise UsageError("--steps: staged needs a CUDA device; elsewhere there is no copy to time.")
    return tuple(dict.fromkeys(asked))


def _resolve(request: Request, device: DeviceName, workers: int) -> tuple[Workload, int | None]:
    """Open model and data here first: a mistake is told at once, not by a gang of workers."""
    from stash.workloads import train

    asked = request.batch_size
    if isinstance(asked, str) and asked != "max":
        raise UsageError(f"--batch-size is a number or `max`, not {asked!r}.")
    number = asked if isinstance(asked, int) else None
    if number is not None and number < 1:
        raise UsageError(f"--batch-size must be 1 or more, not {number}.")
    workload = train.resolve(request.workload, request.data, number, device)
    memory = _memory_bytes(device, workers)
    if asked == "max":
        number = _largest_batch(workload, memory)
        workload = replace(workload, batch_size=number)
    _check_memory(workload, memory, device)
    return workload, number


def _memory_bytes(device: DeviceName, workers: int) -> int:
    """What one worker may use: its device's memory, or its share of the host's."""
    if device.kind == "emulated":
        from stash.hardware import gpus

        assert device.gpu is not None
        return int(gpus.find(device.gpu).memory_bytes * USABLE_MEMORY_FRACTION)
    if device.kind == "cuda":
        import torch

        return int(torch.cuda.mem_get_info()[0] * USABLE_MEMORY_FRACTION)
    return int(psutil.virtual_memory().available * USABLE_MEMORY_FRACTION / workers)


def _largest_batch(workload: Workload, memory_bytes: int) -> int:
    from stash.workloads import train
    from stash.workloads.layers import LayerList, largest_batch

    def layers(batch_size: int) -> LayerList:
        return train.layers_of(replace(workload, batch_size=batch_size))

    number = largest_batch(
        layers, memory_bytes, bytes_per_parameter_state=STATE_BYTES_PER_PARAMETER
    )
    if number < 1:
        raise UsageError(
            f"{workload.name} does not fit: not even one sample in "
            f"{memory_bytes / 2**30:.1f} GiB per worker. Use fewer workers or a larger device."
        )
    return number


def _check_memory(workload: Workload, memory_bytes: int, device: DeviceName) -> None:
    """Refuse what would bring the machine down, where that can be told from shapes alone."""
    from stash.errors import StashError
    from stash.workloads import train
    from stash.workloads.layers import training_memory_bytes

    try:
        layers = train.layers_of(workload)
    except StashError:
        if device.kind == "emulated":
            raise
        return  # measurable all the same; only the estimate is missing
    needed = training_memory_bytes(layers, bytes_per_parameter_state=STATE_BYTES_PER_PARAMETER)
    if needed > memory_bytes:
        fits = _largest_batch(workload, memory_bytes)
        raise UsageError(
            f"{workload.name} at batch {workload.batch_size} needs about {needed / 2**30:.1f} GiB "
            f"per worker, and there are {memory_bytes / 2**30:.1f} GiB. "
            f"--batch-size {fits} would fit (or --batch-size max)."
        )


def _describe_data(request: Request, workload: Workload) -> str:
    if request.data is not None:
        return str(request.data)
    return "generated" if ":" not in request.workload else type(workload.data).__name__


def _script(
    request: Request, device: DeviceName, loaders: int, batch: int | None
) -> tuple[str, ...]:
    arguments = ["stash.workloads.train", request.workload, "--device", str(device)]
    arguments += ["--num-workers", str(loaders), "--dtype", request.dtype]
    if batch is not None:
        arguments += ["--batch-size", str(batch)]
    if request.data is not None:
        arguments += ["--data", str(request.data)]
    return tuple(arguments)
