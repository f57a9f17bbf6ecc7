"""From the recorded rounds of a probe to the links document: intervals, bandwidths, the line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

import numpy as np

from stash.errors import StashError
from stash.results import statistics
from stash.results.document import Interval
from stash.results.links import (
    AllReduce,
    Line,
    Links,
    LinksRun,
    MessageResult,
    Pair,
    SharedLink,
    SharedResult,
)
from stash.results.recording import (
    AnyEvent,
    Check,
    End,
    Kind,
    LinkBlock,
    LinkFacts,
    LinkRound,
    Where,
)
from stash.results.statistics import Estimate
from stash.results.validity import cold_check

#: A line that is off by more than this says little about the sizes where it is.
MISFIT_PERCENT = 25.0
#: Two numbers of a line need more sizes than two, or nothing can be off it.
FEWEST_SIZES = 3
#: Of a time: what grows by less than this over all sizes does so by rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Probing:
    """How a probe ended, as the process that launched it saw it."""

    id: str
    created: datetime
    topology: Sequence[tuple[int, int, str]] = ()
    failure: str | None = None
    quoting: str = ""  # the same with what workers wrote; for an error, and for no document
    interrupted: bool = False
    checks: tuple[Check, ...] = ()


def assemble_links(events: Iterable[AnyEvent], probing: Probing) -> Links:
    """The document of all complete rounds."""
    told = list(events)
    facts = next((event for event in told if isinstance(event, LinkFacts)), None)
    rounds = [event for event in told if isinstance(event, LinkRound)]
    if facts is None or not rounds:
        raise StashError(
            (probing.quoting or probing.failure or "Interrupted.")
            + "\nNo round was complete, so nothing was saved.",
            exit_code=3 if probing.interrupted else 1,
        )
    nodes = facts.machine.nodes
    blocks = [block for one in rounds for block in one.blocks]
    exchanges = tuple(_exchanges(blocks, nodes))
    return Links(
        id=probing.id,
        created=probing.created,
        machine=facts.machine,
        run=_run(rounds, told, probing),
        all_reduce=exchanges,
        shared=tuple(_shared(blocks)),
        topology=tuple(Pair(first=a, second=b, linked_by=how) for a, b, how in probing.topology),
        checks=(
            *facts.checks,
            *probing.checks,
            *_cold(blocks),
            *(_fits(one) for one in exchanges),
        ),
    )


def bus_factor(workers: int) -> float:
    """What every link must carry of an all-reduce, over its size (nccl-tests' definition)."""
    return 2 * (workers - 1) / workers


def _run(rounds: Sequence[LinkRound], events: Sequence[AnyEvent], probing: Probing) -> LinksRun:
    reason = next((event.reason for event in events if isinstance(event, End)), None)
    if probing.interrupted:
        stopped = "interrupted"
    elif probing.failure is not None or reason is None:
        stopped = "failed"
    else:
        stopped = reason
    return LinksRun.model_validate(
        {
            "rounds": len(rounds),
            "measuring_seconds": rounds[-1].at_seconds,
            "stopped_because": stopped,
            "message": (probing.failure or "")[:4000],
        }
    )


def _exchanges(blocks: Sequence[LinkBlock], nodes: int) -> Iterable[AllReduce]:
    for where in get_args(Where):
        own = [block for block in blocks if block.what == where]
        if own:
            yield _all_reduce(where, own, 1 if where == "node" else nodes)


def _all_reduce(where: Where, blocks: Sequence[LinkBlock], nodes: int) -> AllReduce:
    workers = blocks[0].at_once
    by_size: dict[int, list[float]] = {}
    for block in blocks:
        slowest = max(seconds for seconds in block.seconds if seconds is not None)
        by_size.setdefault(block.bytes, []).append(slowest / block.repeats)
    sizes = sorted(by_size)
    return AllReduce(
        where=where,
        nodes=nodes,
        workers=workers,
        messages=tuple(_message(size, by_size[size], workers) for size in sizes),
        line=_line(sizes, [by_size[size] for size in sizes], workers),
    )


def _message(size: int, samples: Sequence[float], workers: int) -> MessageResult:
    seconds = statistics.estimate([samples])
    return MessageResult(
        bytes=size,
        seconds=_interval(seconds),
        bytes_per_second=_inverse(seconds, size),
        bus_bytes_per_second=_inverse(seconds, size * bus_factor(workers)),
        samples_seconds=tuple(samples),
    )


def _line(sizes: Sequence[int], samples: Sequence[Sequence[float]], workers: int) -> Line | None:
    """Latency and slope of each round, then estimates over rounds as for anything else.

    Deviations count in parts of each size's time: otherwise the largest message decides alone.
    """
    if len(sizes) < FEWEST_SIZES:
        return None
    times = np.array(samples)  # sizes x rounds
    typical = np.array([statistics.trimmed_mean(row) for row in times])
    design = np.column_stack([np.ones(len(sizes)), np.array(sizes, dtype=float)])
    solve = np.linalg.pinv(design / typical[:, None])
    latencies, slopes = solve @ (times / typical[:, None])
    latency, slope = statistics.estimate([list(latencies)]), statistics.estimate([list(slopes)])
    # Half of all slopes in noise are above zero: only an interval above it is growth.
    if slope.low is None or slope.low * sizes[-1] <= ROUNDING * typical[-1]:
        return None
    fitted = design @ np.array([latency.value, slope.value])
    return Line(
        latency_seconds=_interval(latency),
        bytes_per_second=_inverse(slope, 1.0),
        bus_bytes_per_second=_inverse(slope, bus_factor(workers)),
        worst_misfit_percent=float(100 * np.max(np.abs(fitted / typical - 1))),
    )


def _shared(blocks: Sequence[LinkBlock]) -> Iterable[SharedLink]:
    for kind in get_args(Kind):
        own = [block for block in blocks if block.what == kind]
        if own:
            counts = sorted({block.at_once for block in own})
            yield SharedLink(
                kind=kind,
                bytes=own[0].bytes,
                counts=tuple(_at_once(count, own) for count in counts),
            )


def _at_once(count: int, blocks: Sequence[LinkBlock]) -> SharedResult:
    rates = [
        tuple(block.bytes * block.repeats / seconds for seconds in block.seconds if seconds)
        for block in blocks
        if block.at_once == count
    ]
    means = [sum(one) / len(one) for one in rates]
    return SharedResult(
        at_once=count,
        bytes_per_second_each=_interval(statistics.estimate([means])),
        samples_bytes_per_second=tuple(rates),
    )


def _cold(blocks: Sequence[LinkBlock]) -> Iterable[Check]:
    own = [block for block in blocks if block.what == "storage"]
    expected = sum(block.file_bytes or 0 for block in own)
    if expected:
        yield cold_check(sum(block.storage_bytes or 0 for block in own) / expected)


def _fits(exchange: AllReduce) -> Check:
    name = f"line ({exchange.where})"
    if exchange.line is None:
        message, further = _why_no_line(exchange.messages)
        return Check(name=name, status="warn", message=message, next=further)
    off = exchange.line.worst_misfit_percent
    message = f"The line is off by {off:.0f} % of a size's time at most."
    if off <= MISFIT_PERCENT:
        return Check(name=name, status="pass", message=message)
    return Check(
        name=name,
        status="warn",
        message=message,
        next="Read the table of sizes: latency and bandwidth alone do not tell this link's times.",
    )


def _why_no_line(messages: Sequence[MessageResult]) -> tuple[str, str]:
    """The reason, and what to do next."""
    if len(messages) < FEWEST_SIZES:
        return (
            f"A line needs {FEWEST_SIZES} sizes or more, and {len(messages)} were probed.",
            "Probe larger messages: --max-bytes 65536 or more. Those that take longer than a "
            "second are left out.",
        )
    if len(messages[0].samples_seconds) < 2:
        return (
            "One round does not tell by how much times are noise, so there is no line.",
            "Probe more rounds: --rounds, --max-minutes.",
        )
    return (
        "Times do not grow with the size by more than noise, so there is no line.",
        "Probe larger messages, or more rounds: --max-bytes, --rounds.",
    )


def _interval(found: Estimate) -> Interval:
    return Interval(estimate=found.value, low=found.low, high=found.high)


def _inverse(found: Estimate, factor: float) -> Interval:
    """`factor` over an estimate; no interval where the estimate's own reaches zero."""
    if found.low is None or found.high is None or found.low <= 0:
        return Interval(estimate=factor / found.value, low=None, high=None)
    return Interval(estimate=factor / found.value, low=factor / found.high, high=factor / found.low)
