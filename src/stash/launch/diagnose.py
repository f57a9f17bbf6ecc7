"""Finds out what this machine can measure; the noise floor comes from a real, short run."""

from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path

from stash.engine import pagecache
from stash.errors import StashError, UsageError
from stash.hardware import nvml
from stash.hardware.machine import available_memory_bytes, this_machine
from stash.launch.api import measure
from stash.launch.request import Request
from stash.results.document import Count, Model, Name, Positive, Quantity, Signed, Text
from stash.results.recording import Check
from stash.results.steps import DEFAULT_STEPS

PROBE_BYTES = 4 << 20


class GpuSeen(Model):
    """One GPU and who uses it."""

    index: Count
    name: Text
    memory_bytes: Count | None
    used_bytes: Count | None
    processes: Count
    throttled: bool


class Noise(Model):
    """One step against itself."""

    rounds: Count
    percent: Signed
    detectable_percent: Quantity
    significant: bool


class Diagnosis(Model):
    """What this machine is and can."""

    host: Name
    system: Text
    cpu: Text
    cores: Positive
    memory_bytes: Count
    available_bytes: Count
    workers: Positive
    python: Name
    torch: Name
    gpus: tuple[GpuSeen, ...]
    topology: tuple[tuple[int, int, str], ...]
    cold: Check
    steps: tuple[Name, ...]
    missing_steps: dict[Name, Text]
    noise: Noise | None


def diagnose(folder: Path, workers: int | None, *, noise_minutes: float | None) -> Diagnosis:
    """Look at everything; measure the noise floor if given time for it."""
    import torch

    if workers is not None and workers < 1:
        raise UsageError(f"--nproc-per-node must be above 0, not {workers}.")
    machine = this_machine()
    gpus = nvml.gpus()
    count = workers or len(gpus) or machine.cores
    cold = probe_eviction(folder)
    missing = _missing_steps(count, cold, has_gpu=bool(gpus))
    return Diagnosis(
        host=machine.host,
        system=machine.system,
        cpu=machine.cpu,
        cores=machine.cores,
        memory_bytes=machine.memory_bytes,
        available_bytes=available_memory_bytes(),
        workers=count,
        python=platform.python_version(),
        torch=torch.__version__,
        gpus=tuple(_seen(gpu) for gpu in gpus),
        topology=tuple(nvml.topology()),
        cold=cold,
        steps=tuple(s for s in (*DEFAULT_STEPS, "staged") if s not in missing),
        missing_steps=missing,
        noise=None if noise_minutes is None else _noise_floor(count, noise_minutes),
    )


def probe_eviction(folder: Path) -> Check:
    """Write a file, drop it from memory, read it back: did the bytes come from storage?"""
    remote = pagecache.remote_file_system(folder)
    if remote is not None:
        return _unproven(f"{folder} lies on {remote}, whose server keeps a cache of its own.")
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".stash-probe-") as probe:
            probe.write(os.urandom(PROBE_BYTES))
            probe.flush()
            pagecache.evict([Path(probe.name)])
            before = pagecache.storage_bytes_read()
            Path(probe.name).read_bytes()
            after = pagecache.storage_bytes_read()
    except OSError as error:
        return _unproven(f"{folder} could not be tried: {error.strerror or error}.")
    if before is None or after is None:
        return _unproven("This system does not count what processes read from storage.")
    fraction = (after - before) / PROBE_BYTES
    if fraction < 0.9:
        return _unproven(f"Only {fraction:.0%} of an evicted file came from storage again.")
    return Check(
        name="cold",
        status="pass",
        message=f"can be made and proven: {fraction:.0%} of an evicted file came from storage "
        "again (page-cache cold, not device cold).",
    )


def _unproven(message: str) -> Check:
    return Check(
        name="cold",
        status="warn",
        message="cannot be proven here. " + message,
        next="Read `fetch` as a lower bound, or name a local folder with --data.",
    )


def _missing_steps(workers: int, cold: Check, *, has_gpu: bool) -> dict[str, str]:
    missing = {}
    if not has_gpu:
        missing["staged"] = "needs a CUDA device, whose copies it times"
    if workers == 1:
        missing["solo"] = missing["unsynced"] = "one worker has nobody to exchange with"
    if cold.status == "warn":
        missing["cold (proven)"] = "see cold reads above; it is measured, but not proven"
    return missing


def _noise_floor(workers: int, minutes: float) -> Noise:
    """`node` against itself, on the default small network."""
    with tempfile.TemporaryDirectory(prefix="stash-doctor-") as folder:
        request = Request(
            workload="tinycnn",
            nproc_per_node=workers,
            steps=("node", "again"),
            max_minutes=minutes,
            half_width=0.001,
            out=Path(folder),
        )
        profile = measure(request).profile
    stall = profile.stalls["noise"]
    iteration = profile.steps["node"].seconds_per_iteration.estimate
    detectable = stall.detectable_seconds_per_iteration
    if detectable is None:
        raise StashError("Too few rounds for a noise floor. Give it more time: --max-minutes 1")
    return Noise(
        rounds=profile.run.rounds,
        percent=100 * stall.seconds_per_iteration.estimate / iteration,
        detectable_percent=100 * detectable / iteration,
        significant=stall.significant,
    )


def _seen(gpu: nvml.Gpu) -> GpuSeen:
    return GpuSeen(
        index=gpu.index,
        name=gpu.name,
        memory_bytes=gpu.memory_bytes,
        used_bytes=gpu.used_bytes,
        processes=len(gpu.processes),
        throttled=gpu.throttled,
    )
