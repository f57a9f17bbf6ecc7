"""Steps without data on another GPU, at another batch, over another network.

What a profile measured is kept; the predictor only says by what factor compute changes, and how
much of the exchange that leaves exposed. Links are those that explain the measured exchange.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from stash.errors import UsageError
from stash.hardware import catalog, device_names, gpus
from stash.hardware.gpus import Gpu
from stash.predict import communication, compute, facts, times
from stash.predict.api import check_fits
from stash.predict.communication import HOP_SECONDS, Links
from stash.predict.constants import FITTED
from stash.predict.facts import ModelFacts
from stash.results.profile import Profile

#: Steps by what their exchange comes on top of, the nearest first; none: there is no exchange.
WITHOUT_EXCHANGE = {
    "solo": (),
    "unsynced": (),
    "spread": (),
    "node": ("unsynced", "solo"),
    "cluster": ("spread", "unsynced", "solo"),
    "scaleout": ("unsynced", "solo"),
}
SLOWEST_LINK, FASTEST_LINK = 1e4, 1e14  # bytes per second
NETWORK = "tcp"
#: Less than that is not worth another machine.
FASTER = 1.25


@dataclass(frozen=True)
class Replay:
    """Seconds per iteration by step, and what had to be assumed for it."""

    seconds: dict[str, float]
    assumptions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Target:
    """What the steps are wanted for; none leaves a thing as it is."""

    gpu: str | None = None
    batch: int | None = None
    network_bytes_per_second: float | None = None


def replay_of(profile: Profile, target: Target) -> Replay:
    """Predict every step without data."""
    if target.network_bytes_per_second is not None and profile.machine.nodes == 1:
        raise UsageError(
            f"Profile {profile.id} is of one node, where no gradient crosses a network. "
            "--network needs a profile of several nodes."
        )
    present = {name: one for name, one in profile.steps.items() if name in WITHOUT_EXCHANGE}
    seconds = {name: one.seconds_per_iteration.estimate for name, one in present.items()}
    known, gpu = _model(profile), _gpu(profile)
    factor, assumptions = _compute_factor(profile, target, known, gpu)
    if factor == 1.0 and target.network_bytes_per_second is None:
        return Replay(seconds, ())
    found = {}
    for step, before in seconds.items():
        base = next((seconds[one] for one in _bases(profile, step) if one in seconds), before)
        exchange = _Exchange(profile, step, known, gpu, compute_before=base)
        after, words = exchange.exposed(before - base, base * factor, target)
        found[step] = base * factor + after
        assumptions += words
    return Replay(found, tuple(dict.fromkeys(assumptions)))


def faster_gpus(profile: Profile) -> tuple[str, ...]:
    """GPUs for rent that compute a profile's model faster, from the slowest of them on.

    Each by a quarter or more than the one before it; none where --gpu is not possible.
    """
    known, gpu = _model(profile), _gpu(profile)
    if known is None or gpu is None:
        return ()
    batch, dtype = profile.workload.batch_per_worker, profile.workload.dtype
    rented = [one.accelerator for one in catalog.instances() if one.status == "available"]
    seconds = {
        one.key: _whole(known, one, batch, dtype)
        for one in {gpu.key: gpu for gpu in rented if gpu is not None}.values()
        if one.memory_bytes_per_second is not None
    }
    found, slowest = [], _whole(known, gpu, batch, dtype)
    for key in sorted(seconds, key=lambda key: (-seconds[key], key)):
        if slowest >= FASTER * seconds[key]:
            found.append(key)
            slowest = seconds[key]
    return tuple(found)


def _bases(profile: Profile, step: str) -> tuple[str, ...]:
    """What the exchange of a step comes on top of; one worker of a node is alone in step node."""
    alone = ("node",) if profile.machine.workers_per_node == 1 and step == "scaleout" else ()
    return (*WITHOUT_EXCHANGE[step], *alone)


def _compute_factor(
    profile: Profile, target: Target, known: ModelFacts | None, gpu: Gpu | None
) -> tuple[float, tuple[str, ...]]:
    """Compute of one worker after over before."""
    batch, dtype = profile.workload.batch_per_worker, profile.workload.dtype
    asked = batch if target.batch is None else target.batch
    wanted = gpu if target.gpu is None else gpus.find(target.gpu)
    if target.gpu is not None and (known is None or gpu is None):
        what = "its layers are not known" if gpu else "its devices are no GPU of our table"
        raise UsageError(
            f"Profile {profile.id} cannot be carried over to {target.gpu}: {what}. "
            "--gpu takes a profile of a model of the zoo, on a GPU or an emulated one."
        )
    if known is not None and wanted is not None:
        if target.gpu is not None or target.batch is not None:
            check_fits(known, asked, dtype, wanted)
        assert gpu is not None
        return _whole(known, wanted, asked, dtype) / _whole(known, gpu, batch, dtype), ()
    if asked == batch:
        return 1.0, ()
    return asked / batch, ("The time of a sample is taken to stay the same at another batch.",)


def _whole(known: ModelFacts, gpu: Gpu, batch: int, dtype: str) -> float:
    return float(_layers(known, gpu, batch, dtype).whole[0])


def _layers(known: ModelFacts, gpu: Gpu, batch: int, dtype: str) -> compute.LayerSeconds:
    device = compute.devices([gpu], [dtype], FITTED)
    return compute.layer_seconds(known, np.array([float(batch)]), device, FITTED)


def _model(profile: Profile) -> ModelFacts | None:
    """Layers of a model of the zoo; a document's name is never taken for a file to run."""
    name = profile.workload.name
    if ":" in name:
        return None
    try:
        found = facts.find(name)
    except UsageError:
        return None
    return found if found.parameters == profile.workload.parameters else None


def _gpu(profile: Profile) -> Gpu | None:
    machine = profile.machine
    if machine.device.startswith("emulated"):
        name = device_names.parse(machine.device).gpu
        return None if name is None else gpus.find(name)
    return gpus.recognise(machine.devices[0]) if machine.devices else None


class _Exchange:
    """What exchanging gradients adds to one step, by the predictor's overlap of messages."""

    def __init__(
        self,
        profile: Profile,
        step: str,
        known: ModelFacts | None,
        gpu: Gpu | None,
        *,
        compute_before: float,
    ) -> None:
        machine = profile.machine
        self._step = step
        self._nodes = machine.nodes if step in ("cluster", "scaleout") else 1
        workers = machine.workers if step == "scaleout" else machine.workers_per_node
        self._per_node = max(1, workers // self._nodes)
        self._known = known
        self._before = compute_before
        self._batch = profile.workload.batch_per_worker
        self._dtype = profile.workload.dtype
        self._gpu = gpu
        emulated = machine.device.startswith("emulated")
        self._byte_scale = device_names.parse(machine.device).byte_scale if emulated else 1.0
        # An emulated device computes by a clock, which no exchange slows down.
        self._constants = replace(FITTED, contention=0.0) if emulated else FITTED

    def exposed(
        self, before: float, compute_after: float, target: Target
    ) -> tuple[float, tuple[str, ...]]:
        """What it adds afterwards, given what it added before."""
        network = target.network_bytes_per_second if self._nodes > 1 else None
        if before <= 0 and network is None:
            return before, ()  # noise around nothing is carried over, with its sign
        if self._known is None or self._gpu is None:
            return before, ("What exchange exposes is taken to stay the same: layers are unknown.",)
        rate = self._explaining_rate(before)
        if network is not None:
            rate = network * FITTED.bandwidth_efficiency[NETWORK]
        return self._added(compute_after, rate), ()

    def _explaining_rate(self, exposed: float) -> float:
        """The bandwidth with which the model gives the exchange that was measured."""

        def off(log_rate: float) -> float:
            return self._added(self._before, float(np.exp(log_rate))) - exposed

        low, high = float(np.log(SLOWEST_LINK)), float(np.log(FASTEST_LINK))
        if off(high) >= 0:
            return FASTEST_LINK
        return SLOWEST_LINK if off(low) <= 0 else float(np.exp(brentq(off, low, high)))

    def _added(self, compute_seconds: float, rate: float) -> float:
        assert self._known is not None and self._gpu is not None
        layers = _layers(self._known, self._gpu, self._batch, self._dtype)
        layers = layers.scaled(np.array([compute_seconds]) / layers.whole)
        sent = communication.messages(self._known)
        sizes = np.array([4.0 * message.elements * self._byte_scale for message in sent])
        one = np.array([1.0])
        hop = one * HOP_SECONDS[NETWORK]
        links = Links(one * rate, hop, one * 0.0, one * rate, hop)
        added = times.exposed_seconds(
            times.ready_seconds(layers, sent),
            sizes,
            layers.backward.sum(1),
            one * self._per_node,
            one * self._nodes,
            links,
            self._constants,
        )
        return float(added[0])
