"""What the truth suite tries: every experiment is a world, and what to call it.

Amounts are parts of an iteration of one worker alone that waits for nothing.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

from recurrence import LINK_BURST, exchange_stall, messages
from scipy import optimize
from truth_worlds import World

from stash.lab import network, words

ALL_STEPS = ("solo", "unsynced", "node", "warm", "cold")
KINDS = ("communication", "contention", "prep", "fetch", "network")
AMOUNTS = (0.02, 0.05, 0.10, 0.20, 0.50, 1.00)
#: A throttled disk answers at ticks of the kernel (4 ms), so a batch takes a whole number of them.
FETCH_AMOUNTS = (0.02, 0.04, 0.10, 0.20, 0.50, 1.00)
EVEN_AMOUNTS = (0.04, 0.50)
#: By this part iterations are shorter or longer, but for those of ideal devices.
UNEVEN = 0.01
LINK_RATES = ("100mbit", "70mbit", "50mbit")
HOSTS = 2
NETWORK_WORLD = World(iteration_seconds=0.4, model="resnet50", byte_scale=0.02)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One profile of one world."""

    name: str
    group: str  # sweep, even, masked, together, null, slow worker, links
    about: str
    world: World
    kind: str | None = None  # of a sweep: the stall that is put in
    hides: str | None = None  # the stall that compute hides as a whole
    steps: tuple[str, ...] = ALL_STEPS
    link: str | None = None  # rate of the link between the workers, or between their hosts
    hosts: int = 1


@functools.cache
def experiments() -> list[Experiment]:
    """All of them, in the order in which they run."""
    return [
        *_sweeps(),
        *_networks(),
        *_even(),
        *_masked(),
        *_together(),
        *_nulls(),
        *_slow_worker(),
        *_links(),
    ]


def world_with(
    *,
    communication: float = 0.0,
    contention: float = 0.0,
    prep: float = 0.0,
    fetch: float = 0.0,
    iteration_seconds: float = 0.2,
    uneven: float = 0.0,
) -> World:
    """A world whose stalls are such parts of an iteration.

    The worker makes its batches itself, once it has read its loss: nothing is queued then under
    which they could hide. What is fetched is read ahead by a loader worker, which never lets the
    disk idle: `fetch` is what goes beyond compute, of which a host that waits would be a part.
    """
    plain = World(
        iteration_seconds=iteration_seconds,
        tail=not communication,
        neighbour_seconds=contention * iteration_seconds,
        uneven_seconds=uneven * iteration_seconds,
        reads_loss=not fetch,
    )
    exchange = plain.tail_seconds + communication * iteration_seconds if communication else 0.0
    return replace(
        plain,
        exchange_seconds=exchange,
        prepare_seconds=prep * iteration_seconds,
        read_seconds=iteration_seconds * (1 + communication + contention + fetch) if fetch else 0.0,
        loader_workers=1 if fetch else 0,
    )


def _sweeps() -> list[Experiment]:
    """One kind at a time, on devices that are as uneven as real ones."""
    swept = [
        (kind, amount)
        for kind in ("communication", "contention", "prep", "fetch")
        for amount in (FETCH_AMOUNTS if kind == "fetch" else AMOUNTS)
    ]
    return [
        Experiment(
            name=f"{kind}-{100 * amount:g}",
            group="sweep",
            about=f"{kind} of {100 * amount:g} %",
            world=replace(world_with(**{kind: amount}, uneven=UNEVEN), seed=seed),
            kind=kind,
        )
        for seed, (kind, amount) in enumerate(swept)
    ]


def _even() -> list[Experiment]:
    """The same on an ideal device: what is left is what closed forms leave out."""
    return [
        Experiment(
            name=f"even-{kind}-{100 * amount:g}",
            group="even",
            about=f"{kind} of {100 * amount:g} %",
            world=world_with(**{kind: amount}),
        )
        for kind in ("communication", "contention", "prep", "fetch")
        for amount in EVEN_AMOUNTS
    ]


def _networks() -> list[Experiment]:
    """Two workers on each of two hosts, so that `cluster` is one on each, across the link."""
    return [
        Experiment(
            name=f"network-{100 * amount:g}",
            group="sweep",
            about=f"network of {100 * amount:g} %",
            world=NETWORK_WORLD,
            kind="network",
            steps=("solo", "unsynced", "node", "cluster", "spread"),
            link=f"{_network_bits(amount):.0f}bit",
            hosts=HOSTS,
        )
        for amount in AMOUNTS
    ]


def _network_bits(amount: float) -> float:
    """Of the link on which the network stall is such a part of an iteration."""

    device = NETWORK_WORLD.accelerator
    sent = messages(device)

    def missing(log_bits: float) -> float:
        depth = words.seconds(LINK_BURST)
        link = network.Link(bits_per_second=math.exp(log_bits), depth_seconds=depth)
        stall = exchange_stall(
            sent,
            device.backward_seconds,
            bytes_per_second=link.goodput,
            burst_seconds=link.burst_seconds,
        )
        return stall - amount * NETWORK_WORLD.iteration_seconds

    return math.exp(float(optimize.brentq(missing, math.log(1e6), math.log(1e11))))


def _uneven() -> World:
    """Nothing is put in, and iterations vary as those of sweeps do."""
    even = World()
    return replace(even, uneven_seconds=UNEVEN * even.iteration_seconds)


def _masked() -> list[Experiment]:
    plain = replace(_uneven(), reads_loss=True)
    whole = plain.iteration_seconds
    loader = replace(_uneven(), loader_workers=1)
    cases = {
        "masked-communication-hidden": (
            "an exchange of 10 % of an iteration, over before the backward pass",
            replace(plain, exchange_seconds=0.1 * whole),
            "communication",
        ),
        "masked-communication-partly": (
            "an exchange of 30 %, begun before the end of the backward pass",
            replace(plain, exchange_seconds=0.3 * whole),
            None,
        ),
        "masked-prep-hidden": (
            "batches that take 60 % of an iteration, prepared by a loader worker",
            replace(loader, prepare_seconds=0.6 * whole),
            "prep",
        ),
        "masked-prep-partly": (
            "batches that take 130 % of an iteration, prepared by a loader worker",
            replace(loader, prepare_seconds=1.3 * whole),
            None,
        ),
        "masked-fetch-hidden": (
            "batches that take 60 % of an iteration to read, by a loader worker",
            replace(loader, read_seconds=0.6 * whole),
            "fetch",
        ),
    }
    return [
        Experiment(name=name, group="masked", about=about, world=world, hides=hides)
        for name, (about, world, hides) in cases.items()
    ]


def _together() -> list[Experiment]:
    both = {"communication": 0.2, "prep": 0.2}
    return [
        Experiment(
            name="together-communication-prep",
            group="together",
            about="communication of 20 % and prep of 20 %",
            world=world_with(**both),
        ),
        Experiment(
            name="together-contention-fetch",
            group="together",
            about="contention of 10 % and fetch of 20 %",
            world=world_with(contention=0.1, fetch=0.2),
        ),
        Experiment(
            name="dilated-communication-prep",
            group="together",
            about="communication of 20 % and prep of 20 %, everything twice as slow",
            world=world_with(**both, iteration_seconds=0.4),
        ),
    ]


def _nulls() -> list[Experiment]:
    return [
        Experiment(
            name=f"null-{where}",
            group="null",
            about=f"nothing put in; batches from {words}",
            world=replace(_uneven(), loader_workers=loaders, reads_loss=not loaders),
            steps=(*ALL_STEPS, "again"),
        )
        for where, words, loaders in (
            ("own", "the worker itself", 0),
            ("loader", "a loader worker", 1),
        )
    ]


def _slow_worker() -> list[Experiment]:
    plain = World(reads_loss=True)
    return [
        Experiment(
            name="slow-worker-30",
            group="slow worker",
            about="one of two workers is 30 % slower",
            world=replace(plain, slow_worker_seconds=0.3 * plain.iteration_seconds),
        )
    ]


def _links() -> list[Experiment]:
    return [
        Experiment(
            name=f"link-{rate}",
            group="links",
            about=f"ResNet50, its gradients over a link of {rate}",
            world=NETWORK_WORLD,
            steps=("solo", "unsynced", "node"),
            link=rate,
        )
        for rate in LINK_RATES
    ]
