"""Each worker's own pace, from blocks in which none waits for another: who is slow, how much."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from stash.results import statistics
from stash.results.document import Interval
from stash.results.recording import Block
from stash.results.student import quantile

#: A worker that is slower by less than this part of an iteration holds nobody up.
WORTH_FRACTION = 0.01
#: Steps in which workers go at their own pace, the best first; in others they wait for each other.
OWN_PACE = ("unsynced", "spread")
#: The only worker of a node has nobody to wait for there.
OWN_PACE_ALONE = (*OWN_PACE, "node")


def own_pace_steps(workers_per_node: int) -> tuple[str, ...]:
    """Steps that tell the pace of each worker, the best first."""
    return OWN_PACE_ALONE if workers_per_node == 1 else OWN_PACE


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

    @property
    def mean_seconds_per_iteration(self) -> float:
        """Of all workers."""
        return fmean(worker.seconds_per_iteration.estimate for worker in self.workers)


def workers_of(step: str, blocks: Iterable[Block]) -> Workers | None:
    """Where two or more ran, in two rounds or more. Blocks are those of one step, in order."""
    rows = [_per_iteration(block) for block in blocks]
    complete = [row for row in rows if row is not None]
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


def _worker(
    number: int, times: list[float], lags: list[float], workers: int, worth: float
) -> Worker:
    """Slow only by an interval that is wide enough for as many questions as there are workers."""
    lag = statistics.estimate([lags])
    bound = lag.value
    if lag.standard_error is not None:
        sure = quantile(1 - 0.025 / workers, lag.degrees_of_freedom)
        bound = lag.value - sure * lag.standard_error
    own = statistics.estimate([times])
    return Worker(
        number,
        Interval(estimate=own.value, low=own.low, high=own.high),
        Interval(estimate=lag.value, low=lag.low, high=lag.high),
        slow=bound > 0 and lag.value > worth,
    )


def _per_iteration(block: Block) -> list[float] | None:
    """Of workers that were left out, what they took for as many iterations afterwards."""
    held = block.held_seconds or (None,) * len(block.seconds)
    own = [
        ran if ran is not None else after for ran, after in zip(block.seconds, held, strict=True)
    ]
    known = [seconds for seconds in own if seconds is not None]
    return None if len(known) < len(own) else [seconds / block.iterations for seconds in known]
