"""A measured job under changes: every step that its profile has, predicted anew."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stash.advise.changes import Changes
from stash.advise.feeding import Feeding, feeding_of
from stash.advise.replay import Replay, Target, replay_of
from stash.errors import UsageError
from stash.predict.api import CACHE_FRACTION
from stash.predict.pipeline import Loaders, lru_hits
from stash.results.profile import Profile
from stash.results.steps import compute_step, whole_iteration

ALL_OF_A_NODE = ("unsynced", "node", "scaleout")


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """Seconds per iteration by step, and what they come from."""

    seconds: dict[str, float]
    nodes: int
    batch: int  # of one worker
    loaders: Loaders | None
    has_storage: bool
    cached_fraction: float | None  # of the data in later epochs; none: all that matters
    later: tuple[float, float] | None  # an iteration of a later epoch: cache that keeps, evicts
    assumptions: tuple[str, ...]

    def whole(self, epoch: str) -> float | None:
        """An iteration of a later epoch or of the first; none where data was not measured."""
        known = dict(self.seconds)
        if self.later is not None:
            known["warm"] = self.later[0]
        data = "cold" if epoch == "first" else "warm"
        terms = whole_iteration(set(known), data, nodes=self.nodes)
        return None if terms is None else sum(sign * known[step] for sign, step in terms)

    def waiting_per_sample(self, epoch: str) -> float | None:
        """What a worker waits for anything, by sample, so that batches can be compared."""
        whole, alone = self.whole(epoch), compute_step(set(self.seconds))
        if whole is None or alone is None:
            return None
        return (whole - self.seconds[alone]) / self.batch


@dataclass(frozen=True)
class Job:
    """A profile with its input pipeline, where that was measured."""

    profile: Profile
    feeding: Feeding | None

    @classmethod
    def of(cls, profile: Profile) -> Job:
        known = profile.rates.preprocessing is not None and "node" in profile.steps
        return cls(profile, feeding_of(profile) if known else None)

    def predict(self, changes: Changes) -> Predicted:
        """Steps without data by the devices, then those with data by the input pipeline."""
        profile = self.profile
        replay = replay_of(
            profile,
            Target(
                gpu=changes.gpu,
                batch=changes.batch_size,
                network_bytes_per_second=changes.network_bytes_per_second,
            ),
        )
        batch = changes.batch_size or profile.workload.batch_per_worker
        if self.feeding is None:
            return self._without_data(changes, replay, batch)
        return _fed(profile, self.feeding, changes, replay, batch)

    def _without_data(self, changes: Changes, replay: Replay, batch: int) -> Predicted:
        if changes.of_data:
            feeding_of(self.profile)  # says what is missing
        return Predicted(
            seconds=replay.seconds,
            nodes=self.profile.machine.nodes,
            batch=batch,
            loaders=None,
            has_storage=False,
            cached_fraction=None,
            later=None,
            assumptions=replay.assumptions,
        )


def _fed(
    profile: Profile, feeding: Feeding, changes: Changes, replay: Replay, batch: int
) -> Predicted:
    loaders = _changed(profile, feeding, changes, replay, batch)
    seconds = dict(replay.seconds)
    if changes.cores is not None:  # a CPU trains on those cores, too
        seconds = _short_of_cores(seconds, loaders)
    node = seconds["node"]
    has_storage = feeding.knows_storage or changes.storage_bytes_per_second is not None
    if "warm" in profile.steps:
        seconds["warm"] = loaders.iteration_seconds(node, 1.0)
    if has_storage and "cold" in profile.steps:
        seconds["cold"] = loaders.iteration_seconds(node, 0.0)
    cached = _cached_fraction(profile, feeding, changes, has_storage=has_storage)
    later = None
    if cached is not None:
        keeps, evicts = cached, lru_hits(cached)
        later = loaders.iteration_seconds(node, keeps), loaders.iteration_seconds(node, evicts)
    return Predicted(
        seconds=seconds,
        nodes=profile.machine.nodes,
        batch=batch,
        loaders=loaders,
        has_storage=has_storage,
        cached_fraction=cached,
        later=later,
        assumptions=replay.assumptions,
    )


def _short_of_cores(seconds: dict[str, float], loaders: Loaders) -> dict[str, float]:
    """What missing cores add to a node, they add to every step in which all its workers run."""
    missing = max(0.0, loaders.training_core_seconds / loaders.cores - seconds["node"])
    return {
        step: value + missing if step in ALL_OF_A_NODE else value for step, value in seconds.items()
    }


def _changed(
    profile: Profile, feeding: Feeding, changes: Changes, replay: Replay, batch: int
) -> Loaders:
    """The fitted loaders with what is different about them."""
    loaders = feeding.loaders
    read = loaders.read_seconds
    if changes.storage_bytes_per_second is not None:
        if feeding.bytes_per_sample is None:
            raise UsageError(
                f"Profile {profile.id} does not tell how large its samples are, so a rate in bytes "
                "says nothing. Measure it with --data and --steps node,warm,cold."
            )
        read = feeding.bytes_per_sample / changes.storage_bytes_per_second
    # On a CPU the work of training grows with the batch; on an accelerator its host's hardly does.
    work = replay.seconds["node"] / feeding.node_seconds if profile.machine.device == "cpu" else 1.0
    given = changes.num_workers
    return replace(
        loaders,
        loader_workers=loaders.loader_workers if given is None else given,
        batch=batch,
        read_seconds=read,
        cores=loaders.cores if changes.cores is None else float(changes.cores),
        training_core_seconds=loaders.training_core_seconds * work,
    )


def _cached_fraction(
    profile: Profile, feeding: Feeding, changes: Changes, *, has_storage: bool
) -> float | None:
    """Of the data in later epochs; none where all of it stays in memory, as step warm has it."""
    cache = changes.cache_bytes
    if cache is not None and (feeding.data_bytes is None or not has_storage):
        raise UsageError(
            f"Profile {profile.id} does not tell how large its data is and how fast its storage, "
            "so a cache says nothing. Measure it with --data and --steps node,warm,cold."
        )
    if feeding.data_bytes is None or not has_storage:
        return None
    if cache is None:
        cache = profile.machine.memory_bytes * CACHE_FRACTION
        if cache >= feeding.data_bytes:
            return None
    return min(1.0, cache / feeding.data_bytes)
