"""A prediction as a profile document, so that every report and every comparison can read it."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from datetime import datetime, timezone

from stash.predict import memory, pipeline
from stash.predict.communication import Link
from stash.predict.facts import ModelFacts
from stash.predict.machines import Machine, checks, link_words, machine_facts, workload_facts
from stash.predict.uncertainty import INTERVAL_PERCENT, OVER_SOLO, Band, band, stall_bounds
from stash.results.document import Interval
from stash.results.profile import (
    SCHEMA,
    EpochResult,
    Epochs,
    Iterations,
    Prediction,
    Profile,
    Provenance,
    Rates,
    Run,
    SliceResult,
    StallResult,
    StepResult,
    Waiting,
)
from stash.results.recording import Check
from stash.results.steps import Stall, fullest_step, stalls_of

SECONDS_PER_HOUR = 3600.0
STEP_KINDS = {"solo": "solo", "node": "node", "cluster": "nodes", "scaleout": "nodes"}


@dataclass(frozen=True)
class Slice:
    """One way in which a part of a machine may be linked."""

    chance: float
    inside: Link
    node: float  # seconds per iteration of one node
    together: float  # of all nodes


@dataclass(frozen=True)
class Predicted:
    """Seconds per iteration by step."""

    gpus_per_node: int
    solo: float
    node: float
    cluster: float | None
    scaleout: float | None
    messages: int
    slices: tuple[Slice, ...] = ()

    def kind(self, step: str) -> str | None:
        """Which bounds are a step's: a node of one GPU is that GPU alone."""
        return STEP_KINDS.get("solo" if step == "node" and self.gpus_per_node == 1 else step)


def as_profile(
    predicted: Predicted,
    *,
    facts: ModelFacts,
    batch: int,
    dtype: str,
    machine: Machine,
    calibrated_on: str,
    differs: tuple[str, ...] | None,
    samples: int | None,
    feed: pipeline.Feed | None,
    largest_batch: int,
) -> Profile:
    """The document of one prediction."""
    setting = "calibrated" if differs == () else "blind"
    seconds = _step_seconds(predicted, machine, batch, feed)
    in_seconds = {
        name: _seconds(name, value, predicted, setting) for name, value in seconds.items()
    }
    relative = {
        name: _over_solo(name, value, predicted, setting) for name, value in seconds.items()
    }
    price = machine.instance.price_usd_per_hour
    hourly = None if price is None else price * machine.nodes
    whole = fullest_step(set(seconds))
    alone = _seconds("solo", predicted.solo, predicted, setting)
    partly_cached = _partly_cached(predicted, batch, feed)
    return Profile(
        schema=SCHEMA,
        id=secrets.token_hex(4),
        created=datetime.now(timezone.utc),
        provenance=Provenance.PREDICTED,
        workload=workload_facts(facts, batch, dtype, samples, machine),
        machine=machine_facts(machine),
        run=_run(facts, batch, dtype, machine),
        calibration=None,
        steps={
            name: StepResult(
                seconds_per_iteration=each,
                rounds=0,
                blocks=(),
            )
            for name, each in in_seconds.items()
        },
        stalls={
            stall.name: _stall(stall, relative, alone, whole, hourly)
            for stall in stalls_of(set(seconds))
        },
        waiting=Waiting(later=_waiting(relative, whole), first=_waiting(relative, "cold")),
        epoch=_epochs(
            in_seconds.get("cold"),
            partly_cached or in_seconds[whole],
            samples,
            batch,
            machine,
            hourly,
        ),
        rates=_rates(predicted, feed, batch, machine),
        telemetry={},
        checks=(*checks(machine, differs), *_data_checks(predicted, machine, batch, feed)),
        iteration=None if partly_cached is None else Iterations(later=partly_cached, first=None),
        prediction=Prediction(
            calibrated_on=calibrated_on,
            interval_percent=INTERVAL_PERCENT,
            messages=predicted.messages,
            inside=link_words(machine.inside),
            between=link_words(machine.between),
            slices=tuple(
                SliceResult(
                    chance=one.chance,
                    inside=link_words(one.inside),
                    seconds_per_iteration=one.together,
                    interconnect_percent=100 * (one.node / predicted.solo - 1),
                )
                for one in predicted.slices
            ),
            largest_batch=largest_batch,
        ),
    )


def _step_seconds(
    predicted: Predicted, machine: Machine, batch: int, feed: pipeline.Feed | None
) -> dict[str, float]:
    """Of a node of one GPU, solo and node are the same: node, where others are compared with it."""
    compared = machine.nodes > 1 or feed is not None
    seconds: dict[str, float] = {}
    if machine.instance.gpus > 1 or not compared:
        seconds["solo"] = predicted.solo
    if machine.instance.gpus > 1 or compared:
        seconds["node"] = predicted.node
    if predicted.cluster is not None:
        seconds["cluster"] = predicted.cluster
    if predicted.scaleout is not None:
        seconds["scaleout"] = predicted.scaleout
    if feed is not None and machine.nodes == 1:
        seconds["warm"] = _fed_seconds(predicted, batch, feed.warm)
        if feed.storage is not None:
            seconds["cold"] = _fed_seconds(predicted, batch, feed.storage.cold)
    return seconds


def _fed_seconds(predicted: Predicted, batch: int, samples_per_second: float) -> float:
    """Of one iteration of a node that is fed at this rate."""
    producing = batch * predicted.gpus_per_node / samples_per_second
    return pipeline.iteration_seconds(predicted.node, producing)


def _partly_cached(predicted: Predicted, batch: int, feed: pipeline.Feed | None) -> Interval | None:
    """An iteration of a later epoch where the data do not fit into memory.

    Step `warm` has all of them there, so that what storage costs is in none of its stalls.
    """
    if feed is None or feed.storage is None or not feed.overflows:
        return None
    seconds = _fed_seconds(predicted, batch, feed.storage.later_high)
    return Interval(estimate=seconds, low=None, high=None)


def _data_checks(
    predicted: Predicted, machine: Machine, batch: int, feed: pipeline.Feed | None
) -> tuple[Check, ...]:
    """What is not known of storage, or what it does to later epochs."""
    if feed is None:
        return ()
    if feed.storage is None:
        message = (
            f"The disk of {machine.instance.name} or the size of a sample is not known: fetch and "
            "the first epoch are not predicted, and later epochs are as if all data were in memory."
        )
        given = "Give --sample-bytes and --storage-mb-per-second, whichever is not known yet."
        return (Check(name="storage", status="warn", message=message, next=given),)
    if not feed.overflows:
        return ()
    best, worst = (
        1e3 * _fed_seconds(predicted, batch, rate)
        for rate in (feed.storage.later_high, feed.storage.later_low)
    )
    message = (
        f"The data do not fit into memory: an iteration of a later epoch takes {best:.3g} ms with "
        f"a cache that keeps what it has (as the later epoch is given here), {worst:.3g} ms with "
        "one that evicts what is needed next. The page cache lies between. Step warm and its "
        "stalls are of data that are all in memory."
    )
    return (Check(name="page cache", status="warn", message=message),)


def _seconds(step: str, seconds: float, predicted: Predicted, setting: str) -> Interval:
    """A step between the bounds that validation gives.

    Steps with data have none: nobody has measured how far their model is off.
    """
    kind = predicted.kind(step)
    if kind is None or (setting, kind) == ("calibrated", "solo"):
        return Interval(estimate=seconds, low=None, high=None)
    return _between(seconds, band(setting, kind))


def _over_solo(step: str, seconds: float, predicted: Predicted, setting: str) -> Interval:
    """A step over `solo`, as stalls are counted: an error that both have is no error of it."""
    kind, ratio = predicted.kind(step), seconds / predicted.solo
    if kind is None:
        return Interval(estimate=ratio, low=None, high=None)
    if kind == "solo":
        return Interval(estimate=ratio, low=ratio, high=ratio)
    return _between(ratio, band(OVER_SOLO[setting], kind))


def _between(estimate: float, bounds: Band) -> Interval:
    return Interval(estimate=estimate, low=estimate * bounds.low, high=estimate * bounds.high)


def _stall(
    stall: Stall,
    relative: dict[str, Interval],
    alone: Interval,
    whole: str,
    hourly_usd: float | None,
) -> StallResult:
    """All of it in units of `solo`; seconds are as uncertain as the stall and `solo` together."""
    changing = relative[stall.terms[0][1]]
    # The base of a stall is taken as predicted: bounds are those of what is compared with it.
    base = sum(-sign * relative[step].estimate for sign, step in stall.terms[1:])
    value = changing.estimate - base
    low = None if changing.low is None else changing.low - base
    high = None if changing.high is None else changing.high - base
    found = Interval(estimate=value, low=low, high=high)

    def over(step: str) -> Interval:
        part = relative[step].estimate
        return Interval(
            estimate=value / part,
            low=None if low is None else low / (part + low - value),
            high=None if high is None else high / (part + high - value),
        )

    share = over(whole) if stall.is_in_epochs and stall.name != "fetch" else None
    first = over("cold") if "cold" in relative and stall.is_in_epochs else None
    priced = first if stall.name == "fetch" else share
    seconds = _product(found, alone)
    return StallResult(
        seconds_per_iteration=seconds,
        mean_seconds_per_iteration=seconds.estimate,
        percent=_scaled(found, 100 / relative[stall.percent_of].estimate),
        percent_of=stall.percent_of,
        share=share,
        share_of_first_epoch=first,
        significant=bool(low is not None and high is not None and (low > 0 or high < 0)),
        intermittent=False,
        detectable_seconds_per_iteration=None,
        usd_per_hour_of_training=None
        if hourly_usd is None or priced is None
        else _scaled(priced, hourly_usd),
        part_of=stall.part_of,
    )


def _waiting(relative: dict[str, Interval], whole: str) -> Interval | None:
    if whole not in relative or whole == "solo":
        return None
    one = relative[whole]
    return Interval(
        estimate=1 - 1 / one.estimate,
        low=None if one.low is None else 1 - 1 / one.low,
        high=None if one.high is None else 1 - 1 / one.high,
    )


def _epochs(
    first: Interval | None,
    later: Interval,
    samples: int | None,
    batch: int,
    machine: Machine,
    hourly_usd: float | None,
) -> Epochs:
    if not samples:
        return Epochs(first=None, later=None)
    workers = machine.nodes * machine.instance.gpus
    iterations = math.ceil(math.ceil(samples / workers) / batch)

    def epoch(each: Interval) -> EpochResult:
        whole = _scaled(each, iterations)
        return EpochResult(
            iterations=iterations,
            seconds=whole,
            device_hours=_scaled(whole, workers / SECONDS_PER_HOUR),
            usd=None if hourly_usd is None else _scaled(whole, hourly_usd / SECONDS_PER_HOUR),
        )

    return Epochs(first=None if first is None else epoch(first), later=epoch(later))


def _rates(predicted: Predicted, feed: pipeline.Feed | None, batch: int, machine: Machine) -> Rates:
    def exact(value: float | None) -> Interval | None:
        return None if value is None else Interval(estimate=value, low=None, high=None)

    return Rates(
        devices=exact(batch * machine.instance.gpus / predicted.node),
        preprocessing=exact(None if feed is None else feed.prepared),
        storage=exact(None if feed is None or feed.storage is None else feed.storage.read),
    )


def _run(facts: ModelFacts, batch: int, dtype: str, machine: Machine) -> Run:
    peak = memory.peak_bytes(facts, batch, dtype)
    return Run(
        stopped_because="predicted",
        message="",
        rounds=0,
        launches=0,
        measuring_seconds=0.0,
        half_width_asked=0.0,
        half_width_reached=None,
        peak_device_memory_bytes=(peak,),
        peak_device_memory_percent=100 * peak / machine.gpu.memory_bytes,
    )


def _product(value: Interval, solo: Interval) -> Interval:
    """Two errors that have nothing to do with each other; what has no bounds is taken as exact."""
    if value.low is None or value.high is None or solo.low is None or solo.high is None:
        return _scaled(value, solo.estimate)
    bounds = Band(solo.low / solo.estimate, solo.high / solo.estimate)
    low, high = stall_bounds(value.estimate, value.low, value.high, bounds)
    return _scaled(Interval(estimate=value.estimate, low=low, high=high), solo.estimate)


def _scaled(value: Interval, factor: float) -> Interval:
    return Interval(
        estimate=value.estimate * factor,
        low=None if value.low is None else value.low * factor,
        high=None if value.high is None else value.high * factor,
    )
