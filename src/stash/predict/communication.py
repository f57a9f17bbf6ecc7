"""How long gradients travel: links to all-reduce times, and PyTorch's rules for messages.

Rings follow the real graph of the machine; the network is the slowest link of a ring across
machines. Changes when the model of communication does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Literal

import numpy as np

from stash.hardware import catalog, topologies
from stash.hardware.catalog import Instance
from stash.hardware.gpus import Gpu
from stash.hardware.topologies import Topology
from stash.predict.constants import TRANSPORTS, Constants
from stash.predict.facts import Array, ModelFacts

MIB = 2**20
#: PyTorch's defaults: the first bucket is small, so that the exchange starts early.
FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 * MIB, 25 * MIB
#: NCCL's own model: what a collective costs at once, and each hop by its link, in seconds.
BASE_SECONDS = 8.4e-6
HOP_SECONDS = {
    "nvlink": 3.4e-6,
    "nvswitch": 3.4e-6,
    "pcie": 5.7e-6,
    "host": 5.7e-6,
    "tcp": 14e-6,
    "cloud": 14e-6,
    "rdma": 14e-6,
}

#: What Amazon's documentation allows one flow of packets inside a placement group.
CLOUD_FLOW_BYTES_PER_SECOND = 10e9 / 8

Messages = Literal["buckets", "tensors", "one"]


@dataclass(frozen=True)
class Link:
    """What gradients travel on between neighbours of a ring."""

    transport: str
    bytes_per_second: float  # by specification, one way


@dataclass(frozen=True, eq=False)
class Links:
    """The links of many configurations, after efficiencies."""

    inside: Array  # bytes per second between GPUs of a node
    inside_hop: Array  # seconds
    inside_sharing: Array  # power by which that falls with the workers of a node
    between: Array  # bytes per second between nodes
    between_hop: Array

    @classmethod
    def of(
        cls, inside: Sequence[Link | None], between: Sequence[Link | None], constants: Constants
    ) -> Links:
        """Links of configurations; a link that is not used may be left out."""
        shared = [o is not None and o.transport in ("pcie", "host") for o in inside]
        sharing = np.array(shared, dtype=float) * constants.pcie_sharing
        return cls(*_effective(inside, constants), sharing, *_effective(between, constants))

    def inside_rate(self, gpus_per_node: Array) -> Array:
        """Between GPUs of a node, when so many are at it."""
        fewer = np.minimum(1.0, 2 / gpus_per_node) ** self.inside_sharing
        rate: Array = np.where(gpus_per_node > 1, self.inside * fewer, np.inf)
        return rate

    def as_columns(self) -> Links:
        """The same for arrays with a row a configuration."""
        return Links(*(getattr(self, field.name)[:, None] for field in fields(self)))


@dataclass(frozen=True)
class Message:
    """Gradients that travel together, sent when the last of their layers is done."""

    elements: int
    last_layer: int  # position in the forward pass: nearest to the input


def messages(
    facts: ModelFacts, how: Messages = "buckets", bucket_bytes: int = BUCKET_BYTES
) -> tuple[Message, ...]:
    """What PyTorch's DDP sends: tensors in reverse order, never split, until a bucket is full."""
    in_order = list(reversed(facts.gradients))
    if how == "tensors":
        return tuple(Message(elements, layer) for layer, elements in in_order)
    if how == "one":
        return (Message(sum(elements for _, elements in in_order), 0),)
    return tuple(_buckets(in_order, bucket_bytes))


def inside(topology: Topology | None, gpu: Gpu, gpus: int) -> Link | None:
    """What a ring inside one machine travels on."""
    if gpus < 2:
        return None
    if topology is None:
        topology = _neighbours(gpu, gpus)
    if topology is not None:
        speed = topology.nvlink_ring_bytes_per_second
        if speed is not None:
            switched = bool(topology.links_to_switch)
            return Link("nvswitch" if switched else "nvlink", speed)
        return _over_pcie(topology, gpu)
    if gpu.nvlink_bytes_per_second and "sxm" in gpu.key:
        return through_switch(gpu)
    lane_rate = gpu.pcie_bytes_per_second or 15.75e9
    return Link("pcie" if has_peer_to_peer(gpu) else "host", lane_rate * 12.0 / 15.75)


def through_switch(gpu: Gpu) -> Link:
    """All NVLink connections of a card one way through a switch, as collectives see them."""
    assert gpu.nvlink_bytes_per_second is not None
    return Link("nvswitch", gpu.nvlink_bytes_per_second * 0.8)


def between(instance: Instance) -> Link | None:
    """What a ring across machines travels on; none where the catalog knows no network."""
    speed = instance.network_bytes_per_second
    if speed is None:
        return None
    if instance.has_rdma:
        return Link("rdma", speed)
    return Link("cloud", min(speed, CLOUD_FLOW_BYTES_PER_SECOND))


def has_peer_to_peer(gpu: Gpu) -> bool:
    """GeForce cards since Turing talk through the host's memory only."""
    return not gpu.name.startswith("GeForce RTX")


def slices(instance: Instance, gpus: int) -> list[tuple[Topology, float]]:
    """Every kind of slice that an instance may be of its larger machine, with its chance."""
    whole = mesh_of(instance.gpu)
    if whole is None or not 1 < gpus < whole.gpus:
        return []
    kinds = whole.slices(gpus)
    total = sum(kinds.values())
    return [(topology, count / total) for topology, count in kinds.items()]


@cache
def mesh_of(gpu_key: str) -> Topology | None:
    """The largest machine whose GPUs of this kind are joined by NVLink and by no switch.

    One with fewer of them is a part of it, whose other part somebody else rents.
    """
    named = {one.topology for one in catalog.packaged() if one.gpu == gpu_key and one.topology}
    found = (topologies.find(name) for name in sorted(named))
    # A bridged pair is a machine of its own.
    meshes = [one for one in found if one.gpus > 2 and one.links and one.rings]
    return max(meshes, key=lambda one: one.gpus, default=None)


def _neighbours(gpu: Gpu, gpus: int) -> Topology | None:
    """The first GPUs of the machine that an instance without a topology is a part of."""
    whole = mesh_of(gpu.key)
    return None if whole is None or gpus > whole.gpus else whole.slice(range(gpus))


def all_reduce_seconds(
    size: Array, gpus_per_node: Array, nodes: Array, links: Links, constants: Constants
) -> Array:
    """One message by the better of ring and tree, as NCCL chooses."""
    workers = gpus_per_node * nodes
    inside_rate = links.inside_rate(gpus_per_node)
    between_rate = np.where(nodes > 1, links.between, np.inf)
    rate = np.minimum(inside_rate, between_rate)
    start = BASE_SECONDS * constants.latency_factor + constants.message_seconds
    inside_hop = links.inside_hop * constants.latency_factor
    between_hop = links.between_hop * constants.latency_factor
    ring_hops = 2 * (workers - nodes) * inside_hop + 2 * (nodes - 1) * between_hop
    ring = start + ring_hops + 2 * (workers - 1) / workers * size / rate
    tree_hops = 2 * (gpus_per_node - 1) * inside_hop + 2 * np.log2(nodes) * between_hop
    tree = np.where(nodes > 1, start + tree_hops + 2 * size / rate, np.inf)
    seconds: Array = np.where(workers > 1, np.minimum(ring, tree), 0.0)
    return seconds


def plain_seconds(
    message_count: Array, total_bytes: Array, gpus_per_node: Array, nodes: Array, links: Links
) -> Array:
    """The paper's own formula, `L * tau + G / B`, without overlap: a yardstick, not our model."""
    rate = np.minimum(links.inside_rate(gpus_per_node), np.where(nodes > 1, links.between, np.inf))
    hop = np.where(nodes > 1, links.between_hop, links.inside_hop)
    seconds: Array = np.where(
        gpus_per_node * nodes > 1, message_count * hop + total_bytes / rate, 0.0
    )
    return seconds


def _buckets(in_order: Sequence[tuple[int, int]], bucket_bytes: int) -> Iterator[Message]:
    limit, elements, last = FIRST_BUCKET_BYTES, 0, 0
    for layer, count in in_order:
        elements, last = elements + count, layer
        if 4 * elements >= limit:
            yield Message(elements, last)
            limit, elements = bucket_bytes, 0
    if elements:
        yield Message(elements, last)


def _over_pcie(topology: Topology, gpu: Gpu) -> Link:
    direct = topology.peer_to_peer
    if direct is None:
        direct = has_peer_to_peer(gpu)
    speed = topology.pcie_bytes_per_second
    if len(topology.groups) > 1 and topology.between_groups_bytes_per_second is not None:
        speed = min(speed, topology.between_groups_bytes_per_second)
    return Link("pcie" if direct else "host", speed)


def _effective(links: Sequence[Link | None], constants: Constants) -> tuple[Array, Array]:
    efficiency = constants.bandwidth_efficiency
    rates = [np.nan if o is None else o.bytes_per_second * efficiency[o.transport] for o in links]
    hops = [0.0 if o is None else HOP_SECONDS[o.transport] for o in links]
    assert all(o is None or o.transport in TRANSPORTS for o in links)
    return np.array(rates, dtype=float), np.array(hops, dtype=float)
