"""What a worker can tell about the workload, the machine and the conditions of a run."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path

import psutil
import torch

from stash import __version__
from stash.engine import limits, pagecache
from stash.engine.devices import Device
from stash.engine.feed import Feeds, Unfed
from stash.engine.gang import Gang
from stash.engine.observe import Loop
from stash.engine.plan import UNREADABLE, Plan
from stash.hardware import nvml
from stash.hardware.machine import available_memory_bytes, this_machine
from stash.results.recording import (
    Calibration,
    Check,
    Facts,
    MachineFacts,
    Rate,
    WorkloadFacts,
)
from stash.workloads import emulated


def gather_facts(
    plan: Plan,
    gang: Gang,
    device: Device,
    feeds: Feeds,
    loop: Loop,
    calibration: Calibration,
    rates: tuple[Rate | None, Rate | None],
) -> Facts:
    """Everything about a launch that does not change from round to round."""
    workload = _workload(plan, feeds, loop)
    machine = machine_facts(plan, gang, device)
    return Facts(
        launch=plan.launch,
        workload=workload,
        machine=machine,
        calibration=calibration,
        preprocessing=rates[0],
        storage=rates[1],
        checks=(
            *limits.checks_of(loop, gang.size, plan.nodes),
            *_node_checks(machine, gang),
            *_checks(workload, machine, feeds, calibration),
        ),
    )


def unreadable_check(run_folder: Path) -> tuple[Check, ...]:
    """Samples that could not be read, named and counted."""
    path = run_folder / UNREADABLE
    if not path.exists():
        return ()
    names = sorted(set(path.read_text(errors="replace").splitlines()))
    if not names:
        return ()
    shown = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
    return (
        Check(
            name="readable data",
            status="warn",
            message=f"{len(names)} file(s) could not be read and were replaced: {shown}"[:4000],
            next="Repair or remove them; timings include the failed attempts.",
        ),
    )


def _workload(plan: Plan, feeds: Feeds, loop: Loop) -> WorkloadFacts:
    accelerator = emulated.current()
    trained = {id(p): p for o in loop.optimizers for g in o.param_groups for p in g["params"]}
    parameters = sum(p.numel() for p in trained.values())
    gradient_bytes = sum(p.numel() * p.element_size() for p in trained.values())
    if accelerator is not None:  # its own tensors may be scaled down
        parameters, gradient_bytes = accelerator.parameters, accelerator.gradient_bytes
    return WorkloadFacts(
        name=plan.workload,
        parameters=parameters,
        gradient_bytes=gradient_bytes,
        optimizer=type(loop.optimizer).__name__,
        batch_per_worker=feeds.batch_size,
        samples=feeds.source.samples(),
        iterations_per_epoch=feeds.available_batches(),
        data=plan.data or _data_of(loop),
        data_bytes=_data_bytes(feeds),
        loader_workers=feeds.source.loader_workers,
        dtype=plan.dtype or loop.dtype,
    )


def _data_of(loop: Loop) -> str:
    """The class of the script's data set, where nobody has named a folder."""
    if loop.origin is None:
        return "the script's own"
    return type(getattr(loop.origin, "dataset", loop.origin)).__name__


def _data_bytes(feeds: Feeds) -> int | None:
    """The whole data set's size, from the mean size of the window's samples."""
    samples = feeds.source.samples()
    window_samples = feeds.window.batches * feeds.batch_size
    if not samples or not window_samples or not feeds.file_bytes or feeds.repeats:
        return None
    if len(feeds.files) < window_samples:  # many samples in one file: its size tells all
        return feeds.file_bytes
    return int(feeds.file_bytes / window_samples * samples)


def machine_facts(plan: Plan, gang: Gang, device: Device) -> MachineFacts:
    """What this gang runs on."""
    here = this_machine()
    per_node = max(1, gang.size // plan.nodes)
    return MachineFacts(
        host=here.host,
        system=here.system,
        cpu=here.cpu,
        cores=here.cores,
        memory_bytes=here.memory_bytes,
        device=plan.device,
        devices=_device_names(plan, per_node, here.cpu),
        device_memory_bytes=device.total_bytes(),
        nodes=plan.nodes,
        hosts=plan.hosts,
        workers_per_node=per_node,
        cores_per_worker=here.cores / per_node,
        threads_per_worker=torch.get_num_threads(),
        pinned=_is_pinned(here.cores),
        backend="nccl" if plan.device == "cuda" else "gloo",
        python=platform.python_version(),
        torch=torch.__version__,
        stash=__version__,
        instance=plan.instance,
        price_usd_per_hour=plan.price_usd_per_hour,
    )


def _is_pinned(cores: int) -> bool:
    """Whether this worker may run on some of the machine's cores only."""
    return hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) < cores


def _device_names(plan: Plan, workers: int, cpu: str) -> tuple[str, ...]:
    if plan.device == "cuda":
        return tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    accelerator = emulated.current()
    return (accelerator.gpu.name if accelerator else cpu,) * workers


def _checks(
    workload: WorkloadFacts,
    machine: MachineFacts,
    feeds: Feeds,
    calibration: Calibration,
) -> Iterable[Check]:
    yield _warm_up(calibration)
    yield from machine_checks(machine)
    yield _loader_cores(workload, machine)
    yield _fits_memory(workload)
    yield from _data_checks(feeds, calibration)


def machine_checks(machine: MachineFacts) -> Iterable[Check]:
    """What must hold of the machine, whatever is measured on it."""
    yield _cores(machine)
    if machine.workers > 1:
        yield _pinning(machine)
    if machine.device == "cuda":
        yield from _gpu_checks()


def _node_checks(machine: MachineFacts, gang: Gang) -> Iterable[Check]:
    """On several nodes: what `cluster` runs, and whether the nodes are alike."""
    here = this_machine()
    everyone = gang.gather([here.cores, here.memory_bytes // 2**30])
    if machine.nodes == 1:
        return
    yield _spreading(machine)
    unlike = [
        f"node {node} has {cores:.0f} cores and {memory:.0f} GiB"
        for node, (cores, memory) in enumerate(everyone[:: machine.workers_per_node])
    ]
    if len({tuple(own) for own in everyone}) == 1:
        yield _passed("nodes alike", f"All nodes have {machine.cores} cores and equal memory.")
    else:
        yield _warned(
            "nodes alike",
            f"Nodes differ: {'; '.join(unlike)}.",
            "Read `interconnect`, `prep` and `fetch` as those of node 0 alone.",
        )


def _spreading(machine: MachineFacts) -> Check:
    """Who runs step cluster: as many workers as one node has, or nobody."""
    workers, nodes = machine.workers_per_node, machine.nodes
    each, more = divmod(workers, nodes)
    if workers == 1:
        return _warned(
            "cluster",
            "One worker on each node cannot be spread, so `network` cannot be told: `scale-out` "
            "(all nodes against one worker alone) is what exchanging across nodes costs.",
            "Use two workers or more on each node for `network`.",
        )
    if each == 0:
        return _warned(
            "cluster",
            f"Step cluster runs {workers} workers, one on each of {workers} nodes; "
            f"{nodes - workers} node(s) have none.",
            f"Use {nodes} workers on each node, or a multiple, to measure all links alike.",
        )
    if more:
        return _warned(
            "cluster",
            f"{workers} workers cannot be spread evenly over {nodes} nodes: step cluster runs "
            f"{each + 1} on each of the first {more} and {each} on the others.",
            f"Use a multiple of {nodes} workers on each node for an even spread.",
        )
    return _passed("cluster", f"Step cluster runs {each} worker(s) on each of {nodes} nodes.")


def _warm_up(calibration: Calibration) -> Check:
    count = calibration.warm_up_iterations
    if calibration.warm_up_settled:
        return _passed("warm-up", f"Iterations settled after {count}.")
    return _warned(
        "warm-up",
        f"Iterations had not settled after {count}.",
        "Something else may load the machine; look at `stash doctor`.",
    )


def _cores(machine: MachineFacts) -> Check:
    wanted = machine.workers_per_node * machine.threads_per_worker
    text = f"{machine.workers_per_node} workers x {machine.threads_per_worker} threads"
    if machine.device != "cpu" or wanted <= machine.cores:
        return _passed("cores", f"{text} on {machine.cores} cores.")
    return _warned(
        "cores",
        f"{text} on {machine.cores} cores: workers take turns, which reads as contention.",
        f"Use --nproc-per-node {max(1, machine.cores // machine.threads_per_worker)} or fewer.",
    )


def _loader_cores(workload: WorkloadFacts, machine: MachineFacts) -> Check:
    computing = machine.workers_per_node if machine.device == "cpu" else 0
    loaders = workload.loader_workers * machine.workers_per_node
    text = f"{loaders} loader workers" + (f" beside {computing} computing" if computing else "")
    if loaders + computing <= machine.cores:
        return _passed("loader cores", f"{text} on {machine.cores} cores.")
    return _warned(
        "loader cores",
        f"{text} share {machine.cores} cores, so part of `prep` is a wait for cores.",
        "This is what training here costs, too; more cores or fewer loader workers change it.",
    )


def _pinning(machine: MachineFacts) -> Check:
    if machine.pinned:
        return _passed("pinning", "Every worker has its own cores.")
    if machine.device != "cpu":
        return _passed("pinning", "Workers are not pinned; their devices compute, not the cores.")
    return _warned(
        "pinning",
        "Workers are not pinned to cores and may displace each other.",
        "Give each worker whole cores: as many workers as cores, or fewer.",
    )


def _fits_memory(workload: WorkloadFacts) -> Check:
    available = available_memory_bytes()
    size = workload.data_bytes
    if size is None or size <= available:
        return _passed("data in memory", "The data set fits in free memory, as far as is known.")
    return _warned(
        "data in memory",
        f"The data set ({size / 2**30:.1f} GiB) is larger than free memory "
        f"({available / 2**30:.1f} GiB): later epochs lie between `warm` and `cold`.",
        "Add memory, or put a smaller copy of the data on the machine.",
    )


def _data_checks(feeds: Feeds, calibration: Calibration) -> Iterable[Check]:
    if calibration.replay_shapes_vary:
        yield _warned(
            "shapes",
            "Batches differ in shape; replay uses those of the window, as warm and cold do.",
            "Raise --batch-size or pad samples if intervals stay wide.",
        )
    if feeds.repeats:
        yield _warned(
            "window",
            "One epoch is shorter than a loader block, so samples repeat within it.",
            "Use more data or a smaller batch; until then read `fetch` as a lower bound.",
        )
    if isinstance(feeds, Unfed):
        return
    if not feeds.files:
        yield _warned(
            "data files",
            "No file was seen to be read, so cold cannot differ from warm.",
            "Name the folder that holds the data with --data.",
        )
        return
    remote = pagecache.remote_file_system(feeds.files[0])
    if remote is not None:
        yield _warned(
            "file system",
            f"The data lies on {remote}, whose server keeps a cache that we cannot empty: "
            "cold is unproven.",
            "Read `fetch` as a lower bound, or copy the data to a local disk.",
        )
    if pagecache.storage_bytes_read() is None:
        yield _warned(
            "storage counters",
            "This system does not count what processes read from storage: cold is unproven.",
            "Read `fetch` as a lower bound, or measure it on Linux.",
        )
    if not pagecache.can_evict():
        yield _warned(
            "eviction",
            "This system cannot drop files from memory, so cold cannot differ from warm.",
            "Measure `fetch` on Linux.",
        )


def _gpu_checks() -> Iterable[Check]:
    above = psutil.Process().parents()  # the agent, the launcher and whoever started them
    beside = above[0].children(recursive=True) if above else []
    own = {process.pid for process in (*above, *beside)}
    for gpu in nvml.gpus():
        # In a container the driver tells numbers that mean nothing here, our own among them.
        others = [pid for pid in gpu.processes if pid not in own and psutil.pid_exists(pid)]
        if others:
            yield _warned(
                f"gpu {gpu.index} shared",
                f"{len(others)} other process(es) use GPU {gpu.index}.",
                "End them, or choose free GPUs with CUDA_VISIBLE_DEVICES.",
            )
        if gpu.throttled:
            yield _warned(
                f"gpu {gpu.index} clock",
                f"GPU {gpu.index} is slowed down by heat or power.",
                "Check cooling and power limits; stalls read smaller on a slowed GPU.",
            )


def _passed(name: str, message: str) -> Check:
    return Check(name=name, status="pass", message=message)


def _warned(name: str, message: str, next_step: str) -> Check:
    return Check(name=name, status="warn", message=message, next=next_step)
