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
from stash.predict.uncertainty import INTERVAL_PERCENT, band
from stash.results.document import Interval
from stash.results.profile import (
    SCHEMA,
    EpochResult,
    Epochs,
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
    seconds: float


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
    same_gpu: bool,
    samples: int | None,
    feed: pipeline.Feed | None,
    largest_batch: int,
) -> Profile:
    """The document of one prediction."""
    setting = "calibrated" if same_gpu else "blind"
    seconds = _step_seconds(predicted, machine, batch, feed)
    relative = {
        name: _relative(name, value, predicted, "calibrated") for name, value in seconds.items()
    }
    price = machine.instance.price_usd_per_hour
    hourly = None if price is None else price * machine.nodes
    whole = fullest_step(set(seconds))
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
                seconds_per_iteration=_relative(name, value, predicted, setting, in_seconds=True),
                rounds=0,
                blocks=(),
            )
            for name, value in seconds.items()
        },
        stalls={
            stall.name: _stall(stall, seconds, relative, predicted.solo, whole, hourly)
            for stall in stalls_of(set(seconds))
        },
        waiting=Waiting(later=_waiting(relative, whole), first=_waiting(relative, "cold")),
        epoch=_epochs(predicted, seconds, setting, samples, batch, machine, hourly),
        rates=_rates(predicted, feed, batch, machine),
        telemetry={},
        checks=(*checks(machine, setting), *_cache_check(predicted, machine, batch, feed)),
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
                    seconds_per_iteration=one.seconds,
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
        samples = batch * machine.instance.gpus
        for step, rate in (("warm", feed.later_high), ("cold", feed.cold)):
            seconds[step] = pipeline.iteration_seconds(predicted.node, samples / rate)
    return seconds


def _cache_check(
    predicted: Predicted, machine: Machine, batch: int, feed: pipeline.Feed | None
) -> tuple[Check, ...]:
    """Bounds of a later epoch where the data do not fit into memory."""
    if feed is None or feed.later_low == feed.later_high:
        return ()
    samples = batch * machine.instance.gpus
    best, worst = (
        1e3 * pipeline.iteration_seconds(predicted.node, samples / rate)
        for rate in (feed.later_high, feed.later_low)
    )
    message = (
        f"The data do not fit into memory: an iteration of a later epoch takes {best:.3g} ms with "
        f"a cache that keeps what it has (as given here), {worst:.3g} ms with one that evicts what "
        "is needed next. The page cache lies between."
    )
    return (Check(name="page cache", status="warn", message=message),)


def _relative(
    step: str, seconds: float, predicted: Predicted, setting: str, *, in_seconds: bool = False
) -> Interval:
    """A step over `solo`, or in seconds, between the bounds that validation gives.

    Steps with data have no bounds: nobody has measured how far their model is off.
    """
    unit = 1.0 if in_seconds else 1 / predicted.solo
    kind = predicted.kind(step)
    if kind is None or (setting, kind) == ("calibrated", "solo"):
        exact = kind == "solo" and not in_seconds
        bound = seconds * unit if exact else None
        return Interval(estimate=seconds * unit, low=bound, high=bound)
    bounds = band(setting, kind, 1 - predicted.solo / seconds)
    return Interval(
        estimate=seconds * unit, low=seconds * unit * bounds.low, high=seconds * unit * bounds.high
    )


def _stall(
    stall: Stall,
    seconds: dict[str, float],
    relative: dict[str, Interval],
    solo: float,
    whole: str,
    hourly_usd: float | None,
) -> StallResult:
    value = sum(sign * seconds[step] for sign, step in stall.terms)
    # The base of a stall is taken as predicted: bounds are those of what is compared with it.
    changing = relative[stall.terms[0][1]]
    base = sum(-sign * relative[step].estimate for sign, step in stall.terms[1:])
    low = None if changing.low is None else (changing.low - base) * solo
    high = None if changing.high is None else (changing.high - base) * solo

    def over(part: float) -> Interval:
        return Interval(
            estimate=value / part,
            low=None if low is None else low / (part + low - value),
            high=None if high is None else high / (part + high - value),
        )

    share = over(seconds[whole]) if stall.is_in_epochs and stall.name != "fetch" else None
    first = over(seconds["cold"]) if "cold" in seconds and stall.is_in_epochs else None
    percent_base = seconds[stall.percent_of] / 100
    priced = first if stall.name == "fetch" else share
    return StallResult(
        seconds_per_iteration=Interval(estimate=value, low=low, high=high),
        mean_seconds_per_iteration=value,
        percent=Interval(
            estimate=value / percent_base,
            low=None if low is None else low / percent_base,
            high=None if high is None else high / percent_base,
        ),
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
    predicted: Predicted,
    seconds: dict[str, float],
    setting: str,
    samples: int | None,
    batch: int,
    machine: Machine,
    hourly_usd: float | None,
) -> Epochs:
    if not samples:
        return Epochs(first=None, later=None)
    workers = machine.nodes * machine.instance.gpus
    iterations = math.ceil(math.ceil(samples / workers) / batch)

    def epoch(step: str) -> EpochResult:
        each = _relative(step, seconds[step], predicted, setting, in_seconds=True)
        whole = _scaled(each, iterations)
        return EpochResult(
            iterations=iterations,
            seconds=whole,
            device_hours=_scaled(whole, workers / SECONDS_PER_HOUR),
            usd=None if hourly_usd is None else _scaled(whole, hourly_usd / SECONDS_PER_HOUR),
        )

    return Epochs(
        first=epoch("cold") if "cold" in seconds else None,
        later=epoch(fullest_step(set(seconds))),
    )


def _rates(predicted: Predicted, feed: pipeline.Feed | None, batch: int, machine: Machine) -> Rates:
    def exact(value: float | None) -> Interval | None:
        return None if value is None else Interval(estimate=value, low=None, high=None)

    return Rates(
        devices=exact(batch * machine.instance.gpus / predicted.node),
        preprocessing=exact(None if feed is None else feed.prepared),
        storage=exact(None if feed is None else feed.read),
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


def _scaled(value: Interval, factor: float) -> Interval:
    return Interval(
        estimate=value.estimate * factor,
        low=None if value.low is None else value.low * factor,
        high=None if value.high is None else value.high * factor,
    )
