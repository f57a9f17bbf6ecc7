"""`stash.predict`: what training would take on a machine that you have not rented.

The story of one prediction: find the machine and the model's facts, check that it fits, calibrate,
predict the steps, write the document.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stash.errors import UsageError, check_positive
from stash.hardware import catalog, gpus, topologies
from stash.hardware.catalog import Instance
from stash.hardware.gpus import Gpu
from stash.predict import communication, compute, facts, memory, pipeline, times
from stash.predict.communication import Link, Links, Message
from stash.predict.constants import FITTED, FITTED_ROWS, Constants
from stash.predict.document import Predicted, Slice, as_profile
from stash.predict.facts import Array, ModelFacts
from stash.predict.machines import Machine
from stash.results.profile import Profile, Provenance

#: Of a node's memory, what the page cache may grow to.
CACHE_FRACTION = 0.8


@dataclass(frozen=True)
class Calibration:
    """What a measured profile says beyond specifications."""

    factor: float = 1.0  # measured over predicted time of one worker alone
    differs: tuple[str, ...] | None = None  # in what it is another worker; none was measured: None
    words: str = ""
    source: pipeline.Source | None = None
    storage_bytes_per_second: float | None = None


def predict(
    workload: str,
    *,
    instance: str,
    nnodes: int = 1,
    batch_size: int | None = None,
    dtype: str | None = None,
    from_profile: Profile | Path | str | None = None,
    data: Path | str | None = None,
    samples: int | None = None,
    samples_per_core: float | None = None,
    sample_bytes: float | None = None,
    storage_mb_per_second: float | None = None,
    snapshot: str = catalog.CURRENT,
) -> Profile:
    """Predict the profile of a model on an instance of the catalog."""
    check_positive(
        {
            "--samples": samples,
            "--samples-per-core": samples_per_core,
            "--sample-bytes": sample_bytes,
            "--storage-mb-per-second": storage_mb_per_second,
        }
    )
    machine = _machine(catalog.find(instance, snapshot), nnodes)
    known = facts.find(workload, None if data is None else Path(data))
    measured = _load(from_profile)
    batch = _batch(batch_size, measured, known)
    dtype = dtype or ("fp32" if measured is None else measured.workload.dtype)
    check_fits(known, batch, dtype, machine.gpu)
    calibration = _calibrate(measured, known, machine.gpu, batch, dtype)
    source = _source(calibration.source, samples_per_core, sample_bytes, samples)
    if storage_mb_per_second is not None:
        disk = replace(
            machine.instance,
            nvme_read_mb_per_second=None,
            disk_mb_per_second=storage_mb_per_second,
        )
        machine = replace(machine, instance=disk)
    predicted = _predict(known, batch, dtype, machine, calibration, FITTED)
    return as_profile(
        predicted,
        facts=known,
        batch=batch,
        dtype=dtype,
        machine=machine,
        calibrated_on=calibration.words,
        differs=calibration.differs,
        samples=samples or (None if source is None else source.samples),
        # The input pipeline of several nodes is not predicted: steps with data are a node's.
        feed=None if source is None or nnodes > 1 else _feed(source, machine.instance, calibration),
        largest_batch=memory.largest_batch(known, machine.gpu, dtype),
    )


def _machine(instance: Instance, nnodes: int) -> Machine:
    gpu = instance.accelerator
    if gpu is None or instance.gpus < 1:
        raise UsageError(
            f"{instance.name} has no GPU in our table, so it cannot be predicted. "
            "`stash catalog list --gpu v100` shows machines that can."
        )
    if nnodes < 1:
        raise UsageError(f"--nnodes is {nnodes}; expected 1 or more.")
    between = communication.between(instance)
    if nnodes > 1 and between is None:
        raise UsageError(
            f"The catalog knows no network of {instance.name}, so several nodes cannot be "
            "predicted. `stash catalog import` adds a row with network_gbit_per_second."
        )
    topology = topologies.find(instance.topology) if instance.topology else None
    return Machine(
        instance=instance,
        gpu=gpu,
        nodes=nnodes,
        inside=communication.inside(topology, gpu, instance.gpus),
        between=between if nnodes > 1 else None,
    )


def _load(given: Profile | Path | str | None) -> Profile | None:
    return Profile.load(Path(given)) if isinstance(given, str | Path) else given


def _batch(asked: int | None, measured: Profile | None, known: ModelFacts) -> int:
    if asked is None:
        return known.batch_size if measured is None else measured.workload.batch_per_worker
    if asked < 1:
        raise UsageError(f"--batch-size is {asked}; expected 1 or more.")
    return asked


def _source(
    seen: pipeline.Source | None,
    samples_per_core: float | None,
    sample_bytes: float | None,
    samples: int | None,
) -> pipeline.Source | None:
    """What is known of the data: what the user says stands before what a profile has seen."""
    if seen is None and samples_per_core is None:
        return None
    known = seen or pipeline.Source(preprocessing_per_core=math.inf)
    return pipeline.Source(
        preprocessing_per_core=samples_per_core or known.preprocessing_per_core,
        bytes_per_sample=sample_bytes or known.bytes_per_sample,
        samples=samples or known.samples,
    )


def check_fits(known: ModelFacts, batch: int, dtype: str, gpu: Gpu) -> None:
    """Refuse a batch that the GPU's memory cannot hold, with one that it can."""
    compute.check_dtype(dtype)
    needed, there = memory.peak_bytes(known, batch, dtype), memory.usable_bytes(gpu)
    if needed > there:
        fits = memory.largest_batch(known, gpu, dtype)
        advice = f"--batch-size {fits} would fit." if fits else "Not even one sample would fit."
        raise UsageError(
            f"{known.name} at batch {batch} in {dtype} does not fit: it needs about "
            f"{needed / 2**30:.1f} GiB, and {gpu.name} has {there / 2**30:.1f} GiB to use. {advice}"
        )


def _calibrate(
    measured: Profile | None, known: ModelFacts, target: Gpu, batch: int, dtype: str
) -> Calibration:
    fitted = f"constants fitted to {FITTED_ROWS} published measurements (docs/validation.md)"
    if measured is None:
        return Calibration(words=f"specifications of the machine; {fitted}")
    if measured.workload.parameters != known.parameters:
        raise UsageError(
            f"The profile is of {measured.workload.name} with {measured.workload.parameters} "
            f"parameters, not of {known.name} with {known.parameters}."
        )
    source, storage = data_rates(measured)
    name = f"profile {measured.id}"
    seen = measured_gpu(measured)
    # One worker of a node is alone in step node.
    alone = measured.steps.get("node" if measured.machine.workers_per_node == 1 else "solo")
    if seen is None or alone is None:
        why = "its devices are no GPU that we know" if seen is None else "no worker of it was alone"
        words = f"rates of {name} ({why}, so compute is from specifications); {fitted}"
        return Calibration(words=words, source=source, storage_bytes_per_second=storage)
    workload = measured.workload
    layers = _layers(known, workload.batch_per_worker, workload.dtype, seen)
    factor = alone.seconds_per_iteration.estimate / float(layers.whole[0])
    place = f"{seen.name} at batch {workload.batch_per_worker} in {workload.dtype}"
    # Validation knows the time of one GPU at the very batch and precision of the row.
    same = {
        "GPU": seen.key == target.key,
        "batch size": workload.batch_per_worker == batch,
        "precision": compute.DTYPES[workload.dtype] == compute.DTYPES[dtype],
    }
    return Calibration(
        factor=factor,
        differs=tuple(what for what, is_same in same.items() if not is_same),
        words=f"{name}, measured on {place}; {fitted}",
        source=source,
        storage_bytes_per_second=storage,
    )


def measured_gpu(measured: Profile) -> Gpu | None:
    """The GPU of a profile of real devices; none where it is of others, or unknown."""
    if measured.provenance is not Provenance.MEASURED or measured.machine.device != "cuda":
        return None
    return gpus.recognise(measured.machine.devices[0]) if measured.machine.devices else None


def data_rates(measured: Profile) -> tuple[pipeline.Source | None, float | None]:
    """What a profile says of its data, and the bytes a second that storage gave."""
    prepared, workload, machine = measured.rates.preprocessing, measured.workload, measured.machine
    if prepared is None:
        return None, None
    # Without loader workers each worker prepares by itself.
    cores = min(machine.cores, max(1, workload.loader_workers) * machine.workers_per_node)
    size = None
    if workload.data_bytes is not None and workload.samples:
        size = workload.data_bytes / workload.samples
    source = pipeline.Source(
        preprocessing_per_core=prepared.estimate / cores,
        bytes_per_sample=size,
        samples=workload.samples,
    )
    storage = measured.rates.storage
    return source, None if storage is None or size is None else storage.estimate * size


def _feed(source: pipeline.Source, instance: Instance, known: Calibration) -> pipeline.Feed:
    return pipeline.feed(source, host_of(instance, known.storage_bytes_per_second))


def host_of(instance: Instance, storage_bytes_per_second: float | None) -> pipeline.Host:
    """What a node has for its data; storage as measured where the catalog knows no disk."""
    disk = instance.nvme_read_mb_per_second or instance.disk_mb_per_second
    storage = disk * 1e6 if disk else storage_bytes_per_second
    memory = instance.memory_bytes
    return pipeline.Host(
        cores=instance.vcpus or 1.0,
        cache_bytes=None if memory is None else memory * CACHE_FRACTION,
        storage_bytes_per_second=storage,
        # Whatever a machine's disks give, its memory gives as well.
        memory_bytes_per_second=max(pipeline.MEMORY_BYTES_PER_SECOND, storage or 0.0),
    )


def _layers(known: ModelFacts, batch: int, dtype: str, gpu: Gpu) -> compute.LayerSeconds:
    device = compute.devices([gpu], [dtype], FITTED)
    return compute.layer_seconds(known, np.array([float(batch)]), device, FITTED)


def _predict(
    known: ModelFacts,
    batch: int,
    dtype: str,
    machine: Machine,
    calibration: Calibration,
    constants: Constants,
) -> Predicted:
    layers = _layers(known, batch, dtype, machine.gpu).scaled(np.array([calibration.factor]))
    sent = communication.messages(known)

    def together(gpus_per_node: float, nodes: int, inside: Link | None) -> float:
        return _together(layers, sent, gpus_per_node, nodes, inside, machine.between, constants)

    here, nodes = machine.instance.gpus, machine.nodes
    # As many workers as one node has, as evenly as can be: some nodes may get one more than others.
    spread_over = min(nodes, here)
    return Predicted(
        gpus_per_node=here,
        solo=float(layers.whole[0]),
        node=together(here, 1, machine.inside),
        cluster=together(here / spread_over, spread_over, machine.inside)
        if spread_over > 1
        else None,
        scaleout=together(here, nodes, machine.inside) if nodes > 1 else None,
        messages=len(sent),
        slices=tuple(
            Slice(chance, link, together(here, 1, link), together(here, nodes, link))
            for topology, chance in communication.slices(machine.instance, here)
            if (link := communication.inside(topology, machine.gpu, here)) is not None
        ),
    )


def _together(
    layers: compute.LayerSeconds,
    sent: tuple[Message, ...],
    gpus_per_node: float,
    nodes: int,
    inside: Link | None,
    between: Link | None,
    constants: Constants,
) -> float:
    def number(value: float) -> Array:
        return np.array([float(value)])

    links = Links.of([inside], [between], constants)
    seconds = times.iteration_seconds(
        layers, sent, number(gpus_per_node), number(nodes), links, constants
    )
    return float(seconds.together[0])
