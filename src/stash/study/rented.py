"""Cells of machines that are not here: predicted, and the same whenever they are."""

from __future__ import annotations

from stash.errors import check_positive
from stash.hardware.gpus import Gpu
from stash.predict import api, compute, facts, memory
from stash.results.document import Interval
from stash.results.profile import Profile, Provenance
from stash.study.document import CellNumbers, StudiedMachine, StudiedModel, StudyStall
from stash.study.exchange import bytes_per_second_per_gpu, time_of
from stash.study.here import DoesNotFitError, family
from stash.study.plan import Batch, Plan, Rented, sample_bytes


def check(plan: Plan) -> None:
    """Refuse once what would fail in every cell."""
    compute.check_dtype(plan.dtype)
    check_positive(
        {
            "--samples-per-core": plan.samples_per_core,
            "--storage-mb-per-second": plan.storage_mb_per_second,
        }
    )


def machine(rented: Rented) -> StudiedMachine:
    """So many of one machine type, as a study names them."""
    price = rented.instance.price_usd_per_hour
    return StudiedMachine(
        name=rented.name,
        family=family(_gpu(rented)),
        gpus_per_node=rented.instance.gpus,
        nodes=rented.nodes,
        price_usd_per_hour=None if price is None else price * rented.nodes,
        bytes_per_second_per_gpu=bytes_per_second_per_gpu(rented),
        bandwidth_provenance=Provenance.PREDICTED,
    )


def memory_gib(rented: Rented) -> float:
    """Of one GPU."""
    return _gpu(rented).memory_bytes / 2**30


def resolve_batch(plan: Plan, model: str, batch: Batch, rented: Rented) -> int:
    """The batch as a number that fits, or DoesNotFitError."""
    largest = memory.largest_batch(facts.find(model), _gpu(rented), plan.dtype)
    if largest < 1:
        raise DoesNotFitError("Not even one sample fits.")
    if batch == "max":
        return largest
    if batch > largest:
        raise DoesNotFitError(f"The largest batch that fits is {largest}.")
    return batch


def predict(
    plan: Plan, model: StudiedModel, batch: int, rented: Rented, rates: Profile | None
) -> Profile:
    """One cell; prep and fetch where the rate of preprocessing is known.

    How many samples there are is not told: by the paper's definition CPU stalls are those of data
    that are all in memory, whether or not they would fit.
    """
    has_rates = plan.samples_per_core is not None or rates is not None
    return api.predict(
        model.name,
        instance=f"{rented.instance.cloud}:{rented.instance.name}",
        nnodes=rented.nodes,
        batch_size=batch,
        dtype=plan.dtype,
        from_profile=None if plan.samples_per_core is not None else rates,
        samples_per_core=plan.samples_per_core,
        sample_bytes=sample_bytes(model) if has_rates else None,
        storage_mb_per_second=plan.storage_mb_per_second,
        snapshot=rented.instance.snapshot,
    )


def with_exchange(
    numbers: CellNumbers, plan: Plan, model: str, batch: int, rented: Rented
) -> CellNumbers:
    """Exchange without what workers of a machine cost each other, as a measurement tells it."""
    if rented.nodes > 1 or rented.instance.gpus < 2:
        return numbers
    time = time_of(model, rented, batch, plan.dtype)
    stall = StudyStall(
        seconds_per_iteration=Interval(estimate=time.exchange, low=None, high=None),
        percent=Interval(estimate=100 * time.exchange / time.alone, low=None, high=None),
        percent_of="solo",
        against="",
    )
    return numbers.model_copy(update={"stalls": {**numbers.stalls, "communication": stall}})


def _gpu(rented: Rented) -> Gpu:
    gpu = rented.instance.accelerator
    assert gpu is not None
    return gpu
