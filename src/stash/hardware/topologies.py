"""How the GPUs of a machine are linked, and what a ring of all-reduce gets out of those links.

Rings are counted on the real graph of NVLink connections, not assumed. Changes when another kind
of link has to be understood.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from stash.errors import UsageError

Link = tuple[int, int, int]  # gpu, gpu, number of NVLink connections
#: A search over all ways to lay rings stays fast up to here; larger machines have switches.
MAX_SEARCHED_GPUS = 8


@dataclass(frozen=True)
class Topology:
    """The links inside one machine, or inside a slice of one."""

    name: str
    gpus: int
    kind: str
    nvlink: str | None = None  # generation
    links: tuple[Link, ...] = ()
    links_to_switch: int = 0
    nvlink_bytes_per_second_per_gpu: float | None = None  # where only the total is published
    pcie: str = "pcie3"
    lanes: int = 16
    groups: tuple[tuple[int, ...], ...] = ()  # GPUs behind one PCIe switch or socket
    between_groups_bytes_per_second: float | None = None
    peer_to_peer: bool | None = None  # over PCIe; none where nobody says
    confidence: str = "low"
    note: str = ""
    sources: tuple[str, ...] = ()

    @property
    def rings(self) -> int:
        """Rings through all GPUs, each NVLink connection used once, both directions counted once.

        Two GPUs that are linked n-fold have n rings of two.
        """
        if self.gpus == 2:
            return sum(count for _, _, count in self.links)
        return rings(self.gpus, self.links)

    @property
    def nvlink_ring_bytes_per_second(self) -> float | None:
        """What all rings together carry one way for collectives; none where they need PCIe."""
        if self.nvlink_bytes_per_second_per_gpu is not None:
            return self.nvlink_bytes_per_second_per_gpu * 0.8  # as collectives see NVLink 2 and 3
        if self.nvlink is None:
            return None
        one_link = nvlink_bytes_per_second(self.nvlink)
        if self.links_to_switch:
            return one_link * self.links_to_switch
        # A ring over single connections runs both ways round, so it carries two links' worth;
        # a pair's connections each carry one way and back.
        found = self.rings * (1 if self.gpus == 2 else 2)
        return found * one_link or None

    @property
    def pcie_bytes_per_second(self) -> float:
        """One GPU's PCIe link, as collectives see it."""
        return pcie_bytes_per_second(self.pcie, self.lanes)

    def slice(self, gpus: Sequence[int]) -> Topology:
        """The same machine, with only these GPUs in it."""
        place = {gpu: index for index, gpu in enumerate(gpus)}
        links = tuple(
            (place[a], place[b], count) for a, b, count in self.links if {a, b} <= place.keys()
        )
        groups = tuple(
            inside
            for group in self.groups
            if (inside := tuple(place[gpu] for gpu in group if gpu in place))
        )
        name = f"{self.name} GPUs {','.join(map(str, gpus))}"
        return replace(self, name=name, gpus=len(gpus), links=links, groups=groups)

    def slices(self, gpus: int) -> dict[Topology, int]:
        """Every way to be given so many GPUs of this machine: one of each kind, and how many."""
        kinds: Counter[float] = Counter()
        example: dict[float, Topology] = {}
        for chosen in itertools.combinations(range(self.gpus), gpus):
            one = self.slice(chosen)
            speed = one.nvlink_ring_bytes_per_second or 0.0
            kinds[speed] += 1
            example.setdefault(speed, one)
        return {example[speed]: count for speed, count in sorted(kinds.items())}


def names() -> tuple[str, ...]:
    """Every topology there is."""
    return tuple(_table())


def find(name: str) -> Topology:
    """A topology by its name."""
    try:
        return _table()[name]
    except KeyError:
        raise UsageError(f"Unknown topology {name!r}. There are: {', '.join(names())}.") from None


def nvlink_bytes_per_second(generation: str) -> float:
    """One NVLink connection one way, as collectives see it."""
    return float(_document()["nvlink_bytes_per_second"][generation]["collectives"])


def pcie_bytes_per_second(generation: str, lanes: int) -> float:
    """A PCIe link one way, as collectives see it."""
    return float(_document()["pcie_bytes_per_second"][generation]["collectives"]) * lanes / 16


@cache
def rings(gpus: int, links: tuple[Link, ...]) -> int:
    """The most rings through all GPUs that share no NVLink connection."""
    if gpus < 3 or gpus > MAX_SEARCHED_GPUS:
        return 0
    free = Counter({frozenset((a, b)): count for a, b, count in links})
    cycles = [_edges(order) for order in _orders(gpus)]
    possible = [cycle for cycle in cycles if all(free[edge] for edge in cycle)]
    most = min((_degree(gpu, links) // 2 for gpu in range(gpus)), default=0)
    return _most_rings(possible, free, most)


def _most_rings(cycles: Sequence[tuple[frozenset[int], ...]], free: Counter[Any], most: int) -> int:
    if most == 0:
        return 0
    best = 0
    for position, cycle in enumerate(cycles):
        if not all(free[edge] for edge in cycle):
            continue
        free.subtract(cycle)
        best = max(best, 1 + _most_rings(cycles[position:], free, most - 1))
        free.update(cycle)
        if best == most:
            break
    return best


def _orders(gpus: int) -> Iterable[tuple[int, ...]]:
    """Every ring once: it starts at GPU 0 and its second GPU is smaller than its last."""
    for rest in itertools.permutations(range(1, gpus)):
        if rest[0] < rest[-1]:
            yield (0, *rest)


def _edges(order: tuple[int, ...]) -> tuple[frozenset[int], ...]:
    return tuple(frozenset(pair) for pair in zip(order, (*order[1:], order[0]), strict=True))


def _degree(gpu: int, links: tuple[Link, ...]) -> int:
    return sum(count for a, b, count in links if gpu in (a, b))


@cache
def _table() -> dict[str, Topology]:
    return {name: _topology(name, one) for name, one in _document()["topologies"].items()}


@cache
def _document() -> dict[str, Any]:
    text = resources.files("stash.hardware").joinpath("data/topologies.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def _topology(name: str, one: dict[str, Any]) -> Topology:
    nvlink, pcie = one.get("nvlink", {}), one["pcie"]
    return Topology(
        name=name,
        gpus=one["gpus"],
        kind=one["kind"],
        nvlink=nvlink.get("generation"),
        links=tuple((a, b, count) for a, b, count in nvlink.get("links", ())),
        links_to_switch=nvlink.get("links_to_switch", 0),
        nvlink_bytes_per_second_per_gpu=nvlink.get("peak_bytes_per_second_per_gpu"),
        pcie=pcie["generation"],
        lanes=pcie["lanes"],
        groups=tuple(tuple(group) for group in pcie["groups"] or ()),
        between_groups_bytes_per_second=pcie.get("between_groups_bytes_per_second"),
        peer_to_peer=one["peer_to_peer"],
        confidence=one["confidence"],
        note=one["note"],
        sources=tuple(one["sources"]),
    )
