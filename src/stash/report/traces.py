"""What raw blocks tell beyond the estimates: drift, slow workers, load over the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean

from stash.report.figures import derived
from stash.results import statistics
from stash.results.comparison import difference
from stash.results.document import Interval
from stash.results.pace import Workers, own_pace_steps, workers_of
from stash.results.profile import Profile, RoundBlock
from stash.results.recording import Disturbance
from stash.results.whole import whole_step

#: Fewer rounds than this in each half say nothing about drift.
MIN_ROUNDS_PER_HALF = 5


def at_seconds(profile: Profile) -> Callable[[RoundBlock], float]:
    """When a block's round ended, counted over all launches as if they followed at once."""
    ends: dict[int, float] = {}
    for step in profile.steps.values():
        for block in step.blocks:
            ends[block.launch] = max(ends.get(block.launch, 0.0), block.at_seconds)
    starts, total = {}, 0.0
    for launch in sorted(ends):
        starts[launch] = total
        total += ends[launch]
    return lambda block: starts[block.launch] + block.at_seconds


def drift(profile: Profile) -> Interval | None:
    """How much slower whole iterations were in the second half of the run, as a fraction."""
    whole = whole_step(profile)
    blocks = profile.steps[whole].blocks if whole else ()
    times = [block.seconds_per_iteration for block in _in_order(blocks)]
    half = len(times) // 2
    if half < MIN_ROUNDS_PER_HALF:
        return None
    before, after = _interval(times[:half]), _interval(times[half:])
    if before.estimate <= 0:
        return None
    change = difference(before, after)
    return _scaled(change, 1 / before.estimate)


def workers(profile: Profile) -> Workers | None:
    """Each worker's own pace, where two or more ran and none waited for another."""
    possible = own_pace_steps(profile.machine.workers_per_node)
    step = next((name for name in possible if name in profile.steps), None)
    return None if step is None else workers_of(step, _in_order(profile.steps[step].blocks))


@dataclass(frozen=True)
class Load:
    """What the machine did during one round."""

    at_seconds: float
    cpu_percent: float
    steal_percent: float
    disk_read_bytes_per_second: float
    network_bytes_per_second: float
    memory_used_bytes: float
    device_busy_percent: float | None


def load_over_time(profile: Profile) -> list[Load]:
    """One point a round, all its blocks together."""
    when = at_seconds(profile)
    rounds: dict[tuple[int, int], list[RoundBlock]] = {}
    for step in profile.steps.values():
        for block in step.blocks:
            rounds.setdefault((block.launch, block.round), []).append(block)
    return [
        _load(when(blocks[0]), [block.disturbance for block in blocks], profile.machine.cores)
        for _, blocks in sorted(rounds.items())
    ]


def _load(at: float, seen: list[Disturbance], cores: int) -> Load:
    seconds = sum(one.wall_seconds for one in seen) or 1e-9
    busy = [one.device_busy_percent for one in seen if one.device_busy_percent is not None]
    return Load(
        at_seconds=at,
        cpu_percent=100 * sum(one.cpu_busy_seconds for one in seen) / (seconds * cores),
        steal_percent=100 * sum(one.cpu_steal_seconds for one in seen) / (seconds * cores),
        disk_read_bytes_per_second=sum(one.disk_read_bytes for one in seen) / seconds,
        network_bytes_per_second=sum(one.network_bytes for one in seen) / seconds,
        memory_used_bytes=max(one.memory_used_bytes for one in seen),
        device_busy_percent=fmean(busy) if busy else None,
    )


def _in_order(blocks: Iterable[RoundBlock]) -> list[RoundBlock]:
    timed = [block for block in blocks if any(s is not None for s in block.seconds)]
    return sorted(timed, key=lambda block: (block.launch, block.round))


def _interval(values: list[float]) -> Interval:
    found = statistics.estimate([values])
    return derived(found.value, found.low, found.high)


def _scaled(value: Interval, factor: float) -> Interval:
    return derived(
        value.estimate * factor,
        None if value.low is None else value.low * factor,
        None if value.high is None else value.high * factor,
    )
