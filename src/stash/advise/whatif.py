"""`stash.whatif`: what a measured job would wait for with other loaders, cores, storage or devices.

The story: say what changes, predict every step from what the profile measured, take stalls as
differences of steps as ever, and look for the cheapest single change that would help most.
"""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import Field

from stash.advise.changes import Changes
from stash.advise.remedies import Remedy, cheapest, remedies
from stash.advise.steps import Job, Predicted
from stash.predict import pipeline
from stash.results.document import (
    Count,
    Interval,
    Model,
    Name,
    Positive,
    Quantity,
    Seconds,
    Signed,
    SignedSeconds,
    Text,
)
from stash.results.profile import Profile, Provenance
from stash.results.steps import Stall, stalls_of
from stash.results.whole import iteration_seconds

SCHEMA = "stash.whatif/1"
#: Steps this near to what was measured are what was measured.
SAME = 1e-4


class StepBeside(Model):
    """A step as the profile has it, and as it would be."""

    seconds_per_iteration: Interval
    predicted_seconds_per_iteration: Seconds


class StallBeside(Model):
    """A stall as the profile has it, and as it would be."""

    seconds_per_iteration: Interval
    predicted_seconds_per_iteration: SignedSeconds


class EpochBeside(Model):
    """Samples per second of all workers, as measured and as they would be."""

    samples_per_second: Quantity
    predicted_samples_per_second: Quantity
    predicted_low_samples_per_second: Quantity  # with a cache that evicts what is needed next


class Needs(Model):
    """How much of a thing would be enough, everything else being as changed."""

    loader_workers_per_worker: Count | None
    cores: Quantity | None
    storage_bytes_per_second: Quantity | None
    cache_bytes: Quantity | None


class SingleChange(Model):
    """One thing changed, and how much of the wait that would remove."""

    option: Text  # as on the command line
    kind: Text  # setting, training or hardware: from the cheapest on
    epoch: Text  # later or first
    removed_fraction: Signed  # of the wait for anything in that epoch


class WhatIf(Model):
    """Predicted steps and stalls beside those of a profile."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    profile: Name
    workload: Name
    provenance: Provenance  # of the profile; all that is called predicted is predicted
    batch_per_worker: Positive
    changes: tuple[Text, ...]
    steps: dict[Name, StepBeside]
    stalls: dict[Name, StallBeside]
    cached_fraction: Quantity | None  # of the data, in later epochs
    later: EpochBeside | None
    first: EpochBeside | None
    needs: Needs
    single_changes: tuple[SingleChange, ...]
    cheapest: SingleChange | None  # that removes at least half of the wait
    assumptions: tuple[Text, ...]


def whatif(
    profile: Profile | Path | str,
    *,
    num_workers: int | None = None,
    cores: int | None = None,
    batch_size: int | None = None,
    cache: str | None = None,
    storage: str | None = None,
    gpu: str | None = None,
    network: str | None = None,
) -> WhatIf:
    """Predict a profile's steps and stalls with some things changed; options as on the command."""
    changes = Changes.of(
        num_workers=num_workers,
        cores=cores,
        batch_size=batch_size,
        cache=cache,
        storage=storage,
        gpu=gpu,
        network=network,
    )
    given = profile if isinstance(profile, Profile) else Profile.load(Path(profile))
    job = Job.of(given)
    before, after = job.predict(Changes()), job.predict(changes)
    found = remedies(job, before)
    best = cheapest(found)
    return WhatIf(
        profile=given.id,
        workload=given.workload.name,
        provenance=given.provenance,
        batch_per_worker=after.batch,
        changes=changes.told(given),
        steps=_steps(given, after),
        stalls=_stalls(given, after),
        cached_fraction=after.cached_fraction,
        later=_epoch(given, "later", after),
        first=_epoch(given, "first", after),
        needs=_needs(job, after),
        single_changes=tuple(_single(one) for one in found),
        cheapest=None if best is None else _single(best),
        assumptions=after.assumptions,
    )


def _steps(profile: Profile, after: Predicted) -> dict[str, StepBeside]:
    return {
        name: StepBeside(
            seconds_per_iteration=profile.steps[name].seconds_per_iteration,
            predicted_seconds_per_iteration=seconds,
        )
        for name, seconds in after.seconds.items()
    }


def _stalls(profile: Profile, after: Predicted) -> dict[str, StallBeside]:
    return {
        stall.name: StallBeside(
            seconds_per_iteration=profile.stalls[stall.name].seconds_per_iteration,
            predicted_seconds_per_iteration=_stall(profile, stall, after),
        )
        for stall in stalls_of(set(after.seconds))
        if stall.name in profile.stalls
    }


def _stall(profile: Profile, stall: Stall, after: Predicted) -> float:
    """The difference of predicted steps; where none of them changes, the stall does not either."""
    measured = {name: profile.steps[name].seconds_per_iteration.estimate for name in stall.steps}
    if all(math.isclose(after.seconds[name], measured[name], rel_tol=SAME) for name in measured):
        return profile.stalls[stall.name].seconds_per_iteration.estimate
    return sum(sign * after.seconds[step] for sign, step in stall.terms)


def _epoch(profile: Profile, epoch: str, after: Predicted) -> EpochBeside | None:
    """Of all workers of all nodes, in whole iterations; none where data was not measured."""
    first = epoch == "first"
    measured, fast = iteration_seconds(profile, first=first), after.whole(epoch)
    if ("cold" if first else "warm") not in after.seconds or measured is None or fast is None:
        return None
    keeps, evicts = (0.0, 0.0) if first or after.later is None else after.later
    workers = profile.machine.workers
    return EpochBeside(
        samples_per_second=workers * profile.workload.batch_per_worker / measured.estimate,
        predicted_samples_per_second=workers * after.batch / fast,
        predicted_low_samples_per_second=workers * after.batch / (fast + evicts - keeps),
    )


def _needs(job: Job, after: Predicted) -> Needs:
    """DS-Analyzer's questions: how many cores, how much cache, how fast a disk."""
    loaders, feeding = after.loaders, job.feeding
    if loaders is None or feeding is None:
        return Needs(
            loader_workers_per_worker=None,
            cores=None,
            storage_bytes_per_second=None,
            cache_bytes=None,
        )
    node = after.seconds["node"]
    devices = loaders.samples / node
    prepared = 1 / loaders.prepare_seconds
    needed = min(devices, max(1, loaders.loader_workers) * loaders.workers * prepared)
    size = feeding.bytes_per_sample
    training = loaders.training_core_seconds / node
    return Needs(
        loader_workers_per_worker=_round_up(
            pipeline.cores_needed(devices / loaders.workers, prepared)
        ),
        cores=training + devices * loaders.prepare_core_seconds,
        storage_bytes_per_second=None if size is None else needed * size,
        cache_bytes=_useful_cache(job, after, needed),
    )


def _useful_cache(job: Job, after: Predicted, needed: float) -> float | None:
    feeding, loaders = job.feeding, after.loaders
    if feeding is None or loaders is None or feeding.data_bytes is None or not after.has_storage:
        return None
    assert feeding.bytes_per_sample is not None
    memory = pipeline.Host.memory_bytes_per_second / feeding.bytes_per_sample
    fraction = pipeline.smallest_useful_cache(needed, memory, 1 / loaders.read_seconds)
    return fraction * feeding.data_bytes


def _round_up(number: float) -> int:
    return max(1, math.ceil(number * (1 - 1e-9)))


def _single(remedy: Remedy) -> SingleChange:
    return SingleChange(
        option=remedy.option,
        kind=remedy.kind,
        epoch=remedy.epoch,
        removed_fraction=remedy.removed_fraction,
    )
