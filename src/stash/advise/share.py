"""`stash.share`: loader workers among jobs that run on one machine at once.

A job trains as fast as its devices, its loader workers or its storage let it: `min(G, w*P, F)`.
Workers of a job get as many loader workers each, so a job's share grows in steps of its workers.
Where every step is one loader worker, the best division is that of greed: each loader worker goes
where it gains most. Steps of several are like parcels of different sizes, where greed can miss the
best, so the best total is built up job by job instead (dynamic programming); the two agree where
greed is right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from stash.advise.cores import training_cores
from stash.errors import UsageError
from stash.results.document import Count, Model, Name, Positive, Quantity, Signed
from stash.results.profile import Profile, Provenance

SCHEMA = "stash.share/1"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one job can do; rates in samples per second of the whole job."""

    devices: float
    per_loader_worker: float
    storage: float = math.inf
    workers: int = 1  # of training; each has a loader of its own

    def speed(self, each: int) -> float:
        """Samples per second with so many loader workers for each worker."""
        prepared = each * self.workers * self.per_loader_worker
        return min(self.devices, prepared, self.storage)

    @property
    def most_useful(self) -> int:
        """Loader workers of each worker beyond which nothing is gained."""
        limit = min(self.devices, self.storage)
        return max(1, math.ceil(limit / (self.workers * self.per_loader_worker) * (1 - 1e-9)))


class JobShare(Model):
    """What one job gets, and what that brings it."""

    profile: Name
    workload: Name
    provenance: Provenance
    workers: Positive
    loader_workers_per_worker: Positive
    samples_per_second: Quantity
    even_loader_workers_per_worker: Positive
    even_samples_per_second: Quantity
    most_samples_per_second: Quantity  # with as many loader workers as it can use


class Share(Model):
    """How loader workers are divided for the highest total of samples per second; predicted."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    provenance: Provenance = Provenance.PREDICTED
    cores: Positive
    cores_for_training: Count
    loader_workers: Count  # what is left for loaders
    loader_workers_used: Count
    first_epoch: bool  # whether data come from storage
    jobs: tuple[JobShare, ...]
    samples_per_second: Quantity
    even_samples_per_second: Quantity
    gain_percent: Signed  # over the even split


def share(*given: Profile | Path | str, cores: int, first_epoch: bool = False) -> Share:
    """Divide the cores that training leaves among the loaders of these jobs."""
    if not given:
        raise UsageError("Sharing takes the profiles of the jobs: one each.")
    profiles = [one if isinstance(one, Profile) else Profile.load(Path(one)) for one in given]
    jobs = [job_of(one, first_epoch=first_epoch) for one in profiles]
    training = sum(training_cores(one.machine) for one in profiles)
    available = cores - training
    least = sum(job.workers for job in jobs)
    if available < least:
        raise UsageError(
            f"{cores} cores are too few for these jobs: training keeps {training} busy, and "
            f"one loader worker for each of {least} workers takes {least} more."
        )
    best, even = divide(jobs, available), evenly(jobs, available)
    return _document(profiles, jobs, best, even, (cores, training), first_epoch=first_epoch)


def job_of(profile: Profile, *, first_epoch: bool) -> Job:
    """The rates of a profile's parts, each measured alone."""
    rates, workers = profile.rates, profile.machine.workers_per_node
    if profile.machine.nodes != 1:
        raise UsageError(f"Profile {profile.id} is of several nodes; one machine is shared here.")
    if rates.devices is None or rates.preprocessing is None:
        raise UsageError(
            f"Profile {profile.id} does not tell what devices and loaders sustain alone. "
            "Measure it with --steps node,warm."
        )
    if first_epoch and rates.storage is None:
        raise UsageError(
            f"Profile {profile.id} does not tell what its storage sustains, which --first-epoch "
            "needs. Measure it with --steps node,warm,cold."
        )
    loaders = workers * max(1, profile.workload.loader_workers)
    one, devices = rates.preprocessing.estimate / loaders, rates.devices.estimate
    if one <= 0 or devices <= 0:
        raise UsageError(f"Profile {profile.id} has a rate of zero, so nothing can be shared.")
    read = rates.storage if first_epoch else None
    storage = math.inf if read is None else read.estimate
    return Job(devices=devices, per_loader_worker=one, storage=storage, workers=workers)


def divide(jobs: Sequence[Job], available: int) -> list[int]:
    """Loader workers for each worker of each job: the highest total, at least one each.

    Among equal totals the one that slows the slowest jobs least, then the one with fewest.
    """
    # By loader workers spent so far: the best that the jobs so far can do, and how.
    reached: dict[int, tuple[_Merit, list[int]]] = {0: (_Merit(0.0, 0.0), [])}
    for number, job in enumerate(jobs):
        others = sum(one.workers for one in jobs[number + 1 :])  # one each is kept for them
        following: dict[int, tuple[_Merit, list[int]]] = {}
        for spent, (merit, chosen) in reached.items():
            room = (available - others - spent) // job.workers
            for each in range(1, min(room, job.most_useful) + 1):
                total = spent + each * job.workers
                found = merit.with_job(job, each), [*chosen, each]
                if total not in following or found[0].beats(following[total][0]):
                    following[total] = found
        reached = following
    best = min(reached)
    for spent in sorted(reached):
        if reached[spent][0].beats(reached[best][0]):
            best = spent
    return reached[best][1]


def evenly(jobs: Sequence[Job], available: int) -> list[int]:
    """As many loader workers for every worker, whatever it does; leftovers go round in order."""
    each, left = divmod(available, sum(job.workers for job in jobs))
    shares = []
    for job in jobs:
        more = job.workers <= left
        left -= job.workers if more else 0
        shares.append(each + more)
    return shares


def total(jobs: Sequence[Job], shares: Sequence[int]) -> float:
    """Samples per second of all jobs together."""
    return sum(job.speed(each) for job, each in zip(jobs, shares, strict=True))


@dataclass(frozen=True)
class _Merit:
    """How good a division is: by its total, and between equal totals by how fair it is."""

    total: float
    fairness: float

    def with_job(self, job: Job, each: int) -> _Merit:
        speed = job.speed(each)
        most = job.speed(job.most_useful)
        return _Merit(self.total + speed, self.fairness + math.sqrt(speed / most))

    def beats(self, other: _Merit) -> bool:
        if not math.isclose(self.total, other.total, rel_tol=1e-9):
            return self.total > other.total
        return self.fairness > other.fairness * (1 + 1e-9)


def _document(
    profiles: Sequence[Profile],
    jobs: Sequence[Job],
    best: Sequence[int],
    even: Sequence[int],
    cores: tuple[int, int],
    *,
    first_epoch: bool,
) -> Share:
    before, after = total(jobs, even), total(jobs, best)
    return Share(
        cores=cores[0],
        cores_for_training=cores[1],
        loader_workers=cores[0] - cores[1],
        loader_workers_used=sum(w * job.workers for w, job in zip(best, jobs, strict=True)),
        first_epoch=first_epoch,
        jobs=tuple(
            JobShare(
                profile=profile.id,
                workload=profile.workload.name,
                provenance=profile.provenance,
                workers=job.workers,
                loader_workers_per_worker=each,
                samples_per_second=job.speed(each),
                even_loader_workers_per_worker=equal,
                even_samples_per_second=job.speed(equal),
                most_samples_per_second=job.speed(job.most_useful),
            )
            for profile, job, each, equal in zip(profiles, jobs, best, even, strict=True)
        ),
        samples_per_second=after,
        even_samples_per_second=before,
        gain_percent=100 * (after / before - 1),
    )
