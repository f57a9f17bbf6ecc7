"""Recorded probes for tests, built from given latencies and bandwidths rather than from a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from profiles import CREATED, machine
from stash.results.assemble_links import Probing, assemble_links
from stash.results.links import Links
from stash.results.recording import AnyEvent, End, LinkBlock, LinkFacts, LinkRound

SIZES = (4096, 65536, 1 << 20, 16 << 20)
LATENCY, BYTES_PER_SECOND = 0.002, 5e8


def steady(size: int, round_: int) -> float:
    """Seconds of an all-reduce on a link without noise."""
    return LATENCY + size / BYTES_PER_SECOND


def exchange(what: str, size: int, seconds: float, workers: int, world: int) -> LinkBlock:
    """Ten messages in a row; the first worker is faster than the rest."""
    told = [None if rank >= workers else 10 * seconds for rank in range(world)]
    told[0] = 9 * seconds
    return LinkBlock.model_validate(
        {"what": what, "bytes": size, "at_once": workers, "repeats": 10, "seconds": tuple(told)}
    )


def moves(what: str, rates: Sequence[float], world: int, **more: Any) -> LinkBlock:
    """A megabyte by each of some devices, at these bytes per second."""
    seconds = [1e6 / rate for rate in rates] + [None] * (world - len(rates))
    return LinkBlock.model_validate(
        {
            "what": what,
            "bytes": 1_000_000,
            "at_once": len(rates),
            "repeats": 1,
            "seconds": tuple(seconds),
            **more,
        }
    )


def events(
    seconds: Callable[[int, int], float] = steady,
    *,
    rounds: int = 10,
    workers: int = 4,
    sizes: Sequence[int] = SIZES,
    more: Sequence[LinkBlock] = (),
) -> list[AnyEvent]:
    """All that a gang of one node tells."""
    facts = LinkFacts(machine=machine(device="cpu", workers_per_node=workers), checks=())
    told = [
        LinkRound(
            number=number,
            at_seconds=float(number),
            blocks=(
                *(exchange("node", s, seconds(s, number), workers, workers) for s in sizes),
                *more,
            ),
        )
        for number in range(rounds)
    ]
    end = End.model_validate(
        {"launch": 0, "reason": "rounds", "checks": (), "peak_device_memory_bytes": ()}
    )
    return [facts, *told, end]


def links_of(told: Sequence[AnyEvent] | None = None, **changes: Any) -> Links:
    """The document of these events."""
    probing = Probing(**{"id": "abcd1234", "created": CREATED, **changes})
    return assemble_links(events() if told is None else told, probing)
