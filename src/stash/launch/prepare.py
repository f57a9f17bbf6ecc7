"""How a request becomes a plan: defaults that fit, and refusals before anything is started."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from stash.engine.plan import UNREADABLE, Plan
from stash.errors import UsageError, check_positive
from stash.hardware import device_names
from stash.hardware.device_names import DeviceName
from stash.hardware.machine import usable_cores
from stash.launch import script
from stash.launch.rendezvous import environment_of_all
from stash.launch.request import Request
from stash.launch.script import host_arguments, is_script, name_of
from stash.results.steps import (
    CLUSTER_STEPS,
    STEP_BY_NAME,
    possible_cluster_steps,
    usual_steps,
)

if TYPE_CHECKING:
    from stash.workloads.workload import Workload

MAX_LOADER_WORKERS = 8
#: `make oldest` runs the suite with this release; the same number stands in pyproject.toml.
OLDEST_TORCH = (2, 6)


@dataclass(frozen=True)
class Prepared:
    """A request with every default decided: what to write into the plan and what to run."""

    request: Request
    plan: Plan
    workers: int
    script: tuple[str, ...]  # what the engine's host is to run
    found: Mapping[str, str]  # the environment, before anything was imported that adds to it

    @property
    def environment(self) -> dict[str, str]:
        """Of all workers."""
        return environment_of_all(self.found, self.workers, self.request.threads(self.workers))

    def script_in(self, run_folder: Path) -> tuple[str, ...]:
        """As one launch runs it; our own loop is told where to note unreadable samples."""
        if is_script(self.request):
            return self.script
        return (*self.script, "--problems", str(run_folder / UNREADABLE))


def prepare(request: Request, nodes: int = 1) -> Prepared:
    """Decide defaults, and refuse before anything is started what cannot work."""
    found = dict(os.environ)
    check_numbers(request)
    check_torch()
    device = device_names.parse(request.device) if request.device else default_device()
    workers = request.workers_asked or default_workers(device)
    cores = usable_cores()
    plan = Plan(
        seed=request.seed,
        steps=_steps(request.steps, workers, device, nodes),
        half_width=request.half_width,
        max_rounds=request.max_rounds,
        max_seconds=_share(request.max_minutes, request.launches, 60.0),
        max_usd=_share(request.max_usd, request.launches),
        timeout_seconds=request.timeout_seconds,
        workload=name_of(request),
        data="" if request.data is None else str(request.data),
        data_folder=None if request.data is None else str(request.data.absolute()),
        dtype=request.dtype,
        device=str(device),
        pin_cores=device.kind == "cpu" and 1 < workers <= cores,
        keep_tracking=request.keep_tracking,
        instance=None if request.machine_type is None else request.machine_type.name,
        price_usd_per_hour=request.hourly_usd,
        nodes=nodes,
    )
    if is_script(request):
        script.check(request, device)
        return Prepared(request, plan, workers, host_arguments(request), found)
    if request.script_arguments:
        raise UsageError(
            f"{request.workload} takes no arguments of its own: {request.script_arguments}. "
            "Only a script (train.py) or a module (-m) does."
        )
    known, loop = _resolved(request, plan, device, workers, cores)
    return Prepared(request, plan.model_copy(update=known), workers, loop, found)


def _resolved(
    request: Request, plan: Plan, device: DeviceName, workers: int, cores: int
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Our own loop, over a model of the zoo or what a factory returns: what the plan says of it."""
    if plan.nodes > 1:
        check_batch_is_a_number(request)
    loaders = request.num_workers
    if loaders is None:
        loaders = default_loaders(cores, workers)
    workload, batch = _resolve(request, device, workers)
    known = {
        "workload": workload.name,
        "data": _describe_data(request, workload),
        "dtype": request.dtype or "fp32",
    }
    return known, _script(request, device, loaders, batch)


def _share(total: float | None, launches: int, factor: float = 1.0) -> float | None:
    """A limit is for the whole measurement; every launch gets an equal part of it."""
    return None if total is None else total * factor / launches


def check_numbers(request: Request) -> None:
    """Refuse values that no measurement could be made with."""
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
    check_positive(positive)
    if request.num_workers is not None and request.num_workers < 0:
        raise UsageError(f"--num-workers must be 0 or more, not {request.num_workers}.")
    if request.dtype not in (None, "fp32", "amp", "bf16"):
        raise UsageError(f"--dtype is fp32, amp or bf16, not {request.dtype!r}.")
    if request.max_usd is not None and request.hourly_usd is None:
        raise UsageError("--max-usd needs a price: add --price-usd-per-hour or --instance.")


def check_batch_is_a_number(request: Request) -> None:
    """Refuse `max` where several would find it, each by itself: free memory is never the same."""
    if request.batch_size == "max":
        raise UsageError(
            "--batch-size max is found from free memory, here by several nodes or workers, each by "
            "itself: their batches could differ. Profile one machine with `stash profile "
            "--nnodes 1 --batch-size max` first; its report names the batch. Then give that number."
        )


def check_torch() -> None:
    """Say what is too old before it fails in some corner of a worker."""
    found = metadata.version("torch")
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if numbers < OLDEST_TORCH:
        oldest = ".".join(str(part) for part in OLDEST_TORCH)
        raise UsageError(
            f"Stash needs torch {oldest} or newer, and this is {found}. Upgrade torch."
        )


def default_device() -> DeviceName:
    """GPUs where there are some."""
    import torch

    return DeviceName("cuda" if torch.cuda.is_available() else "cpu")


def default_workers(device: DeviceName) -> int:
    """One a GPU, or one a core."""
    if device.kind != "cuda":
        return usable_cores()
    import torch

    return max(1, torch.cuda.device_count())


def default_loaders(cores: int, workers: int) -> int:
    """As many loader workers as a worker has cores to itself, within reason."""
    return max(1, min(MAX_LOADER_WORKERS, cores // workers))


def _steps(
    asked: tuple[str, ...] | None, workers: int, device: DeviceName, nodes: int
) -> tuple[str, ...]:
    """The usual steps, or those asked for where they can be had."""
    if asked is None:
        return usual_steps(workers, has_cuda=device.kind == "cuda", nodes=nodes)
    unknown = [step for step in asked if step not in STEP_BY_NAME]
    if unknown or not asked:
        raise UsageError(f"--steps: {unknown or asked!r}. There are: {', '.join(STEP_BY_NAME)}.")
    if workers == 1 and {"solo", "unsynced"} & set(asked):
        raise UsageError("--steps: solo and unsynced need two workers or more (--nproc-per-node).")
    if "staged" in asked and device.kind != "cuda":
        raise UsageError("--steps: staged needs a CUDA device; elsewhere there is no copy to time.")
    across = [step for step in asked if step in CLUSTER_STEPS]
    impossible = sorted(set(across) - set(possible_cluster_steps(workers, nodes)))
    if impossible:
        raise UsageError(
            f"--steps: {' and '.join(impossible)} need several nodes (--nnodes), and cluster and "
            "spread two workers or more on each."
        )
    return tuple(dict.fromkeys(asked))


def _resolve(request: Request, device: DeviceName, workers: int) -> tuple[Workload, int | None]:
    """Open model and data here first: a mistake is told at once, not by a gang of workers."""
    from stash.launch import memory
    from stash.workloads import train

    asked = request.batch_size
    if isinstance(asked, str) and asked != "max":
        raise UsageError(f"--batch-size is a number or `max`, not {asked!r}.")
    number = asked if isinstance(asked, int) else None
    if number is not None and number < 1:
        raise UsageError(f"--batch-size must be 1 or more, not {number}.")
    workload = train.resolve(request.workload, request.data, number, device)
    _check_own_loader(request, workload)
    available = memory.per_worker_bytes(device, workers)
    if asked == "max":
        number = memory.largest_batch(workload, available)
        workload = replace(workload, batch_size=number)
    memory.check_fits(workload, available, device)
    return workload, number


def _check_own_loader(request: Request, workload: Workload) -> None:
    """A loader that the user brings has its own batch size and workers; say so, do not pretend."""
    from torch.utils.data import DataLoader

    if not isinstance(workload.data, DataLoader):
        return
    ignored = [
        name
        for name, value in (
            ("--batch-size", request.batch_size),
            ("--num-workers", request.num_workers),
        )
        if value is not None
    ]
    if ignored:
        raise UsageError(
            f"{' and '.join(ignored)} would have no effect: {workload.name} brings its own "
            "DataLoader. Set it there, or let the workload give a data set."
        )


def _describe_data(request: Request, workload: Workload) -> str:
    if request.data is not None:
        return str(request.data)
    return "generated" if ":" not in request.workload else type(workload.data).__name__


def _script(
    request: Request, device: DeviceName, loaders: int, batch: int | None
) -> tuple[str, ...]:
    arguments = ["-m", "stash.workloads.train", request.workload, "--device", str(device)]
    arguments += ["--num-workers", str(loaders), "--dtype", request.dtype or "fp32"]
    if batch is not None:
        arguments += ["--batch-size", str(batch)]
    if request.data is not None:
        arguments += ["--data", str(request.data)]
    return tuple(arguments)
