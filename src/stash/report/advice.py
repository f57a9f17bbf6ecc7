"""What to do about the stalls that are really there: only significant ones, largest first."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stash.advise.cores import training_cores
from stash.report.figures import derived, figure, size_in_bytes, time_unit, written
from stash.report.words import undivided_stalls
from stash.results.document import Interval
from stash.results.profile import Profile, Provenance, StallResult

#: Whatever takes less of the time than this is not worth anybody's afternoon.
WORTH_SHARE = 0.01
#: Memory that a page cache can really use; the rest belongs to the programs.
CACHEABLE_FRACTION = 0.8


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One thing to do, and at most how much of the time it would give back."""

    stall: str | None  # none where there is nothing worth fixing
    sentence: str
    gain_share: float  # of an iteration; of the first epoch's where `only_first_epoch`
    only_first_epoch: bool = False

    @property
    def gain(self) -> str:
        """The most that it would give back, in words."""
        of = "the first epoch" if self.only_first_epoch else "the time"
        return f"up to {100 * self.gain_share:.0f} % of {of}"


def advise(profile: Profile) -> list[Advice]:
    """What follows from the significant stalls of a profile, the most useful first."""
    if profile.provenance is Provenance.PREDICTED:
        return []  # nothing runs there yet that could be changed
    found = [_advice(profile, name, stall) for name, stall in undivided_stalls(profile)]
    useful = [one for one in found if one is not None and one.gain_share >= WORTH_SHARE]
    if not useful:
        return [Advice(stall=None, sentence=_nothing(profile), gain_share=0.0)]
    return sorted(useful, key=lambda one: (one.only_first_epoch, -one.gain_share))


def _advice(profile: Profile, name: str, stall: StallResult) -> Advice | None:
    if not stall.significant or stall.seconds_per_iteration.estimate <= 0:
        return None
    if name == "prep":
        return _prep(profile, stall)
    if name == "fetch":
        return _fetch(profile, stall)
    if name in SENTENCES and stall.share is not None:
        return Advice(stall=name, sentence=SENTENCES[name], gain_share=stall.share.estimate)
    return None


SENTENCES = {
    "communication": (
        "Exchange less: a larger batch per worker, bf16 gradients (DDP's bf16_compress_hook), "
        "gradient_as_bucket_view=True; or rent a better interconnect."
    ),
    "contention": (
        "Workers slow each other down by sharing the machine: pin each to cores of its own, use "
        "fewer per host, or a machine with more memory bandwidth."
    ),
    "scale-out": (
        "Nodes wait for each other's gradients: exchange less (a larger batch per worker, "
        "accumulated gradients, DDP's bf16_compress_hook), rent a faster network between them, or "
        "fewer and larger machines."
    ),
    "interconnect": (
        "Measure step unsynced as well: it tells whether sharing the machine (pin workers, fewer "
        "per host) or exchanging gradients (larger batch, compression, better links) is to blame."
    ),
}


def _prep(profile: Profile, stall: StallResult) -> Advice | None:
    if stall.share is None:
        return None
    share = stall.share.estimate
    copy = profile.stalls.get("copy")
    copy_share = copy.share.estimate if copy and copy.significant and copy.share else 0.0
    if copy_share > share / 2:
        return Advice(stall="prep", sentence=COPY_SENTENCE, gain_share=share)
    plan = _loader_plan(profile)
    if plan is None:
        return Advice(stall="prep", sentence=PREP_SENTENCE, gain_share=share)
    return plan.advice(share)


COPY_SENTENCE = (
    "Most of the wait for data is copying it to the device: use pin_memory=True with "
    "non_blocking=True copies, or send smaller types and convert on the device."
)
PREP_SENTENCE = (
    "Add loader workers while cores last, or do less preprocessing per sample (decode ahead of "
    "training, smaller files, work on the device)."
)


@dataclass(frozen=True, kw_only=True)
class _LoaderPlan:
    """How many loader workers would hide preprocessing, and how many this machine can feed."""

    workers: int
    loader_workers: int
    needed: int
    affordable: int
    cores: int
    devices_rate: Interval
    rate_per_loader_worker: float
    cores_busy: int

    def advice(self, share: float) -> Advice:
        if self.needed <= self.loader_workers:
            sentence = (
                f"Loader workers ({self.loader_workers} per worker) are enough by their own rate, "
                "so more will not help: they compete with training for cores, or batches come in "
                "bursts. Try a larger prefetch_factor, pin_memory=True, fewer threads per worker."
            )
            return Advice(stall="prep", sentence=sentence, gain_share=share)
        if self.needed <= self.affordable:
            sentence = (
                f"Use {self.needed} loader workers per worker instead of {self.loader_workers}: "
                f"one prepares {figure(derived(self.rate_per_loader_worker)).estimate} samples/s, "
                f"the devices take {figure(self.devices_rate).estimate}."
            )
            return Advice(stall="prep", sentence=sentence, gain_share=share)
        return Advice(stall="prep", sentence=self._beyond_cores(), gain_share=self._partial(share))

    def _beyond_cores(self) -> str:
        start = (
            f"Hiding preprocessing takes {self.needed} loader workers per worker, with training "
            f"{self.cores_needed} cores in all; this machine has {self.cores}. "
        )
        if self.affordable > self.loader_workers:
            start += f"Use {self.affordable} per worker, and "
        else:
            start += "More loader workers will not help here: "
        return start + "decode ahead of training, move work to the device, or rent more cores."

    @property
    def cores_needed(self) -> int:
        """Cores for training and for loaders that keep up with it."""
        return self.workers * self.needed + self.cores_busy

    def _partial(self, share: float) -> float:
        """What the loader workers that the cores allow give back: a batch takes 1/n of the time."""
        if self.affordable <= self.loader_workers:
            return share
        hidden = self.workers * self.rate_per_loader_worker / self.devices_rate.estimate
        if self.loader_workers == 0:  # nothing overlaps now: computing goes on beside them, too
            return share * min(1.0, 1 + hidden - 1 / self.affordable)
        now = 1 / self.loader_workers
        return share * (now - 1 / self.affordable) / (now - hidden)


def _loader_plan(profile: Profile) -> _LoaderPlan | None:
    machine, rates = profile.machine, profile.rates
    if rates.devices is None or rates.preprocessing is None:
        return None
    workers = machine.workers_per_node
    # Without loader workers each worker prepares its own batches, one at a time.
    loaders = max(1, profile.workload.loader_workers)
    per_loader = rates.preprocessing.estimate / (workers * loaders)
    if per_loader <= 0 or rates.devices.estimate <= 0:
        return None
    busy = training_cores(machine)
    return _LoaderPlan(
        workers=workers,
        loader_workers=profile.workload.loader_workers,
        needed=math.ceil(rates.devices.estimate / per_loader / workers),
        affordable=max(0, machine.cores - busy) // workers,
        cores=machine.cores,
        devices_rate=rates.devices,
        rate_per_loader_worker=per_loader,
        cores_busy=busy,
    )


def _fetch(profile: Profile, stall: StallResult) -> Advice | None:
    if stall.share_of_first_epoch is None:
        return None
    data_bytes = profile.workload.data_bytes
    # On several nodes, too: samples are dealt anew in every epoch, so each node reads them all.
    fits = data_bytes is not None and data_bytes <= _cacheable_bytes(profile)
    return Advice(
        stall="fetch",
        sentence=f"{_storage_need(profile)} {_cache_sentence(profile, fits=fits)}".strip(),
        gain_share=stall.share_of_first_epoch.estimate,
        only_first_epoch=fits,
    )


def _storage_need(profile: Profile) -> str:
    rates = profile.rates
    others = [rate for rate in (rates.devices, rates.preprocessing) if rate is not None]
    if rates.storage is None or not others:
        return "Use faster storage (local SSD) or fewer, larger files."
    needed = min(others, key=lambda rate: rate.estimate)
    has, needs = figure(rates.storage).estimate, figure(needed).estimate
    if rates.storage.estimate >= needed.estimate:
        return (
            f"Storage alone sustains {has} samples/s, more than the {needs} that are "
            "needed, so it is latency that shows: more loader workers or a larger prefetch_factor "
            "would hide it."
        )
    return (
        f"Storage sustains {has} samples/s{_per_second(profile, rates.storage.estimate)}, "
        f"{needs}{_per_second(profile, needed.estimate)} are needed: use faster storage."
    )


def _per_second(profile: Profile, samples_per_second: float) -> str:
    data_bytes, samples = profile.workload.data_bytes, profile.workload.samples
    if not data_bytes or not samples:
        return ""
    return f" ({size_in_bytes(samples_per_second * data_bytes / samples)}/s)"


def _cacheable_bytes(profile: Profile) -> float:
    return CACHEABLE_FRACTION * profile.machine.memory_bytes


def _cache_sentence(profile: Profile, *, fits: bool) -> str:
    data_bytes = profile.workload.data_bytes
    if data_bytes is None:
        return ""
    size, memory = size_in_bytes(data_bytes), size_in_bytes(_cacheable_bytes(profile))
    if fits:
        return (
            f"The data ({size}) fits in memory ({memory} of it hold files), so only the first "
            "epoch pays; read it once before training (for example `cat` all files) to pay earlier."
        )
    return (
        f"The data ({size}) does not fit in memory ({memory} of it hold files), so every epoch "
        "pays some of it."
    )


def _nothing(profile: Profile) -> str:
    stalls = [stall for _, stall in undivided_stalls(profile)]
    if not stalls:
        return "No stall was measured, so there is nothing to advise."
    known = [s.detectable_seconds_per_iteration for s in stalls]
    smallest = [value for value in known if value is not None]
    if len(smallest) < len(known):
        return "Too few rounds to tell: measure longer before changing anything."
    unit, factor = time_unit(max(smallest))
    worst = written(derived(max(smallest)), unit, factor)
    return (
        "Nothing worth fixing: no stall is both significant and "
        f"{WORTH_SHARE:.0%} of the time or more. Stalls above {worst} would probably have been "
        "found."
    )
