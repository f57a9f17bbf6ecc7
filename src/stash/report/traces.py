"""What raw blocks tell beyond the estimates: drift, slow workers, load over the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean

from scipy.special import stdtrit

from stash.report.figures import derived
from stash.results import statistics
from stash.results.comparison import difference
from stash.results.document import Interval
from stash.results.profile import Profile, RoundBlock, whole_step
from stash.results.recording import Disturbance

#: Fewer rounds than this in each half say nothing about drift.
MIN_ROUNDS_PER_HALF = 5
#: A worker that is slower by less than this part of an iteration holds nobody up.
WORTH_FRACTION = 0.01
#: Steps in which workers go at their own pace, the best first; in others they wait for each other.
OWN_PACE = ("unsynced", "spread")


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


@dataclass(frozen=True)
class Worker:
    """One worker's time in a step, and how it differs from the mean of all."""

    number: int
    seconds_per_iteration: Interval
    lag: Interval  # seconds per iteration over the mean of all workers
    slow: bool


@dataclass(frozen=True)
class Workers:
    """All workers in one step."""

    step: str
    workers: tuple[Worker, ...]


def workers(profile: Profile) -> Workers | None:
    """Each worker's own pace, where two or more ran and none waited for another."""
    step = next((name for name in OWN_PACE if name in profile.steps), None)
    if step is None:
        return None
    rows = [_per_iteration(block) for block in _in_order(profile.steps[step].blocks)]
    complete = [row for row in rows if row is not None and len(row) > 1]
    count = min((len(row) for row in complete), default=0)
    if count < 2 or len(complete) < 2:
        return None
    means = [fmean(row) for row in complete]
    worth = WORTH_FRACTION * fmean(means)
    return Workers(
        step,
        tuple(
            _worker(
                number,
                [row[number] for row in complete],
                [row[number] - mean for row, mean in zip(complete, means, strict=True)],
                count,
                worth,
            )
            for number in range(count)
        ),
    )


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


def _worker(
    number: int, times: list[float], lags: list[float], workers: int, worth: float
) -> Worker:
    """Slow only by an interval that is wide enough for as many questions as there are workers."""
    lag = statistics.estimate([lags])
    bound = lag.value
    if lag.standard_error is not None:
        sure = float(stdtrit(lag.degrees_of_freedom, 1 - 0.025 / workers))
        bound = lag.value - sure * lag.standard_error
    return Worker(
        number,
        _interval(times),
        derived(lag.value, lag.low, lag.high),
        slow=bound > 0 and lag.value > worth,
    )


def _per_iteration(block: RoundBlock) -> list[float] | None:
    known = [seconds for seconds in block.seconds if seconds is not None]
    if len(known) < len(block.seconds):
        return None
    return [seconds / block.iterations for seconds in known]


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
