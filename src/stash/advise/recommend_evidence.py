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
    data: dict[int, DataTimings]
    settings: frozenset[tuple[int, str]]  # batches and precisions of those timings
    source: pipeline.Source | None
    storage_bytes_per_second: float | None
    used: tuple[UsedProfile, ...]


def gather(profiles: Sequence[Profile], known: ModelFacts, ways: Grid) -> Evidence:
    """Read every profile; one of another model is refused."""
    observations, used = [], []
    data: dict[int, DataTimings] = {}
    settings = set()
    source, storage = None, None
    for profile in profiles:
        _check_model(profile, known)
        rates, speed = data_rates(profile)
        source, storage = source or rates, storage or speed
        gpu = measured_gpu(profile)
        seen = None if gpu is None else _observe(profile, gpu, ways)
        if seen is not None:
            observations.append(seen)
            for row, _ in seen.rows[:1]:
                data[row] = DataTimings(_timing(profile, "cold"), _timing(profile, "warm"))
                settings.add((seen.batch, seen.dtype))
        used.append(_used(profile, seen, has_rates=rates is not None))
    return Evidence(tuple(observations), data, frozenset(settings), source, storage, tuple(used))


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
    if machine.workers == 1 and alone is None:
        alone = _timing(profile, "node")
    rows = []
    for step, nodes in (("node", 1), ("scaleout", machine.nodes)):
        timing = _timing(profile, step)
        row = None if nodes > 1 and step == "node" else _row(profile, nodes, ways)
        if timing is not None and row is not None:
            rows.append((row, timing))
    if machine.workers == 1 and not rows and alone is not None:
        row = _row(profile, 1, ways)
        rows = [] if row is None else [(row, alone)]
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


def _used(profile: Profile, seen: Observation | None, *, has_rates: bool) -> UsedProfile:
    machine = profile.machine
    if seen is None:
        what = "rates of its data only" if has_rates else "nothing"
        words = f"{what}: its devices ({machine.device}) are no GPU that was measured"
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
