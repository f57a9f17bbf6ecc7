"""From a recording to the profile document: every derived number of a profile is made here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from stash.errors import StashError
from stash.results import statistics, student
from stash.results.document import Interval
from stash.results.estimates import Times
from stash.results.profile import (
    SCHEMA,
    EpochResult,
    Epochs,
    Iterations,
    Profile,
    Provenance,
    Rates,
    RoundBlock,
    Run,
    StallResult,
    StepResult,
    Telemetry,
    Waiting,
)
from stash.results.recording import AnyEvent, Block, Check, End, Facts, Rate, Round
from stash.results.statistics import Estimate
from stash.results.steps import STEPS, Stall, Terms, compute_step, stalls_of, whole_iteration
from stash.results.validity import checks_of

SECONDS_PER_HOUR = 3600.0


@dataclass
class Recording:
    """All events of a run, sorted by kind, from one launch or several."""

    facts: list[Facts] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)

    def add(self, events: Iterable[AnyEvent]) -> None:
        """Take in more events."""
        for event in events:
            if isinstance(event, Facts):
                self.facts.append(event)
            elif isinstance(event, Round):
                self.rounds.append(event)
            elif isinstance(event, End):
                self.ends.append(event)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended, as the process that launched it saw it."""

    id: str
    created: datetime
    half_width_asked: float
    failure: str | None = None
    interrupted: bool = False
    checks: tuple[Check, ...] = ()


def assemble(recording: Recording, outcome: Outcome) -> Profile:
    """Build the profile of a run from whatever complete rounds there are."""
    if not recording.facts or not recording.rounds:
        raise StashError("No round was completed, so there is nothing to report.")
    facts, rounds = recording.facts[0], recording.rounds
    times = Times.of(rounds)
    whole = _Whole.of(times, facts.machine.nodes)
    price = facts.machine.price_usd_per_hour
    hourly_usd = None if price is None else price * facts.machine.nodes
    return Profile(
        schema=SCHEMA,
        id=outcome.id,
        created=outcome.created,
        provenance=_provenance(facts),
        workload=facts.workload,
        machine=facts.machine,
        run=_run(recording, times, outcome),
        calibration=facts.calibration,
        steps=_steps(times, rounds),
        stalls={s.name: _stall(s, times, whole, hourly_usd) for s in stalls_of(times.steps)},
        waiting=_waiting(times, whole),
        iteration=_iteration(times, whole),
        epoch=_epochs(recording, times, whole, hourly_usd),
        rates=_rates(recording.facts, times),
        telemetry=_telemetry(rounds, facts.machine.cores),
        checks=_checks(recording, outcome),
    )


@dataclass(frozen=True)
class _Whole:
    """What stands for a whole iteration of later epochs and of the first, where it is known."""

    later: Terms | None
    first: Terms | None

    @classmethod
    def of(cls, times: Times, nodes: int) -> _Whole:
        return cls(
            later=whole_iteration(times.steps, nodes=nodes),
            first=whole_iteration(times.steps, "cold", nodes=nodes),
        )


def _provenance(facts: Facts) -> Provenance:
    emulated = facts.machine.device.startswith("emulated")
    return Provenance.EMULATED if emulated else Provenance.MEASURED


def _run(recording: Recording, times: Times, outcome: Outcome) -> Run:
    end = recording.ends[-1] if recording.ends else None
    if outcome.failure is not None:
        because, message = "failed", outcome.failure
    elif outcome.interrupted or end is None:
        because, message = "interrupted", "Interrupted; the complete rounds are kept."
    else:
        because, message = end.reason, ""
    peaks = end.peak_device_memory_bytes if end else ()
    known = [peak for peak in peaks if peak is not None]
    total = recording.facts[0].machine.device_memory_bytes
    launches = {one.launch for one in recording.rounds}
    return Run.model_validate(
        {
            "stopped_because": because,
            "message": message[:4000],
            "rounds": len(recording.rounds),
            "launches": len(launches),
            "measuring_seconds": sum(
                max(one.at_seconds for one in recording.rounds if one.launch == launch)
                for launch in launches
            ),
            "half_width_asked": outcome.half_width_asked,
            "half_width_reached": times.widest_half_width(),
            "peak_device_memory_bytes": peaks,
            "peak_device_memory_percent": 100 * max(known) / total if known and total else None,
        }
    )


def _steps(times: Times, rounds: Sequence[Round]) -> dict[str, StepResult]:
    blocks: dict[str, list[RoundBlock]] = {}
    for one in rounds:
        for block in one.blocks:
            raw = RoundBlock.model_construct(
                **dict(block), launch=one.launch, round=one.number, at_seconds=one.at_seconds
            )
            blocks.setdefault(block.step, []).append(raw)
    return {
        step.name: StepResult(
            seconds_per_iteration=interval(times.step(step.name)),
            rounds=len(blocks[step.name]),
            blocks=tuple(blocks[step.name]),
        )
        for step in STEPS
        if step.name in times.steps
    }


def _stall(stall: Stall, times: Times, whole: _Whole, hourly_usd: float | None) -> StallResult:
    seconds = times.stall(stall)

    def part_of(iteration: Terms | None) -> Estimate | None:
        counts = iteration is not None and stall.is_in_epochs
        return times.relative(stall.terms, iteration) if counts and iteration else None

    later = None if stall.name == "fetch" else part_of(whole.later)
    first = part_of(whole.first)
    priced = first if stall.name == "fetch" else later
    has_base = stall.percent_of in times.steps
    return StallResult(
        seconds_per_iteration=interval(seconds),
        mean_seconds_per_iteration=seconds.mean,
        percent=interval(times.relative(stall.terms, ((+1, stall.percent_of),)), 100)
        if has_base
        else None,
        percent_of=stall.percent_of,
        share=None if later is None else interval(later),
        share_of_first_epoch=None if first is None else interval(first),
        significant=seconds.significant,
        intermittent=seconds.intermittent,
        detectable_seconds_per_iteration=seconds.detectable,
        usd_per_hour_of_training=interval(priced, hourly_usd)
        if hourly_usd is not None and priced is not None
        else None,
        part_of=stall.part_of,
    )


def _waiting(times: Times, iterations: _Whole) -> Waiting:
    def against(whole: Terms | None) -> Interval | None:
        alone = compute_step(times.steps)
        if alone is None or whole is None or whole == ((+1, alone),):
            return None
        return interval(times.relative((*whole, (-1, alone)), whole))

    return Waiting(later=against(iterations.later), first=against(iterations.first))


def _iteration(times: Times, whole: _Whole) -> Iterations | None:
    """Where a whole iteration is put together from several steps; otherwise its step tells."""
    later, first = whole.later, whole.first
    if max(len(terms or ()) for terms in (later, first)) < 2:
        return None
    return Iterations(
        later=None if later is None else interval(times.iteration(later)),
        first=None if first is None else interval(times.iteration(first)),
    )


def _epochs(
    recording: Recording, times: Times, iterations: _Whole, hourly_usd: float | None
) -> Epochs:
    def epoch(step: str, whole: Terms | None) -> EpochResult | None:
        if step not in times.steps or whole is None or not recording.facts[0].workload.samples:
            return None
        return _epoch(step, whole, recording, times, hourly_usd)

    return Epochs(first=epoch("cold", iterations.first), later=epoch("warm", iterations.later))


def _epoch(
    step: str, whole: Terms, recording: Recording, times: Times, hourly_usd: float | None
) -> EpochResult:
    """All iterations at an even pace, and what the start of the loaders and of a queue adds."""
    facts = recording.facts[0]
    machine, iterations = facts.machine, _iterations_of_an_epoch(facts)
    values = times.combine(whole)
    even = statistics.plain_mean(values).mean
    blocks = [block for one in recording.rounds for block in one.blocks if block.step == step]
    fed = statistics.plain_mean(times.by_step[step]).mean
    leads = [min(block.lead_in_iterations, iterations) for block in blocks]
    filling = [
        _lead_in_seconds(block) * lead / max(block.lead_in_iterations, 1) - lead * fed
        for block, lead in zip(blocks, leads, strict=True)
    ]
    pays_start = step == "cold" or not facts.calibration.loader_persistent
    starts = [one.calibration.loader_start_seconds or 0.0 for one in recording.facts]
    start = sum(starts) / len(starts) if pays_start else 0.0
    seconds = iterations * even + sum(filling) / len(filling) + start
    half = None
    evenly = iterations - sum(leads) / len(leads)
    if evenly > 0:
        even_half = statistics.prediction_half_width(
            values, iterations_per_block=blocks[0].iterations, iterations=evenly
        )
        half = None if even_half is None else math.hypot(evenly * even_half, _scatter(filling))
    total = Interval(
        estimate=seconds,
        low=None if half is None else seconds - half,
        high=None if half is None else seconds + half,
    )
    return EpochResult(
        iterations=iterations,
        seconds=total,
        device_hours=_scaled(total, machine.workers / SECONDS_PER_HOUR),
        usd=None if hourly_usd is None else _scaled(total, hourly_usd / SECONDS_PER_HOUR),
    )


def _iterations_of_an_epoch(facts: Facts) -> int:
    workload = facts.workload
    if workload.iterations_per_epoch is not None:
        return workload.iterations_per_epoch
    per_worker = math.ceil((workload.samples or 0) / facts.machine.workers)
    return math.ceil(per_worker / workload.batch_per_worker)


def _lead_in_seconds(block: Block) -> float:
    return max((s for s in block.lead_in_seconds if s is not None), default=0.0)


def _scatter(values: Sequence[float]) -> float:
    """How far one future value may lie from the mean of these, with 95 % confidence."""
    if len(values) < 2:
        return 0.0
    mean = statistics.plain_mean([values])
    assert mean.standard_error is not None
    quantile = student.quantile(0.975, mean.degrees_of_freedom)
    return quantile * mean.standard_error * math.sqrt(len(values) + 1)


def _rates(facts: Sequence[Facts], times: Times) -> Rates:
    workload, machine = facts[0].workload, facts[0].machine
    devices = None
    if "node" in times.steps:
        samples = workload.batch_per_worker * machine.workers_per_node
        devices = _inverse(times.step("node"), samples)
    return Rates(
        devices=devices,
        preprocessing=_rate([one.preprocessing for one in facts]),
        storage=_rate([one.storage for one in facts]),
    )


def _inverse(seconds: Estimate, samples: int) -> Interval:
    """Samples per second from seconds per iteration, so that the two agree."""
    low, high = seconds.low, seconds.high
    bounded = low is not None and high is not None and low > 0
    return Interval(
        estimate=samples / seconds.value,
        low=samples / high if bounded and high else None,
        high=samples / low if bounded and low else None,
    )


def _rate(launches: Sequence[Rate | None]) -> Interval | None:
    values = [list(rate.samples_per_second) for rate in launches if rate is not None]
    return interval(statistics.estimate(values)) if any(values) else None


def _telemetry(rounds: Sequence[Round], cores: int) -> dict[str, Telemetry]:
    result = {}
    for step in STEPS:
        seen = [b.disturbance for one in rounds for b in one.blocks if b.step == step.name]
        wall = sum(one.wall_seconds for one in seen)
        if not seen or wall == 0:
            continue
        busy = [s.device_busy_percent for s in seen if s.device_busy_percent is not None]
        memory = [
            s.device_memory_used_bytes for s in seen if s.device_memory_used_bytes is not None
        ]
        own = [s.worker_cpu_seconds for s in seen if s.worker_cpu_seconds is not None]
        result[step.name] = Telemetry(
            cpu_percent=100 * sum(one.cpu_busy_seconds for one in seen) / wall / cores,
            steal_percent=100 * sum(one.cpu_steal_seconds for one in seen) / wall / cores,
            disk_read_bytes_per_second=sum(one.disk_read_bytes for one in seen) / wall,
            network_bytes_per_second=sum(one.network_bytes for one in seen) / wall,
            memory_used_bytes=max(one.memory_used_bytes for one in seen),
            device_busy_percent=sum(busy) / len(busy) if busy else None,
            device_memory_used_bytes=max(memory) if memory else None,
            worker_cpu_percent=100 * sum(own) / wall if len(own) == len(seen) else None,
        )
    return result


def _checks(recording: Recording, outcome: Outcome) -> tuple[Check, ...]:
    """One word on each check, the worst of all launches, in the order of their first mention."""
    checks = [check for facts in recording.facts for check in facts.checks]
    checks += checks_of(recording.rounds, recording.facts[0].machine)
    checks += [check for end in recording.ends for check in end.checks]
    checks += outcome.checks
    worst: dict[str, Check] = {}
    for check in checks:
        if check.name not in worst or check.status == "warn":
            worst[check.name] = check
    return tuple(worst.values())


def interval(value: Estimate, factor: float = 1.0) -> Interval:
    """An estimate as it stands in the document."""
    return _scaled(Interval(estimate=value.value, low=value.low, high=value.high), factor)


def _scaled(value: Interval, factor: float) -> Interval:
    return Interval(
        estimate=value.estimate * factor,
        low=None if value.low is None else value.low * factor,
        high=None if value.high is None else value.high * factor,
    )
