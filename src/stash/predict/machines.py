"""The machine of a prediction, and what a document says of it and of what it trains."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import stash
from stash.hardware.catalog import Instance
from stash.hardware.gpus import Gpu
from stash.predict.communication import Link
from stash.predict.facts import ModelFacts
from stash.results.recording import Check, MachineFacts, WorkloadFacts


@dataclass(frozen=True)
class Machine:
    """The machine of a prediction."""

    instance: Instance
    gpu: Gpu
    nodes: int
    inside: Link | None
    between: Link | None


def workload_facts(
    facts: ModelFacts, batch: int, dtype: str, samples: int | None, machine: Machine
) -> WorkloadFacts:
    return WorkloadFacts(
        name=facts.name,
        parameters=facts.parameters,
        gradient_bytes=facts.gradient_bytes,
        optimizer=facts.optimizer,
        batch_per_worker=batch,
        samples=samples,
        data="",
        data_bytes=None,
        loader_workers=max(1, int((machine.instance.vcpus or 1) // machine.instance.gpus)),
        dtype=dtype,
    )


def machine_facts(machine: Machine) -> MachineFacts:
    instance = machine.instance
    cores = max(1, int(instance.vcpus or 1))
    return MachineFacts(
        host=instance.name,
        system=instance.cloud,
        cpu="",
        cores=cores,
        memory_bytes=instance.memory_bytes or 0,
        device="cuda",
        devices=(machine.gpu.name,) * (instance.gpus * machine.nodes),
        device_memory_bytes=machine.gpu.memory_bytes,
        nodes=machine.nodes,
        workers_per_node=instance.gpus,
        cores_per_worker=cores / instance.gpus,
        threads_per_worker=max(1, cores // instance.gpus),
        pinned=False,
        backend="nccl",
        python=platform.python_version(),
        torch="none",
        stash=stash.__version__,
        instance=instance.name,
        price_usd_per_hour=instance.price_usd_per_hour,
    )


def checks(machine: Machine, differs: tuple[str, ...] | None) -> tuple[Check, ...]:
    """What to know of the machine, and of the worker that was measured for the prediction."""
    instance, found = machine.instance, []
    if instance.status == "retired":
        message = f"{instance.name} is retired: it has a list price, but cannot be rented."
        found.append(Check(name="status", status="warn", message=message))
    if instance.price_date:
        message = f"${instance.price_usd_per_hour:g} an hour, {instance.price_region}, "
        found.append(Check(name="price", status="pass", message=f"{message}{instance.price_date}"))
    if differs != ():
        found.append(_calibration_check(differs))
    return tuple(found)


def _calibration_check(differs: tuple[str, ...] | None) -> Check:
    message = "The time of one worker comes from specifications."
    if differs:
        message = (
            f"The time of one worker is carried over from another {' and '.join(differs)}; "
            "intervals are those of a prediction from specifications."
        )
    advice = "Measure one GPU of this kind at this batch and precision; give the profile by --from."
    return Check(name="calibration", status="warn", message=message, next=advice)


def link_words(link: Link | None) -> str:
    if link is None:
        return ""
    return f"{link.transport}, {link.bytes_per_second / 1e9:.3g} GB/s"
