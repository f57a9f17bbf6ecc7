"""The exchange of gradients alone on a machine for rent: what a profile's steps do not tell apart.

Also with a message for every tensor, as the authors' scripts sent them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from stash.hardware import topologies
from stash.predict import communication, compute, facts, times
from stash.predict.communication import Link, Links, Messages
from stash.predict.constants import FITTED
from stash.study.plan import Rented

#: Of a PCIe link's own rate, what collectives see of it.
PCIE_COLLECTIVES = 12.0 / 15.75


@dataclass(frozen=True)
class Time:
    """Seconds per iteration of one worker alone, of all without exchange, and of all together."""

    alone: float
    unsynced: float
    together: float

    @property
    def stall(self) -> float:
        """Percent of one worker's time."""
        return 100 * (self.together / self.alone - 1)

    @property
    def exchange(self) -> float:
        """Seconds of exchange that computing does not hide."""
        return self.together - self.unsynced


@cache
def time_of(
    model: str,
    rented: Rented,
    batch: int,
    dtype: str,
    how: Messages = "buckets",
    link: Link | None = None,
) -> Time:
    """One model on one machine, its workers on the machine's own links or on a given one."""
    known, gpu = facts.find(model), rented.instance.accelerator
    assert gpu is not None
    layers = compute.layer_seconds(
        known, np.array([float(batch)]), compute.devices([gpu], [dtype], FITTED), FITTED
    )
    between = communication.between(rented.instance) if rented.nodes > 1 else None
    found = times.iteration_seconds(
        layers,
        communication.messages(known, how),
        np.array([float(rented.instance.gpus)]),
        np.array([float(rented.nodes)]),
        Links.of([link or _inside(rented)], [between], FITTED),
        FITTED,
    )
    return Time(float(found.alone[0]), float(found.unsynced[0]), float(found.together[0]))


def bytes_per_second_per_gpu(rented: Rented) -> float:
    """What each GPU of a node gets when all of them send at once; one alone has its PCIe link."""
    gpu, here = rented.instance.accelerator, rented.instance.gpus
    assert gpu is not None
    link = _inside(rented)
    if link is None:
        own = (gpu.pcie_bytes_per_second or 15.75e9) * PCIE_COLLECTIVES
        return own * FITTED.bandwidth_efficiency["pcie"]
    links = Links.of([link], [None], FITTED)
    return float(links.inside_rate(np.array([float(here)]))[0])


def _inside(rented: Rented) -> Link | None:
    instance = rented.instance
    assert instance.accelerator is not None
    topology = topologies.find(instance.topology) if instance.topology else None
    return communication.inside(topology, instance.accelerator, instance.gpus)
