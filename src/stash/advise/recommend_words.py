"""A recommendation in sentences: why this one, why none, what it rests on, what to measure next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stash.advise.recommendation import (
    Assumptions,
    Candidate,
    NextProbe,
    Question,
    Recommendation,
    way_name,
)
from stash.hardware.gpus import Gpu
from stash.predict import pipeline

#: A limit missed by less than this factor is worth a word, where it brings more than that.
NEAR = 1.1


def hours(value: float, *, up: bool = False) -> str:
    """A length of time as people say it; rounded up, it is enough."""
    if value < 1:
        number, unit = value * 60, "min"
    else:
        number, unit = (value, "h") if value < 100 else (value / 24, "days")
    return f"{_three_digits_up(number) if up else number:.3g} {unit}"


def money(value: float, question: Question, *, up: bool = False) -> str:
    """A cost as people say it; rounded up, it is enough."""
    if question.currency == "device-hours":
        return f"{_three_digits_up(value) if up else value:.3g} device-hours"
    digits = 2 if value < 100 else 0
    return f"${_rounded_up(value, digits) if up else value:,.{digits}f}"


def _three_digits_up(value: float) -> float:
    return _rounded_up(value, 2 - math.floor(math.log10(value)))


def _rounded_up(value: float, digits: int) -> float:
    """To so many digits after the point; where the nearest is too little, to the next."""
    nearest = round(value, digits)
    return nearest if nearest >= value else round(nearest + 10.0**-digits, digits)


def why(found: Recommendation) -> str:
    """Why this one, in one sentence; or why none, and what would have to change."""
    best = found.choice
    if best is None:
        return _infeasible(found)
    return {"cheapest": _cheapest, "fastest": _fastest, "knee": _knee}[found.question.objective](
        found, best
    )


def nothing_fits(question: Question, needed_bytes: int, largest: Gpu, fits: int) -> str:
    advice = (
        f"--batch-size {fits} or less would fit there"
        if fits
        else "not even one sample would fit; half precision (--dtype amp) or a smaller model might"
    )
    return (
        f"Infeasible: {question.workload} at batch {question.batch_per_worker} in "
        f"{question.dtype} needs about {needed_bytes / 2**30:.1f} GiB a GPU, more than any machine "
        f"in question has ({largest.name}: {largest.memory_bytes / 2**30:.0f} GiB); {advice}."
    )


def probe(found: NextProbe) -> str:
    """What to measure next, in one sentence."""
    what = way_name(found.machine, found.nodes)
    minutes = f"{found.probe_seconds / 60:.0f} min"
    paid = (
        f"{found.probe_device_hours:.2g} device-hours"
        if found.probe_usd is None
        else f"${found.probe_usd:.2f}"
    )
    brings = _brings(found)
    if not brings:
        return "No measurement of one machine is expected to change the decision."
    verdict = "" if found.worth_it else "; that is less than it costs, so decide now"
    strongest = way_name(found.strongest_machine, found.strongest_nodes)
    price = "" if found.strongest_usd is None else f" (${found.strongest_usd:.2f})"
    more = "" if strongest == what else f" Whatever it costs, {strongest}{price} would tell most."
    return (
        f"Measure {what} next ({minutes}, {paid}): deciding after that is expected to "
        f"{' and to '.join(brings)}{verdict}.{more}"
    )


def _brings(found: NextProbe) -> list[str]:
    brings = []
    if found.expected_saving_fraction > 0.001:
        if found.expected_saving_usd is not None:
            saved = f"${found.expected_saving_usd:.2f}"
        elif found.expected_saving_hours is not None:
            saved = hours(found.expected_saving_hours)
        else:
            saved = _percent(found.expected_saving_fraction)
        brings.append(f"save {saved} of the job")
    if found.expected_overrun_avoided_fraction > 0.001:
        avoided = _percent(found.expected_overrun_avoided_fraction)
        brings.append(f"overrun the limit by {avoided} less")
    return brings


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What the numbers of a recommendation rest on."""

    calibrated: bool  # some GPU was measured
    source: pipeline.Source | None  # what is known of the data
    overflows: bool  # the data do not stay in the chosen machine's memory
    unknown_disks: int  # machine types whose storage nobody has told


def remarks(
    listed: Sequence[Candidate],
    question: Question,
    assumed: Assumptions,
    chosen: Candidate | None,
    basis: Basis,
) -> tuple[str, ...]:
    """What a reader must know to trust the numbers as far as they go, and no further."""
    found = [_prices(listed, question, assumed)]
    if not basis.calibrated:
        found.append(
            "Times come from specifications alone: most of their error is common to all machines, "
            "so the order is surer than the numbers. A profile (--from) narrows both."
        )
    if basis.source is None:
        found.append(
            "Data are not counted: give --data-size and --samples-per-core, or a profile (--from)."
        )
    elif basis.source.bytes_per_sample is None:
        found.append("Reading from storage is not counted: give --data-size.")
    elif basis.unknown_disks:
        found.append(
            f"Of {basis.unknown_disks} machine types the catalog knows no disk: there, reading is "
            "counted as if storage kept up. `stash catalog import` adds disk_mb_per_second."
        )
    if basis.overflows:
        found.append(
            "The data do not stay in this machine's memory: later epochs read from storage, too. "
            "The high ends assume a page cache that evicts what is needed next."
        )
    if chosen is not None:
        found += _near_misses(listed, question, chosen)
    found.append(
        "The batch per GPU is kept, so more GPUs mean a larger global batch; the same number of "
        "epochs is assumed to do."
    )
    return tuple(found)


def _near_misses(listed: Sequence[Candidate], question: Question, chosen: Candidate) -> list[str]:
    """What a little more time or money would bring."""
    deadline, budget, currency = question.deadline_hours, question.budget_usd, question.currency
    if deadline is not None:
        late = [one for one in listed if deadline < one.hours.estimate <= NEAR * deadline]
        best = min(late, key=lambda one: one.cost(currency).estimate, default=None)
        if best and best.cost(currency).estimate * NEAR < chosen.cost(currency).estimate:
            cost = money(best.cost(currency).estimate, question)
            return [f"With {hours(best.hours.estimate)}, {best.name} would do for {cost}."]
    elif budget is not None:
        dear = [one for one in listed if one.usd and budget < one.usd.estimate <= NEAR * budget]
        best = min(dear, key=lambda one: one.hours.estimate, default=None)
        if best and best.usd and best.hours.estimate * NEAR < chosen.hours.estimate:
            cost = money(best.usd.estimate, question)
            return [f"For {cost}, {best.name} would take {hours(best.hours.estimate)}."]
    return []


def _prices(listed: Sequence[Candidate], question: Question, assumed: Assumptions) -> str:
    if question.currency == "device-hours":
        return "No machine in question has a price: cost is counted in device-hours."
    by_cloud: dict[str, tuple[set[str], set[str]]] = {}
    for one in listed:
        dates, regions = by_cloud.setdefault(one.cloud, (set(), set()))
        dates.add(one.price_date)
        regions.add(one.price_region)
    told = [
        f"{cloud} {_span(dates)}, {next(iter(regions)) if len(regions) == 1 else 'several regions'}"
        for cloud, (dates, regions) in sorted(by_cloud.items())
    ]
    kind = "Spot" if assumed.spot else "On-demand"
    sentence = f"{kind} prices of {'; '.join(told)}."
    if assumed.spot:
        lost = assumed.lost_seconds_per_interruption + assumed.setup_seconds
        sentence += (
            f" Assumed: {assumed.interruptions_per_node_hour:g} interruptions per node and hour, "
            f"each losing {lost / 60:.3g} min."
        )
    return sentence


def _span(dates: set[str]) -> str:
    known = sorted(date for date in dates if date)
    if not known:
        return "undated"
    return known[0] if known[0] == known[-1] else f"{known[0]} to {known[-1]}"


def _cheapest(found: Recommendation, best: Candidate) -> str:
    question = found.question
    assert question.deadline_hours is not None
    limit = f"that finish within {hours(question.deadline_hours)}"
    if question.budget_usd is not None:
        limit += f" for at most {money(question.budget_usd, question)}"
    rivals = _within(found)
    start = f"{best.name} is the cheapest of {len(rivals)} ways {limit}"
    other = _next_machine(found, best, rivals)
    if other is None:
        return f"{start}{_keeps(best, question)}."
    less = 1 - best.cost(question.currency).estimate / other.cost(question.currency).estimate
    return (
        f"{start}: {_percent(less)} less than the next machine, {other.name}"
        f"{_because(best, other)}{_keeps(best, question)}."
    )


def _fastest(found: Recommendation, best: Candidate) -> str:
    question = found.question
    assert question.budget_usd is not None
    rivals = _within(found)
    start = (
        f"{best.name} is the fastest of {len(rivals)} ways that cost at most "
        f"{money(question.budget_usd, question)}"
    )
    other = _next_machine(found, best, rivals)
    if other is None:
        return f"{start}{_keeps(best, question)}."
    less = 1 - best.hours.estimate / other.hours.estimate
    return (
        f"{start}: {_percent(less)} less time than the next machine, {other.name}"
        f"{_because(best, other)}{_keeps(best, question)}."
    )


def _knee(found: Recommendation, best: Candidate) -> str:
    question, along = found.question, found.pareto
    if found.knee_usd_per_hour is None:
        ways = f"{len(found.candidates)} ways"
        return f"{best.name} is the cheapest of {ways}, and none is faster by a percent."
    place = along.index(best)
    parts = []
    if place:
        cheaper = along[place - 1]
        parts.append(f"the next cheaper way, {cheaper.name}, {_trade(cheaper, best, question)}")
    if place + 1 < len(along):
        faster = along[place + 1]
        parts.append(f"the next faster, {faster.name}, {_trade(faster, best, question)}")
    worth = money(found.knee_usd_per_hour, question)
    start = (
        f"{best.name} is the knee of {len(found.candidates)} ways: from there an hour less costs "
        f"more than {worth}, the average between the cheapest and the fastest"
    )
    return f"{start} ({'; '.join(parts)})." if parts else f"{start}."


def _trade(other: Candidate, best: Candidate, question: Question) -> str:
    currency = question.currency
    cost = other.cost(currency).estimate / best.cost(currency).estimate - 1
    time = other.hours.estimate / best.hours.estimate - 1

    def change(value: float, less: str, more: str) -> str:
        return f"{_percent(abs(value))} {less if value < 0 else more}"

    return f"costs {change(cost, 'less', 'more')} and takes {change(time, 'less', 'more')} time"


def _within(found: Recommendation) -> list[Candidate]:
    question = found.question
    return [
        one
        for one in found.candidates
        if (question.deadline_hours is None or one.hours.estimate <= question.deadline_hours)
        and (
            question.budget_usd is None
            or one.usd is None
            or one.usd.estimate <= question.budget_usd
        )
    ]


def _next_machine(
    found: Recommendation, best: Candidate, rivals: Sequence[Candidate]
) -> Candidate | None:
    """The best way on another machine type."""
    others = [one for one in rivals if (one.cloud, one.machine) != (best.cloud, best.machine)]
    if found.question.objective == "fastest":
        return min(others, key=lambda one: one.hours.estimate, default=None)
    return min(others, key=lambda one: one.cost(found.question.currency).estimate, default=None)


def _because(best: Candidate, other: Candidate) -> str:
    """The stall by which the other is worse, where there is one."""
    worse = {
        name: share - best.parts.get(name, 0.0)
        for name, share in other.parts.items()
        if name not in ("compute", "set-up", "profiling")
    }
    name = max(worse, key=lambda one: worse[one], default=None)
    if name is None or worse[name] < 0.05:
        return ""
    return (
        f", which spends {_percent(other.parts[name])} of its time on {name} against "
        f"{_percent(best.parts.get(name, 0.0))}"
    )


def _keeps(best: Candidate, question: Question) -> str:
    """Whether even the high end of the interval stays within the limits."""
    late = (
        question.deadline_hours is not None
        and best.hours.high is not None
        and best.hours.high > question.deadline_hours
    )
    dear = (
        question.budget_usd is not None
        and best.usd is not None
        and best.usd.high is not None
        and best.usd.high > question.budget_usd
    )
    missed = " and ".join([*["deadline"] * late, *["budget"] * dear])
    return f"; the high end of its interval misses the {missed}" if missed else ""


def _infeasible(found: Recommendation) -> str:
    question = found.question
    if not found.candidates:
        return (
            "Infeasible: on every machine interruptions cost more time than passes. It would take "
            "fewer of them (--interruptions, --lost, --setup) or machines on demand (no --spot)."
        )
    fastest = min(found.candidates, key=lambda one: one.hours.estimate)
    cheapest = found.candidates[0]
    reasons, changes = [], []
    deadline, budget = question.deadline_hours, question.budget_usd
    if deadline is not None and fastest.hours.estimate > deadline:
        reasons.append(
            f"no way finishes within {hours(deadline)}: the fastest, {fastest.name}, takes "
            f"{hours(fastest.hours.estimate)}"
        )
        changes.append(f"a deadline of {hours(fastest.hours.estimate, up=True)} or more")
        changes.append(f"more than {question.max_nodes} nodes (--max-nodes) or fewer epochs")
    if budget is not None and cheapest.usd is not None and cheapest.usd.estimate > budget:
        reasons.append(
            f"no way costs at most {money(budget, question)}: the cheapest, {cheapest.name}, "
            f"costs {money(cheapest.usd.estimate, question)}"
        )
        changes.append(f"a budget of {money(cheapest.usd.estimate, question, up=True)} or more")
    if not reasons and deadline is not None and budget is not None:
        in_time = next(one for one in found.candidates if one.hours.estimate <= deadline)
        paid = [one for one in found.candidates if one.usd and one.usd.estimate <= budget]
        quickest = min(paid, key=lambda one: one.hours.estimate)
        assert in_time.usd is not None
        reasons.append(
            f"no way keeps both the deadline of {hours(deadline)} and the budget of "
            f"{money(budget, question)}"
        )
        cost, time = in_time.usd.estimate, quickest.hours.estimate
        changes.append(f"{money(cost, question, up=True)} ({in_time.name} in time)")
        changes.append(f"{hours(time, up=True)} ({quickest.name} for the money)")
    return f"Infeasible: {', and '.join(reasons)}. It would take {', or '.join(changes)}."


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if abs(share) < 0.995 else f"{100 * share:.0f} %"
