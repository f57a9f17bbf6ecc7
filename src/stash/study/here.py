"""Cells of this machine: measured one at a time, each kept as soon as it is complete."""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from stash.errors import StashError, UsageError
from stash.hardware import device_names, gpus
from stash.hardware.device_names import DeviceName
from stash.hardware.gpus import Gpu
from stash.hardware.machine import usable_cores
from stash.results.links import Links
from stash.results.profile import Profile, Provenance
from stash.results.steps import usual_steps
from stash.study.document import StudiedMachine
from stash.study.plan import Batch, Plan

if TYPE_CHECKING:
    from stash.launch.request import Request

#: A run ends before a round that would not fit its time, so more of it has room for two.
MORE_ROUNDS = 2
#: Unfinished measurements, beside the folder of finished cells.
UNDER_WAY = "under-way"
MICRO_STEPS = ("solo", "unsynced", "node")


class UnlikeCellError(UsageError):
    """What an earlier run has left is not of this study; no other cell of it can be, either."""


class DoesNotFitError(StashError):
    """The model at this batch is larger than the device's memory."""


def machine(plan: Plan) -> StudiedMachine:
    """This machine as a study names it."""
    device, workers, gpu = _device(plan)
    assert plan.here is not None
    each = None if plan.here.links is None else _bytes_per_second_each(plan.here.links)
    if plan.kind == "micro" and workers < 2:
        raise UsageError("A micro study is of exchange: it needs --nproc-per-node 2 or more.")
    return StudiedMachine(
        name=f"here: {workers}x {device}",
        family=device.kind.upper() if gpu is None else family(gpu),
        gpus_per_node=workers,
        nodes=1,
        price_usd_per_hour=plan.here.price_usd_per_hour,
        bytes_per_second_per_gpu=each,
        bandwidth_provenance=None if each is None else Provenance.MEASURED,
    )


def _bytes_per_second_each(path: Path) -> float | None:
    """What every device gets when all of them copy at once, as `stash links` found."""
    shared = {one.kind: one for one in Links.load(path).shared}
    found = shared.get("host-to-device") or shared.get("memory")
    if found is None:
        return None
    together = max(found.counts, key=lambda one: one.at_once)
    return together.bytes_per_second_each.estimate


def family(gpu: Gpu) -> str:
    """The chip that GPUs of several sizes share."""
    return gpu.key.split("-")[0].upper()


def memory_gib(plan: Plan) -> float:
    """Of one device; of a processor none is a GPU's."""
    gpu = _device(plan)[2]
    return 0.0 if gpu is None else gpu.memory_bytes / 2**30


def byte_scale(plan: Plan) -> float:
    """What an emulated device makes of gradients."""
    return _device(plan)[0].byte_scale


def resolve_batch(plan: Plan, model: str, batch: Batch) -> int:
    """The batch as a number that fits, or DoesNotFitError."""
    device, workers, _ = _device(plan)
    assert plan.here is not None
    largest = _largest_batch(model, plan.here.data, device, workers)
    if largest < 1:
        raise DoesNotFitError("Not even one sample fits.")
    if batch == "max":
        return largest
    if batch > largest:
        raise DoesNotFitError(f"The largest batch that fits is {largest}.")
    return batch


@cache
def _largest_batch(model: str, data: Path | None, device: DeviceName, workers: int) -> int:
    """0 when not even one sample fits."""
    from stash.launch import memory
    from stash.workloads import train

    workload = train.resolve(model, data, None, device)
    try:
        return memory.largest_batch(workload, memory.per_worker_bytes(device, workers))
    except UsageError:
        return 0


def check(plan: Plan) -> None:
    """Refuse once what would fail in every cell."""
    from stash.launch.prepare import check_numbers

    check_numbers(_request(plan, model="", batch=1, repeat=1))


def measure(plan: Plan, model: str, batch: int, repeat: int) -> Profile:
    """Measure one cell; KeyboardInterrupt where the user has had enough."""
    from stash.launch.api import measure as launch

    done = launch(_request(plan, model, batch, repeat))
    if done.exit_code == 3:
        raise KeyboardInterrupt
    if done.exit_code:
        raise StashError(f"{done.profile.run.message} What there is of it: {done.path}")
    done.path.unlink()
    with contextlib.suppress(OSError):  # what a failed cell has left there is kept
        done.path.parent.rmdir()
    return done.profile


def _request(plan: Plan, model: str, batch: int, repeat: int) -> Request:
    from stash.launch.request import Request

    assert plan.here is not None
    here = plan.here
    return Request(
        workload=model,
        nproc_per_node=here.nproc_per_node,
        batch_size=batch,
        data=here.data,
        num_workers=here.num_workers,
        device=here.device,
        dtype=plan.dtype,
        steps=_steps(plan),
        half_width=here.half_width,
        max_minutes=here.max_minutes,
        price_usd_per_hour=here.price_usd_per_hour,
        seed=repeat,
        out=plan.folder / UNDER_WAY,
    )


def kept(plan: Plan, path: Path) -> Profile | None:
    """A cell of an earlier run that need not be measured again."""
    if not path.is_file():
        return None
    try:
        profile = Profile.load(path)
    except StashError:
        return None  # damaged
    _check_same(profile, plan, path)
    return None if _has_time_for_more(profile, plan) else profile


def _check_same(profile: Profile, plan: Plan, path: Path) -> None:
    """Refuse a cell that was measured in another way, by what differs."""
    import torch

    assert plan.here is not None
    workload, machine = profile.workload, profile.machine
    for what, before, now in (
        ("data", workload.data, str(plan.here.data or "generated")),
        ("loader workers", workload.loader_workers, _loader_workers(plan)),
        ("torch", machine.torch, str(torch.__version__)),
    ):
        if before != now:
            raise UnlikeCellError(
                f"{path} was measured with {what} {before}, and this study has {now}. "
                "Name another folder with --out."
            )
    missing = [step for step in _steps(plan) if step not in profile.steps]
    if missing:
        raise UnlikeCellError(
            f"{path} was measured without {' and '.join(missing)}, which a {plan.kind} study "
            "compares. Name another folder with --out."
        )


def _loader_workers(plan: Plan) -> int:
    from stash.launch import prepare

    assert plan.here is not None
    if plan.here.num_workers is not None:
        return plan.here.num_workers
    return prepare.default_loaders(usable_cores(), _device(plan)[1])


def _steps(plan: Plan) -> tuple[str, ...]:
    device, workers, _ = _device(plan)
    if plan.kind == "micro":
        return MICRO_STEPS
    return usual_steps(workers, has_cuda=device.kind == "cuda")


def _has_time_for_more(profile: Profile, plan: Plan) -> bool:
    """Whether a cell whose time was over before it was sure enough is given more of it now."""
    assert plan.here is not None
    run = profile.run
    if run.stopped_because != "max-minutes":
        return False
    needed = run.measuring_seconds * (1 + MORE_ROUNDS / run.rounds)
    return needed <= 60 * plan.here.max_minutes


def _device(plan: Plan) -> tuple[DeviceName, int, Gpu | None]:
    from stash.launch import prepare

    assert plan.here is not None
    asked = plan.here.device
    device = device_names.parse(asked) if asked else prepare.default_device()
    workers = plan.here.nproc_per_node or prepare.default_workers(device)
    if device.gpu is not None:
        return device, workers, gpus.find(device.gpu)
    return device, workers, _cuda_gpu() if device.kind == "cuda" else None


def _cuda_gpu() -> Gpu | None:
    import torch

    return gpus.recognise(torch.cuda.get_device_name(0))
