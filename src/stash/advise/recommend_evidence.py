"""What given profiles are good for: times of machines in question, kinds of GPUs, rates of data.

Changes when a profile can tell something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.advise.candidates import Grid
from stash.advise.recommend_belief import Observation, Timing, log_sd
from stash.advise.recommend_job import DataTimings
from stash.advise.recommendation import UsedProfile
from stash.errors import UsageError
from stash.hardware.gpus import Gpu
from stash.predict import pipeline
from stash.predict.api import data_rates, measured_gpu
from stash.predict.facts import ModelFacts
from stash.results.profile import Profile


@dataclass(frozen=True)
class Evidence:
    """All that profiles tell of the job."""

    observations: tuple[Observation, ...]
    data: dict[int, DataTimings]  # at the batch and precision of the job only
    source: pipeline.Source | None
    storage_bytes_per_second: float | None
    used: tuple[UsedProfile, ...]


def gather(
    profiles: Sequence[Profile], known: ModelFacts, ways: Grid, batch: int, dtype: str
) -> Evidence:
    """Read every profile; one of another model is refused."""
    observations, used = [], []
    data: dict[int, DataTimings] = {}
    source, storage = None, None
    for profile in profiles:
        _check_model(profile, known)
        rates, speed = data_rates(profile)
        source, storage = source or rates, storage or speed
        gpu = measured_gpu(profile)
        seen = None if gpu is None else _observe(profile, gpu, ways)
        if seen is not None:
            observations.append(seen)
            alone = _row(profile, 1, ways)
            if alone is not None and (seen.batch, seen.dtype) == (batch, dtype):
                data[alone] = DataTimings(_timing(profile, "cold"), _timing(profile, "warm"))
        used.append(_used(profile, gpu, seen, has_rates=rates is not None))
    return Evidence(tuple(observations), data, source, storage, tuple(used))


def _check_model(profile: Profile, known: ModelFacts) -> None:
    if profile.workload.parameters != known.parameters:
        raise UsageError(
            f"Profile {profile.id} is of {profile.workload.name} with "
            f"{profile.workload.parameters} parameters, not of {known.name} with "
            f"{known.parameters}. Leave it out, or recommend for its own model."
        )


def _observe(profile: Profile, gpu: Gpu, ways: Grid) -> Observation | None:
    workload, machine = profile.workload, profile.machine
    alone = _timing(profile, "solo")
    one_node, all_nodes = _timing(profile, "node"), _timing(profile, "scaleout")
    if machine.workers_per_node == 1:  # alone and together on a node are the same
        alone = one_node = alone or one_node
    rows = [
        (row, timing)
        for timing, nodes in ((one_node, 1), (all_nodes, machine.nodes))
        if timing is not None and (row := _row(profile, nodes, ways)) is not None
    ]
    if alone is None and not rows:
        return None
    return Observation(gpu, workload.batch_per_worker, workload.dtype, alone, tuple(rows))


def _row(profile: Profile, nodes: int, ways: Grid) -> int | None:
    """The way of the grid that this profile has measured, if it is one of them."""
    machine = profile.machine
    named = (machine.instance or "").rpartition(":")[2].lower()
    for row, (number, count) in enumerate(zip(ways.instance, ways.nodes, strict=True)):
        one = ways.instances[number]
        if one.name.lower() == named and count == nodes and one.gpus == machine.workers_per_node:
            return row
    return None


def _timing(profile: Profile, step: str) -> Timing | None:
    found = profile.steps.get(step)
    if found is None or found.seconds_per_iteration.estimate <= 0:
        return None
    seconds = found.seconds_per_iteration
    return Timing(seconds.estimate, log_sd(seconds.low, seconds.high), seconds.low, seconds.high)


def _why_no_times(profile: Profile, gpu: Gpu | None) -> str:
    if gpu is None:
        return f"its devices ({profile.machine.device}) are no GPU that was measured"
    return f"it times no {gpu.name} alone (step solo), and no machine in question (step node)"


def _used(
    profile: Profile, gpu: Gpu | None, seen: Observation | None, *, has_rates: bool
) -> UsedProfile:
    machine = profile.machine
    if seen is None:
        what = "rates of its data only" if has_rates else "nothing"
        words = f"{what}: {_why_no_times(profile, gpu)}"
    elif seen.rows:
        words = f"measured on {machine.instance}, {machine.nodes} node(s)"
    else:
        words = f"one GPU's time ({seen.gpu.name}), on a machine that is not in question"
    price = machine.price_usd_per_hour
    hours = profile.run.measuring_seconds / 3600
    return UsedProfile(
        id=profile.id,
        provenance=profile.provenance,
        words=words,
        spent_usd=None if price is None else price * machine.nodes * hours,
    )
