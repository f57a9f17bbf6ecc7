"""What was trained, on what and how it went, in lines that every report shows the same way.

Names come from documents, so a report passes `safe`: what makes text harmless where it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from stash.report import words
from stash.report.figures import (
    derived,
    duration,
    duration_unit,
    figure,
    large_count,
    time_unit,
    with_unit,
    written,
)
from stash.results.profile import EpochResult, Profile, Rates, StallResult, StepResult
from stash.results.steps import STALL_BY_NAME, STEPS
from stash.results.whole import whole_step

Safe = Callable[[str], str]
T = TypeVar("T")

INTERMITTENT_NOTE = (
    "An intermittent stall hits some iterations only: it is given by its plain mean, which "
    "leaves none of them out."
)
TABLE_NOTE = (
    "Intervals are 95 %. share: of a whole iteration (* of the first epoch); only shares add up. "
    "paper's %: of the step named. finds: smallest stall that this run finds 4 times in 5."
)

#: Named in a line of facts; the document has all.
MOST_HOSTS = 4

PREDICTED_NOTE = (
    "Intervals are {percent:.0f} %, from this model's own errors against published measurements. "
    "share: of a whole iteration; only shares add up. paper's %: of the step named."
)


def table_note(profile: Profile) -> str:
    """How to read the table of stalls."""
    if profile.prediction is None:
        return TABLE_NOTE
    return PREDICTED_NOTE.format(percent=profile.prediction.interval_percent)


def link_lines(profile: Profile, safe: Safe) -> list[str]:
    """What a prediction takes the links to be, and what each possible slice of a machine costs."""
    prediction = profile.prediction
    if prediction is None or not (prediction.inside or prediction.between):
        return []
    unit, factor = iteration_unit(profile)
    known = (("inside a node", prediction.inside), ("between nodes", prediction.between))
    places = [f"{where}: {safe(link)}" for where, link in known if link]
    lines = [f"{prediction.messages} messages an iteration; {'; '.join(places)}"]
    for one in prediction.slices:
        seconds = written(derived(one.seconds_per_iteration), unit, factor)
        every = " on all nodes" if profile.machine.nodes > 1 else ""
        line = f"{100 * one.chance:.0f} % of slices: {safe(one.inside)}, {seconds}{every}"
        if one.interconnect_percent is not None:
            stall = with_unit(figure(derived(one.interconnect_percent)).estimate, "%")
            line += f", interconnect stall {stall} of solo"
        lines.append(line)
    return lines


def iteration_unit(profile: Profile) -> tuple[str, float]:
    """The unit for all times of a profile's iterations, and its factor."""
    whole = whole_step(profile)
    return time_unit(profile.steps[whole].seconds_per_iteration.estimate if whole else 1.0)


def what_was_measured(profile: Profile, safe: Safe, safe_sentence: Safe) -> list[str]:
    """Workload, workers, machine, run: one line each."""
    return [
        _workload_words(profile, safe),
        _worker_words(profile, safe),
        _machine_words(profile, safe),
        _run_words(profile, safe, safe_sentence),
    ]


def steps_in_order(profile: Profile) -> list[tuple[str, StepResult]]:
    """The steps of a profile as the method lists them; unknown ones last."""
    return _in_order(profile.steps, [step.name for step in STEPS])


def stalls_in_order(profile: Profile) -> list[tuple[str, StallResult]]:
    """The stalls of a profile as the method lists them; unknown ones last."""
    return _in_order(profile.stalls, list(STALL_BY_NAME))


def paper_words(stall: StallResult, safe: Safe) -> str:
    """The paper's percentage with the step that it is based on."""
    if stall.percent is None:
        return "-"
    return f"{with_unit(figure(stall.percent).estimate, '%')} {safe(stall.percent_of)}"


def known_rates(rates: Rates) -> list[tuple[str, str]]:
    """Samples per second of each part that was measured alone."""
    named = (
        ("devices", rates.devices),
        ("preprocessing", rates.preprocessing),
        ("storage", rates.storage),
    )
    return [(name, written(rate, "")) for name, rate in named if rate is not None]


def rate_lines(rates: Rates) -> list[str]:
    """What each part sustains alone, and which is slowest."""
    known = [f"{name} {rate}" for name, rate in known_rates(rates)]
    if not known:
        return []
    lines = [f"samples/s alone: {', '.join(known)}"]
    slowest = words.bottleneck(rates)
    return [*lines, slowest] if slowest else lines


def epoch_lines(profile: Profile) -> list[str]:
    """Time and cost of a first and of a later epoch."""
    named = (("first", profile.epoch.first), ("later", profile.epoch.later))
    return [_epoch_words(name, epoch) for name, epoch in named if epoch is not None]


def moment(created: datetime) -> str:
    """A point in time to the minute."""
    return created.isoformat(sep=" ", timespec="minutes").replace("+00:00", " UTC")


def _workload_words(profile: Profile, safe: Safe) -> str:
    workload = profile.workload
    facts = [
        f"{large_count(workload.parameters)} parameters",
        safe(workload.dtype),
        safe(workload.optimizer),
        f"batch {workload.batch_per_worker} per worker",
    ]
    return f"{safe(workload.name)}: {', '.join(facts)}"


def _worker_words(profile: Profile, safe: Safe) -> str:
    machine, workload = profile.machine, profile.workload
    workers = "1 worker" if machine.workers == 1 else f"{machine.workers} workers"
    names = sorted({safe(name) for name in machine.devices} - {machine.device})
    kind = f" ({', '.join(names[:2])})" if names else ""
    nodes = "" if machine.nodes == 1 else f" on {machine.nodes} nodes"
    return (
        f"{workers} x {safe(machine.device)}{kind}{nodes}, "
        f"{workload.loader_workers} loader worker"
        f"{'' if workload.loader_workers == 1 else 's'} each"
    )


def _machine_words(profile: Profile, safe: Safe) -> str:
    machine, workload = profile.machine, profile.workload
    size = "" if workload.samples is None else f" ({large_count(workload.samples)} samples)"
    data = f"data {safe(workload.data)}{size}; " if workload.data else ""
    instance = f" ({safe(machine.instance)})" if machine.instance else ""
    if profile.prediction is not None:
        return (
            f"{data}instance {safe(machine.host)} ({safe(machine.system)}), {machine.cores} cores"
        )
    hosts = f"host {safe(machine.host)}"
    if machine.hosts:
        named = ", ".join(safe(name) for name in machine.hosts[:MOST_HOSTS])
        more = len(machine.hosts) - MOST_HOSTS
        hosts = f"hosts {named}" + (f" and {more} more" if more > 0 else "")
    each = " each" if machine.hosts else ""
    return (
        f"{data}{hosts}{instance}, {machine.cores} cores{each}; "
        f"torch {safe(machine.torch)}, {safe(machine.backend)}"
    )


def _run_words(profile: Profile, safe: Safe, safe_sentence: Safe) -> str:
    run = profile.run
    if profile.prediction is not None:
        calibrated = safe_sentence(profile.prediction.calibrated_on)
        return f"predicted {moment(profile.created)}, calibrated on {calibrated}"
    launches = "1 launch" if run.launches == 1 else f"{run.launches} launches"
    rounds = "1 round" if run.rounds == 1 else f"{run.rounds} rounds"
    return (
        f"{profile.provenance.value}: {rounds} in {launches}, "
        f"{duration(run.measuring_seconds)}, {moment(profile.created)}, "
        f"profile {safe(profile.id)}"
    )


def _epoch_words(name: str, epoch: EpochResult) -> str:
    unit, factor = duration_unit(epoch.seconds.estimate)
    time = written(epoch.seconds, unit, factor)
    iterations = f"{epoch.iterations} iterations"
    if epoch.usd is not None:
        return f"{name}: {time}, {written(epoch.usd, '$')}, {iterations}"
    return f"{name}: {time}, {written(epoch.device_hours, 'device-hours')}, {iterations}"


def _in_order(found: Mapping[str, T], order: list[str]) -> list[tuple[str, T]]:
    known = [name for name in order if name in found]
    unknown = [name for name in found if name not in order]
    return [(name, found[name]) for name in known + unknown]
