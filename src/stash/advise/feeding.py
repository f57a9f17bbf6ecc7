"""What a profile says of its input pipeline: the loader model, fitted to what was measured.

With nothing changed the model gives the measured steps back, as far as their stalls are there at
all. Changes when another measured figure tells more of loaders, cores or storage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from scipy.optimize import brentq

from stash.errors import UsageError
from stash.predict.pipeline import Loaders
from stash.results.profile import Profile

#: Of blocks within the middle half, over the standard deviation of normal scatter.
QUARTILES_OVER_DEVIATION = 1.349
FEW_BLOCKS = 5
#: Storage that takes less than this of an iteration does not decide how long it lasts.
NEARLY = 0.8


@dataclass(frozen=True)
class Feeding:
    """The input pipeline of a profile, and what is known of its data."""

    loaders: Loaders
    node_seconds: float
    knows_storage: bool
    bytes_per_sample: float | None
    data_bytes: float | None


def feeding_of(profile: Profile) -> Feeding:
    """Fit the loader model: prep to step warm, then storage to step cold."""
    _require_rates(profile)
    node = _seconds(profile, "node")
    loaders = _from_rates(profile)
    if "warm" in profile.steps:
        loaders = _fit_prep(loaders, node, _seconds(profile, "warm"))
    knows_storage = profile.rates.storage is not None and "cold" in profile.steps
    if knows_storage:
        loaders = _fit_storage(loaders, node, _seconds(profile, "cold"))
    workload = profile.workload
    size = None
    if workload.data_bytes is not None and workload.samples:
        size = workload.data_bytes / workload.samples
    return Feeding(loaders, node, knows_storage, size, workload.data_bytes)


def _require_rates(profile: Profile) -> None:
    if profile.rates.preprocessing is None or "node" not in profile.steps:
        raise UsageError(
            f"Profile {profile.id} does not tell what its loaders sustain, so nothing can be said "
            "of other ones. Measure it with --steps node,warm,cold."
        )


def _from_rates(profile: Profile) -> Loaders:
    """Every part as it was alone."""
    machine, workload, rates = profile.machine, profile.workload, profile.rates
    assert rates.preprocessing is not None
    workers, loader_workers = machine.workers_per_node, workload.loader_workers
    node, prep = _core_seconds(profile, "node"), _core_seconds(profile, "warm")
    samples = workers * workload.batch_per_worker
    if node is None or prep is None:
        node = prep = 0.0
    return Loaders(
        workers=workers,
        loader_workers=loader_workers,
        batch=workload.batch_per_worker,
        prepare_seconds=workers * max(1, loader_workers) / rates.preprocessing.estimate,
        read_seconds=0.0 if rates.storage is None else 1 / rates.storage.estimate,
        cores=float(machine.cores),
        training_core_seconds=node,
        # Work cannot be negative; what telemetry says below zero is its noise.
        prepare_core_seconds=max(0.0, prep - node) / samples,
        variation=_variation(profile),
    )


def _fit_prep(loaders: Loaders, node: float, warm: float) -> Loaders:
    """Let the model give step warm: by the part that decides it."""
    producing, cores = loaders.producing_seconds(1.0), loaders.core_bound_seconds
    serial = loaders.loader_workers == 0
    if cores > max(node, producing) and not serial:
        factor = warm / cores
        return replace(
            loaders,
            training_core_seconds=loaders.training_core_seconds * factor,
            prepare_core_seconds=loaders.prepare_core_seconds * factor,
        )
    if producing > node or serial:

        def slower(factor: float) -> Loaders:
            return replace(loaders, prepare_seconds=loaders.prepare_seconds * factor)

        fitted = _fitted(slower, lambda one: one.iteration_seconds(node, 1.0), warm)
        return fitted or slower(min(1.0, max(node, warm) / producing))
    return replace(loaders, overhead_seconds=max(0.0, warm - loaders.iteration_seconds(node, 1.0)))


def _fit_storage(loaders: Loaders, node: float, cold: float) -> Loaders:
    """Let the model give step cold: by storage where it decides, else by what a miss costs."""
    warm = loaders.iteration_seconds(node, 1.0)
    if loaders.producing_seconds(0.0) < NEARLY * warm and loaders.loader_workers:
        more = cold - loaders.iteration_seconds(node, 0.0)
        return replace(loaders, miss_seconds=max(0.0, more))

    def slower(factor: float) -> Loaders:
        return replace(loaders, read_seconds=loaders.read_seconds * factor)

    return _fitted(slower, lambda one: one.iteration_seconds(node, 0.0), cold) or loaders


def _fitted(
    make: Callable[[float], Loaders], seconds: Callable[[Loaders], float], measured: float
) -> Loaders | None:
    """The one that takes as long as measured; none where none does."""
    low, high = 1e-3, 1e3
    if not seconds(make(low)) < measured < seconds(make(high)):
        return None
    return make(brentq(lambda factor: seconds(make(factor)) - measured, low, high, rtol=1e-6))


def _variation(profile: Profile) -> float:
    """How far single iterations and batches scatter, as the queue's formula wants it."""
    found = [_scatter(profile, step) for step in ("node", "warm")]
    known = [one for one in found if one is not None]
    return sum(known) / len(known) if known else 1.0


def _scatter(profile: Profile, step: str) -> float | None:
    """Squared coefficient of variation of one iteration, by the middle half of all blocks."""
    blocks = profile.steps[step].blocks if step in profile.steps else ()
    if len(blocks) < FEW_BLOCKS:
        return None
    times = sorted(block.seconds_per_iteration for block in blocks)
    deviation = (_quantile(times, 0.75) - _quantile(times, 0.25)) / QUARTILES_OVER_DEVIATION
    mean = _quantile(times, 0.5)
    return float(min(1.0, blocks[0].iterations * (deviation / mean) ** 2)) if mean > 0 else None


def _quantile(ordered: Sequence[float], fraction: float) -> float:
    return ordered[round(fraction * (len(ordered) - 1))]


def _core_seconds(profile: Profile, step: str) -> float | None:
    """Work of all cores in one iteration of a step."""
    seen = profile.telemetry.get(step)
    if seen is None:
        return None
    busy = seen.cpu_percent / 100 * profile.machine.cores
    if seen.worker_cpu_percent is not None:  # without what else ran on the machine
        busy = seen.worker_cpu_percent / 100 * profile.machine.workers_per_node
    return busy * _seconds(profile, step)


def _seconds(profile: Profile, step: str) -> float:
    return profile.steps[step].seconds_per_iteration.estimate
