"""Every way to rent: machine types that can train the model, at every number of nodes.

One row a way, so that all of them are predicted at once. Changes when other machines come into
question, or when the predictor's models want something else of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stash.errors import UsageError
from stash.hardware import catalog, topologies
from stash.hardware.catalog import Instance
from stash.hardware.gpus import Gpu
from stash.predict import communication, compute, memory, times
from stash.predict.communication import Links
from stash.predict.constants import FITTED
from stash.predict.facts import Array, ModelFacts

Positions = NDArray[np.intp]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Pool:
    """Machine types in question, and those left out, by reason."""

    instances: tuple[Instance, ...]
    left_out: dict[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Grid:
    """Machine types times numbers of nodes, one value a row."""

    instances: tuple[Instance, ...]
    gpus: tuple[Gpu, ...]  # of each instance
    kinds: tuple[Gpu, ...]  # different GPUs
    instance: Positions  # of each row
    kind: Positions
    nodes: Array
    gpus_per_node: Array
    one_node: Positions  # the row of the same machine alone
    links: Links

    def __len__(self) -> int:
        return len(self.nodes)

    def of(self, row: int) -> Instance:
        return self.instances[int(self.instance[row])]

    @property
    def workers(self) -> Array:
        count: Array = self.nodes * self.gpus_per_node
        return count


@dataclass(frozen=True, eq=False)
class Iterations:
    """Seconds per iteration without data: one worker, one node, all nodes."""

    solo: Array
    node: Array
    together: Array


def read_catalog(named: str) -> tuple[Instance, ...]:
    """A snapshot by its name, or the rows of a user's own file."""
    path = Path(named)
    if named in {one.snapshot for one in catalog.packaged()} or not path.is_file():
        return catalog.instances(named)
    return tuple(catalog.read_overrides(path, catalog.packaged()))


def pool(
    rows: Sequence[Instance],
    *,
    clouds: Sequence[str] = (),
    excluded: Sequence[str] = (),
    retired: bool = False,
) -> Pool:
    """Machine types that may be rented and that the predictor knows."""
    asked = _of_clouds(rows, clouds)
    _check_excluded(asked, excluded)
    left_out: dict[str, list[str]] = {}
    kept = []
    for one in asked:
        reason = _why_not(one, excluded, retired=retired)
        if reason is None:
            kept.append(one)
        elif one.gpus:
            left_out.setdefault(reason, []).append(one.name)
    if not kept:
        raise UsageError(
            "No machine is left to choose from: the filters (--clouds, --exclude, --catalog) leave "
            f"none with a GPU that can be predicted{_reasons(left_out)}."
        )
    return Pool(tuple(kept), {reason: tuple(names) for reason, names in left_out.items()})


def fitting(found: Pool, known: ModelFacts, batch: int, dtype: str) -> Pool:
    """Only the machines whose GPUs hold the model at this batch."""
    compute.check_dtype(dtype)
    needed = memory.peak_bytes(known, batch, dtype)
    fits = [needed <= memory.usable_bytes(gpu_of(one)) for one in found.instances]
    kept = tuple(one for one, enough in zip(found.instances, fits, strict=True) if enough)
    small = tuple(one.name for one, enough in zip(found.instances, fits, strict=True) if not enough)
    reason = f"memory: batch {batch} in {dtype} needs about {needed / 2**30:.1f} GiB a GPU"
    return Pool(kept, {**found.left_out, **({reason: small} if small else {})})


def gpu_of(one: Instance) -> Gpu:
    gpu = one.accelerator
    assert gpu is not None
    return gpu


def grid(instances: Sequence[Instance], max_nodes: int) -> Grid:
    """Rows: each machine alone, then several of it where its network is known."""
    gpus = tuple(gpu_of(one) for one in instances)
    kinds = tuple({gpu.key: gpu for gpu in gpus}.values())
    position = {gpu.key: number for number, gpu in enumerate(kinds)}
    inside = [_inside(one, gpu) for one, gpu in zip(instances, gpus, strict=True)]
    between = [communication.between(one) for one in instances]
    rows = [
        (number, nodes)
        for number, network in enumerate(between)
        for nodes in range(1, (max_nodes if network is not None else 1) + 1)
    ]
    which = np.array([number for number, _ in rows], dtype=np.intp)
    nodes = np.array([float(count) for _, count in rows])
    alone = np.flatnonzero(nodes == 1)
    return Grid(
        instances=tuple(instances),
        gpus=gpus,
        kinds=kinds,
        instance=which,
        kind=np.array([position[gpus[number].key] for number in which], dtype=np.intp),
        nodes=nodes,
        gpus_per_node=np.array([float(instances[number].gpus) for number in which]),
        one_node=alone[which],
        links=Links.of(
            [inside[number] for number, _ in rows],
            [between[number] if count > 1 else None for number, count in rows],
            FITTED,
        ),
    )


def iterations(
    ways: Grid, known: ModelFacts, batch: int, dtype: str, compute_factor: Array | None = None
) -> Iterations:
    """Predict all rows at once; the factor, one a kind of GPU, says what profiles told of it."""
    device = compute.devices(ways.kinds, [dtype] * len(ways.kinds), FITTED)
    batches = np.full(len(ways.kinds), float(batch))
    layers = compute.layer_seconds(known, batches, device, FITTED)
    if compute_factor is not None:
        layers = layers.scaled(compute_factor)
    of_rows = compute.LayerSeconds(
        layers.forward[ways.kind], layers.backward[ways.kind], layers.optimizer[ways.kind]
    )
    found = times.iteration_seconds(
        of_rows, communication.messages(known), ways.gpus_per_node, ways.nodes, ways.links, FITTED
    )
    return Iterations(found.alone, found.together[ways.one_node], found.together)


def _of_clouds(rows: Sequence[Instance], clouds: Sequence[str]) -> list[Instance]:
    known = sorted({one.cloud for one in rows})
    if unknown := sorted({cloud.lower() for cloud in clouds} - set(known)):
        raise UsageError(
            f"The catalog has no cloud {', '.join(unknown)}; there are {', '.join(known)}."
        )
    wanted = {cloud.lower() for cloud in clouds} or set(known)
    return [one for one in rows if one.cloud in wanted]


def _check_excluded(rows: Sequence[Instance], excluded: Sequence[str]) -> None:
    for pattern in excluded:
        if not any(_matches(one, pattern) for one in rows):
            raise UsageError(
                f"--exclude {pattern} names no machine in question. `stash catalog list` shows all."
            )


def _matches(one: Instance, pattern: str) -> bool:
    return fnmatchcase(one.name.lower(), pattern.strip().lower())


def _why_not(one: Instance, excluded: Sequence[str], *, retired: bool) -> str | None:
    gpu = one.accelerator
    if gpu is None or one.gpus < 1:
        return "a GPU that our table lacks"
    if gpu.memory_bytes_per_second is None:
        return "its GPU's memory bandwidth is not known"
    if any(_matches(one, pattern) for pattern in excluded):
        return "excluded"
    if one.status == "retired" and not retired:
        return "retired (--retired considers them)"
    return None


def _reasons(left_out: dict[str, list[str]]) -> str:
    told = [f"{len(names)} {reason}" for reason, names in left_out.items()]
    return f" ({'; '.join(told)})" if told else ""


def _inside(one: Instance, gpu: Gpu) -> communication.Link | None:
    topology = topologies.find(one.topology) if one.topology else None
    return communication.inside(topology, gpu, one.gpus)
