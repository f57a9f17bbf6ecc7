"""What a profile says in sentences: the headline, what is absent, why the run stopped."""

from __future__ import annotations

from collections.abc import Iterable

from stash.report.figures import (
    derived,
    figure,
    percentage,
    plain,
    price_figure,
    with_unit,
    written,
)
from stash.results.document import Interval
from stash.results.profile import Profile, Provenance, Rates, Run, StallResult
from stash.results.steps import STALL_BY_NAME, STALLS, compute_step
from stash.results.whole import has_data

NOT_MEASURED = {
    Provenance.EMULATED: "EMULATED: the devices are virtual, so compute is a model; "
    "gradient exchange, loaders and storage are real.",
    Provenance.PREDICTED: "PREDICTED by a model: nothing here was measured.",
    Provenance.CITED: "CITED: published by someone else, not measured here.",
}

#: Stalls that everyone asks about; `copy` exists on CUDA only and `noise` where asked for.
EXPECTED_STALLS = ("interconnect", "contention", "communication", "prep", "fetch")


def headline(profile: Profile) -> list[str]:
    """How much of the time workers wait, for what, and what that costs."""
    sentences = [_later(profile)]
    waits = profile.waiting.later is not None and is_positive(profile.waiting.later)
    largest = largest_stall(profile)
    if largest is not None:
        sentences.append(_largest(profile, *largest))
    if waits:
        sentences += _money(profile)
    sentences += _first(profile)
    return sentences


def is_positive(value: Interval) -> bool:
    """Whether the interval lies above zero: the only case in which there is something to fix."""
    return value.low is not None and value.low > 0


def largest_stall(profile: Profile) -> tuple[str, StallResult] | None:
    """The significant stall, not split any further, that takes most of a later epoch."""
    found = [
        (name, stall)
        for name, stall in undivided_stalls(profile)
        if stall.significant and stall.share is not None and stall.share.estimate > 0
    ]
    return max(found, key=lambda item: _estimate(item[1].share), default=None)


def undivided_stalls(profile: Profile) -> list[tuple[str, StallResult]]:
    """Stalls that no measured part explains further; noise is none."""
    divided = set()
    if {"contention", "communication"} <= set(profile.stalls):
        divided.add("interconnect")
    if {"links", "relief"} <= set(profile.stalls):
        divided.add("network")
    return [
        (name, stall)
        for name, stall in profile.stalls.items()
        if name in STALL_BY_NAME and name not in divided | {"noise", "copy"}
    ]


def absent(profile: Profile) -> list[str]:
    """What this profile cannot tell, and which step would."""
    sentences = []
    expected: Iterable[str] = EXPECTED_STALLS
    if profile.provenance is Provenance.PREDICTED:
        expected = ("interconnect", "prep", "fetch")  # public data do not tell its parts apart
    elif profile.machine.nodes > 1:
        expected = (*EXPECTED_STALLS, "network", "scale-out")
    if profile.machine.workers_per_node == 1 and profile.machine.nodes > 1:
        sentences.append(
            "One worker on each node: interconnect and network need two or more; scale-out holds "
            "all that exchanging gradients across nodes costs."
        )
        expected = ("prep", "fetch", "scale-out")
    elif profile.machine.workers == 1:
        sentences.append("One device: prep and fetch only; interconnect needs two workers or more.")
        expected = ("prep", "fetch")
    missing = []
    for stall in STALLS:
        if stall.name in expected and stall.name not in profile.stalls:
            steps = " and ".join(sorted(stall.steps - set(profile.steps)))
            missing.append(f"{stall.name} (needs {steps})" if steps else stall.name)
    if missing and profile.provenance is Provenance.PREDICTED:
        names = ", ".join(name.split(" ")[0] for name in missing)
        needs = (
            "They need rates of the data's preprocessing and storage: --from PROFILE, or "
            "--samples-per-core."
        )
        if "prep" in profile.stalls:
            needs = "It needs the rate of storage: --sample-bytes and --storage-mb-per-second."
        sentences.append(f"Not predicted: {names}. {needs}")
    elif missing:
        sentences.append(f"Not measured: {', '.join(missing)}.")
    return sentences


def why_it_stopped(run: Run) -> str:
    """Why measuring ended, and how sure it was by then."""
    sure = run.half_width_reached is not None and run.half_width_reached <= run.half_width_asked
    before = "" if sure else " before every stall was as sure as asked"
    reason = {
        "half-width": "Stopped because every stall is as sure as asked."
        if sure
        else "Stopped because the rounds of each launch were as sure as asked.",
        "max-minutes": f"Stopped by its time limit (--max-minutes){before}.",
        "max-usd": f"Stopped by its money limit (--max-usd){before}.",
        "rounds": "Stopped after the number of rounds that was asked for.",
        "interrupted": f"Interrupted{before}; the complete rounds are kept.",
        "failed": f"FAILED{before}; the complete rounds are kept.",
        "predicted": "Nothing was measured.",
    }[run.stopped_because]
    return f"{reason} {_half_widths(run)}"


def bottleneck(rates: Rates) -> str:
    """Which part sustains least alone, in the first epoch and in later ones."""
    memory = {"devices": rates.devices, "preprocessing": rates.preprocessing}
    later = _slowest(memory)
    first = _slowest({**memory, "storage": rates.storage})
    if not first:
        return ""
    if first == later:
        return f"Slowest: {later}."
    return f"Slowest in the first epoch: {first}" + (f"; in later ones: {later}." if later else ".")


def _slowest(rates: dict[str, Interval | None]) -> str:
    """The slowest of at least two parts; parts whose intervals overlap are level."""
    known = {name: rate for name, rate in rates.items() if rate is not None}
    if len(known) < 2:
        return ""
    slowest = min(known, key=lambda name: known[name].estimate)
    level = [n for n in known if n != slowest and _overlap(known[slowest], known[n])]
    return " and ".join([slowest, *level]) + (" (level)" if level else "")


def detectable(stall: StallResult, factor: float) -> str:
    """The smallest stall that this run would have found."""
    smallest = stall.detectable_seconds_per_iteration
    if smallest is None:
        return "-"
    return figure(derived(smallest), factor).estimate


def share_words(stall: StallResult) -> str:
    """A stall's share of the iteration that it belongs to."""
    if stall.share is not None:
        return with_unit(figure(stall.share, 100).estimate, "%")
    if stall.share_of_first_epoch is not None:
        return with_unit(figure(stall.share_of_first_epoch, 100).estimate, "%") + "*"
    return "-"


def verdict(stall: StallResult) -> str:
    """Whether a stall is there at all, in words."""
    if not stall.significant:
        return "not significant, intermittent" if stall.intermittent else "not significant"
    return "intermittent" if stall.intermittent else "yes"


def _later(profile: Profile) -> str:
    waiting = profile.waiting.later
    workers = profile.machine.workers
    who = "Your worker" if workers == 1 else f"Your {workers} workers"
    if waiting is None:
        return f"{who}: what share of the time is spent waiting cannot be told from these steps."
    share, scope = percentage(waiting), _scope(profile)
    if waiting.low is None:
        verb = "waits" if workers == 1 else "wait"
        why = "" if profile.provenance is Provenance.PREDICTED else ", from one round"
        return f"{who} {verb} about {share} of the time{scope}{why}, without interval."
    if is_positive(waiting):
        verb = "waits" if workers == 1 else "wait"
        return f"{who} {verb} {share} of the time{scope}."
    if waiting.high is not None and waiting.high < 0:
        return (
            f"{who} ran faster together than one alone: {share} waiting{scope}. "
            "Something slowed the step that the others are compared with; measure again."
        )
    return f"{who}: no significant waiting, {share} of the time{scope}."


def _scope(profile: Profile) -> str:
    """What the headline's waiting leaves out."""
    if profile.machine.workers > 1 and compute_step(set(profile.steps)) == "node":
        return " for data (what sharing the machine costs was not measured)"
    if not has_data(profile):
        return " for each other (data was not measured)"
    return ""


def _largest(profile: Profile, name: str, stall: StallResult) -> str:
    assert stall.share is not None
    waiting = profile.waiting.later
    if waiting is None:
        start = "The largest stall is"
    elif is_positive(waiting):
        start = "The largest part is"
    else:
        start = "One stall is significant all the same:"
    meaning = STALL_BY_NAME[name].meaning
    return f"{start} {name}, {percentage(stall.share)} of the time, {meaning}."


def _money(profile: Profile) -> list[str]:
    price = profile.machine.price_usd_per_hour
    waiting = profile.waiting.later
    if price is None or waiting is None:
        return []
    hourly = price * profile.machine.nodes
    cost = written(waiting, "$", hourly)
    return [f"Waiting costs {cost} of the ${price_figure(hourly)} that an hour of training costs."]


def _first(profile: Profile) -> list[str]:
    waiting, fetch = profile.waiting.first, profile.stalls.get("fetch")
    if waiting is None:
        return []
    verb = "it waits" if profile.machine.workers == 1 else "they wait"
    if waiting.low is not None and not is_positive(waiting):
        return [f"The first epoch: no significant waiting, {percentage(waiting)} of the time."]
    sentence = f"In the first epoch {verb} {percentage(waiting)}"
    if fetch is not None and fetch.share_of_first_epoch is not None:
        if not fetch.significant:
            return [f"{sentence}; fetch from storage is not significant."]
        return [f"{sentence}, {percentage(fetch.share_of_first_epoch)} of the time for storage."]
    return [f"{sentence}."]


def _half_widths(run: Run) -> str:
    asked = f"{100 * run.half_width_asked:.3g} %"
    if run.half_width_reached is None:
        return f"No intervals: they need two rounds or more ({asked} of an iteration was asked)."
    reached = f"{plain(100 * run.half_width_reached)} %"
    return f"Widest half-width: {reached} of an iteration, asked {asked}."


def _overlap(one: Interval, other: Interval) -> bool:
    if one.high is None or other.low is None:
        return False
    return other.low <= one.high


def _estimate(value: Interval | None) -> float:
    return 0.0 if value is None else value.estimate
