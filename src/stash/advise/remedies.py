"""Single changes that could remove what a job waits for, the cheapest kind first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stash.advise.changes import Changes, amount
from stash.advise.replay import faster_gpus
from stash.advise.steps import Job, Predicted
from stash.errors import UsageError
from stash.predict.pipeline import Loaders

#: From what costs nothing to what has to be rented: a setting, a setting that changes what is
#: learned, another machine.
KINDS = ("setting", "training", "hardware")
#: What removes less than half does not remove most of it.
MOST = 0.5
#: Whatever takes less of the time is not worth a change.
WORTH_SHARE = 0.01
#: Gains below this, of an iteration, do not pay for one more loader worker.
WORTH_GAIN = 0.005
MOST_LOADER_WORKERS = 64
#: What is sold between nodes.
NETWORKS_GBIT = (25, 50, 100, 200, 400)


@dataclass(frozen=True)
class Remedy:
    """One change and what it would do."""

    option: str  # as on the command line
    kind: str
    epoch: str  # later or first
    removed_fraction: float  # of what is waited for in that epoch


def remedies(job: Job, before: Predicted) -> list[Remedy]:
    """Every single change worth a thought, for later epochs or else for the first."""
    epoch = _epoch_that_waits(before)
    if epoch is None:
        return []
    waiting = before.waiting_per_sample(epoch)
    assert waiting is not None
    found: dict[str, list[Remedy]] = {}
    for option, kind, changes in _candidates(job, before):
        try:
            after = job.predict(changes).waiting_per_sample(epoch)
        except UsageError:  # a batch that does not fit, for one
            continue
        assert after is not None
        one = Remedy(option, kind, epoch, (waiting - after) / waiting)
        found.setdefault(option.split()[0], []).append(one)
    chosen = [_least(of_one_option) for of_one_option in found.values()]
    useful = [one for one in chosen if one.removed_fraction >= WORTH_SHARE]
    return sorted(useful, key=lambda one: (KINDS.index(one.kind), -one.removed_fraction))


def cheapest(found: Sequence[Remedy]) -> Remedy | None:
    """The first of the cheapest kind that removes most of the wait."""
    return next((one for one in found if one.removed_fraction >= MOST), None)


def _least(rising: Sequence[Remedy]) -> Remedy:
    """Of one option's values, from the least on, the first that does; else what does most."""
    return cheapest(rising) or max(rising, key=lambda one: one.removed_fraction)


def _epoch_that_waits(before: Predicted) -> str | None:
    for epoch in ("later", "first"):
        waiting, whole = before.waiting_per_sample(epoch), before.whole(epoch)
        if waiting and whole and waiting * before.batch / whole >= WORTH_SHARE:
            return epoch
    return None


def _candidates(job: Job, before: Predicted) -> Iterator[tuple[str, str, Changes]]:
    loaders, feeding = before.loaders, job.feeding
    batch = 2 * before.batch
    yield f"--batch-size {batch}", "training", Changes(batch_size=batch)
    for gpu in faster_gpus(job.profile):
        yield f"--gpu {gpu}", "hardware", Changes(gpu=gpu)
    for gbit in NETWORKS_GBIT if job.profile.machine.nodes > 1 else ():
        changes = Changes(network_bytes_per_second=gbit * 1e9 / 8)
        yield f"--network {gbit}gbit", "hardware", changes
    if loaders is None or feeding is None or "warm" not in before.seconds:
        return
    hits = 1.0 if before.cached_fraction is None else before.cached_fraction
    most = _useful_loader_workers(job, before, hits)
    if most != loaders.loader_workers:
        yield f"--num-workers {most}", "setting", Changes(num_workers=most)
    cores = _useful_cores(loaders, before)
    if cores > loaders.cores:
        yield f"--cores {cores}", "hardware", Changes(cores=cores)
    if not before.has_storage or feeding.bytes_per_sample is None:
        return
    needed = loaders.samples / before.seconds["warm"]
    rate = _rounded_up(2 * needed * feeding.bytes_per_sample)
    if rate * loaders.read_seconds > feeding.bytes_per_sample:  # faster than what is there
        changes = Changes(storage_bytes_per_second=rate)
        yield f"--storage {amount(rate)}/s", "hardware", changes
    if before.cached_fraction is not None and feeding.data_bytes is not None:
        size = float(feeding.data_bytes)
        yield f"--cache {amount(size)}", "hardware", Changes(cache_bytes=size)


def _useful_loader_workers(job: Job, before: Predicted, hits: float) -> int:
    """The fewest beyond which one more gains nothing worth it."""
    loaders, node = before.loaders, before.seconds["node"]
    assert loaders is not None

    def seconds(number: int) -> float:
        whole = job.predict(Changes(num_workers=number)).loaders
        assert whole is not None
        return whole.iteration_seconds(node, hits)

    times = [seconds(number) for number in range(1, MOST_LOADER_WORKERS + 1)]
    best = min(times)
    return next(n for n, time in enumerate(times, 1) if time <= best * (1 + WORTH_GAIN))


def _useful_cores(loaders: Loaders, before: Predicted) -> int:
    """As many as all the work of an iteration takes while the devices do theirs."""
    work = loaders.training_core_seconds + loaders.samples * loaders.prepare_core_seconds
    return math.ceil(work / before.seconds["node"])


def _rounded_up(rate: float) -> float:
    """To two digits, as people write rates."""
    digit = 10 ** (math.floor(math.log10(rate)) - 1)
    return float(math.ceil(rate / digit) * digit)
