"""`stash.recommend`: what to rent for a job, under a deadline, a budget, or neither.

The story of one recommendation: which machines come into question, what is believed of their
iterations, what the whole job takes and costs on each, which one to take, and why.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

import stash
from stash.advise import candidates, probe, recommend_words
from stash.advise.candidates import Grid, Pool
from stash.advise.recommend_belief import INTERVAL_PERCENT, Belief, believe
from stash.advise.recommend_choose import Rule, choose, front, rule_for, ties
from stash.advise.recommend_evidence import Evidence, gather
from stash.advise.recommend_job import Jobs, Outlook, Work, outlook
from stash.advise.recommendation import (
    SCHEMA,
    Assumptions,
    Candidate,
    Currency,
    LeftOut,
    NextProbe,
    Question,
    Recommendation,
)
from stash.errors import UsageError
from stash.hardware import catalog as machines
from stash.predict import facts, memory, pipeline
from stash.predict.facts import Array, ModelFacts
from stash.results.document import Interval
from stash.results.profile import Profile, Provenance

#: Waiting that a reader can do something about; the rest of the hours is work or overhead.
STALLS = ("interconnect", "scale-out", "prep", "fetch", "interruptions")
#: Less than a percent decides nothing; less than the other is an artefact of sums.
LEAST_SHARE, ROUNDING = 0.01, 1e-9
MAX_NODES = 1024


@dataclass(frozen=True, eq=False)
class Decision:
    """All that was reckoned, row by row."""

    ways: Grid
    belief: Belief
    outlook: Outlook
    rule: Rule

    @property
    def jobs(self) -> Jobs:
        return self.outlook.expected


def recommend(
    workload: str,
    *,
    samples: int,
    epochs: int,
    data_bytes: float | None = None,
    samples_per_core: float | None = None,
    deadline_hours: float | None = None,
    budget_usd: float | None = None,
    from_profiles: Sequence[Profile | Path | str] = (),
    batch_size: int | None = None,
    dtype: str | None = None,
    clouds: Sequence[str] = (),
    exclude: Sequence[str] = (),
    max_nodes: int = 8,
    retired: bool = False,
    catalog: str = machines.CURRENT,
    data: Path | str | None = None,
    assumptions: Assumptions | None = None,
    next_probe: bool = False,
) -> Recommendation:
    """What to rent for this many epochs over this many samples."""
    assumed = assumptions or Assumptions()
    _check(samples, epochs, data_bytes, samples_per_core, batch_size, max_nodes)
    _check_limits(deadline_hours, budget_usd, assumed)
    known = facts.find(workload, None if data is None else Path(data))
    profiles = [Profile.load(Path(p)) if isinstance(p, str | Path) else p for p in from_profiles]
    batch, precision = _batch_and_dtype(batch_size, dtype, profiles, known)
    rows = candidates.read_catalog(catalog)
    pool = candidates.pool(rows, clouds=clouds, excluded=exclude, retired=retired)
    fits = candidates.fitting(pool, known, batch, precision)
    priced, currency = _priced(fits, spot=assumed.spot)
    if currency == "device-hours" and budget_usd is not None:
        raise UsageError(
            "A budget in dollars needs prices, and no machine in question has one. Leave --budget "
            "out to decide by device-hours, or give prices with `stash catalog import FILE`."
        )
    question = Question(
        workload=known.name,
        samples=samples,
        epochs=epochs,
        batch_per_worker=batch,
        dtype=precision,
        data_bytes=None if data_bytes is None else float(data_bytes),
        samples_per_second_per_core=samples_per_core,
        deadline_hours=deadline_hours,
        budget_usd=budget_usd,
        clouds=tuple(clouds),
        excluded=tuple(exclude),
        max_nodes=max_nodes,
        catalog=catalog,
        retired=retired,
        objective=Rule(deadline_hours, budget_usd).objective,
        currency=currency,
    )
    if not priced.instances:
        return _nothing_fits(question, assumed, pool, priced, known)
    ways = candidates.grid(priced.instances, max_nodes)
    evidence = gather(profiles, known, ways)
    work = Work(
        samples=samples,
        epochs=epochs,
        batch=batch,
        source=_source(evidence, samples, data_bytes, samples_per_core),
        storage_bytes_per_second=evidence.storage_bytes_per_second,
        data=evidence.data if (batch, precision) in evidence.settings else {},
    )
    belief = believe(ways, known, batch, precision, evidence.observations)
    decision = decide(ways, belief, work, assumed, currency, deadline_hours, budget_usd)
    return _document(question, assumed, priced, decision, evidence, work, next_probe=next_probe)


def decide(
    ways: Grid,
    belief: Belief,
    work: Work,
    assumed: Assumptions,
    currency: Currency,
    deadline_hours: float | None,
    budget: float | None,
) -> Decision:
    """Everything that a recommendation rests on, as arrays with a row a way to rent."""
    price = np.array([_hourly(one, currency, assumed) for one in ways.instances])[ways.instance]
    look = outlook(ways, belief, work, assumed, price)
    return Decision(ways, belief, look, rule_for(look.expected, deadline_hours, budget))


def _check(
    samples: int,
    epochs: int,
    data_bytes: float | None,
    samples_per_core: float | None,
    batch_size: int | None,
    max_nodes: int,
) -> None:
    for option, value in (
        ("--samples", samples),
        ("--epochs", epochs),
        ("--batch-size", batch_size),
    ):
        if value is not None and value < 1:
            raise UsageError(f"{option} is {value}; expected 1 or more.")
    for option, number in (("--data-size", data_bytes), ("--samples-per-core", samples_per_core)):
        if number is not None and not 0 < number < math.inf:
            raise UsageError(f"{option} is {number:g}; expected more than zero.")
    if not 1 <= max_nodes <= MAX_NODES:
        raise UsageError(f"--max-nodes is {max_nodes}; expected 1 to {MAX_NODES}.")


def _check_limits(deadline: float | None, budget: float | None, assumed: Assumptions) -> None:
    if budget is not None and not 0 < budget < math.inf:
        raise UsageError(f"--budget is {budget:g}; expected more than zero dollars.")
    if deadline is None:
        return
    if not 0 < deadline < math.inf:
        raise UsageError(f"--deadline is {deadline:g} h; expected more than zero.")
    setup = assumed.setup_seconds / 3600
    if deadline <= setup:
        raise UsageError(
            f"The deadline of {recommend_words.hours(deadline)} is over before training begins: "
            f"setting up takes {recommend_words.hours(setup)} (--setup)."
        )


def _batch_and_dtype(
    batch: int | None, dtype: str | None, profiles: Sequence[Profile], known: ModelFacts
) -> tuple[int, str]:
    first = profiles[0].workload if profiles else None
    default = known.batch_size if first is None else first.batch_per_worker
    return batch or default, dtype or ("fp32" if first is None else first.dtype)


def _priced(found: Pool, *, spot: bool) -> tuple[Pool, Currency]:
    """Only machines with a price where any has one; else all of them, counted in device-hours."""

    def price(one: machines.Instance) -> float | None:
        return one.spot_usd_per_hour if spot else one.price_usd_per_hour

    kept = tuple(one for one in found.instances if price(one) is not None)
    if not kept:
        if spot and any(one.price_usd_per_hour is not None for one in found.instances):
            raise UsageError("No machine in question has a spot price; leave --spot out.")
        return found, "device-hours"
    without = tuple(one.name for one in found.instances if price(one) is None)
    reason = "no spot price" if spot else "no price (alone, they would be counted in device-hours)"
    return Pool(kept, {**found.left_out, **({reason: without} if without else {})}), "usd"


def _hourly(one: machines.Instance, currency: Currency, assumed: Assumptions) -> float:
    if currency == "device-hours":
        return float(one.gpus)
    price = one.spot_usd_per_hour if assumed.spot else one.price_usd_per_hour
    assert price is not None
    return price


def _source(
    evidence: Evidence, samples: int, data_bytes: float | None, samples_per_core: float | None
) -> pipeline.Source | None:
    """What is known of the data: what the user says stands before what a profile has seen."""
    seen = evidence.source
    prepared = samples_per_core or (None if seen is None else seen.preprocessing_per_core)
    size = None if seen is None else seen.bytes_per_sample
    if data_bytes is not None:
        size = data_bytes / samples
    if prepared is None and size is None:
        return None
    return pipeline.Source(
        preprocessing_per_core=math.inf if prepared is None else prepared,
        bytes_per_sample=size,
        samples=samples,
    )


def _document(
    question: Question,
    assumed: Assumptions,
    pool: Pool,
    decision: Decision,
    evidence: Evidence,
    work: Work,
    *,
    next_probe: bool,
) -> Recommendation:
    jobs = decision.jobs
    finite = np.flatnonzero(np.isfinite(jobs.hours) & np.isfinite(decision.outlook.high.hours))
    order = finite[np.lexsort((jobs.hours[finite], jobs.cost[finite]))]
    place = {int(row): position for position, row in enumerate(order)}
    listed = tuple(_candidate(decision, int(row), question.currency, assumed) for row in order)
    chosen = choose(jobs, decision.rule)
    level = [] if chosen is None else ties(jobs, decision.belief, decision.rule, chosen)
    found = Recommendation(
        schema=SCHEMA,
        id=secrets.token_hex(4),
        created=datetime.now(timezone.utc),
        stash=stash.__version__,
        status="infeasible" if chosen is None else "chosen",
        question=question,
        assumptions=assumed,
        interval_percent=INTERVAL_PERCENT,
        words="",
        knee_usd_per_hour=decision.rule.hour_worth or None,
        chosen=None if chosen is None else place[chosen],
        front=tuple(place[row] for row in front(jobs) if row in place),
        ties=tuple(place[row] for row in level if row in place),
        candidates=listed,
        left_out=_left_out(pool),
        profiles=evidence.used,
        remarks=recommend_words.remarks(
            listed,
            question,
            assumed,
            evidence.used,
            work,
            None if chosen is None else listed[place[chosen]],
            overflows=chosen is not None and bool(decision.outlook.overflows[chosen]),
        ),
        next_probe=_next_probe(decision, question, assumed) if next_probe else None,
    )
    return found.model_copy(update={"words": recommend_words.why(found)})


def _candidate(decision: Decision, row: int, currency: Currency, assumed: Assumptions) -> Candidate:
    ways, look = decision.ways, decision.outlook
    one = ways.of(row)
    low, expected, high = look.low, look.expected, look.high
    shares = {
        name: float(share[row]) for name, share in look.parts.items() if abs(share[row]) > ROUNDING
    }
    stalls = {
        name: share for name, share in shares.items() if name in STALLS and share > LEAST_SHARE
    }

    def interval(of: str, factor: float = 1.0) -> Interval:
        values: list[Array] = [getattr(jobs, of) for jobs in (expected, low, high)]
        estimate, least, most = (float(value[row]) * factor for value in values)
        return Interval(estimate=estimate, low=least, high=most)

    return Candidate(
        machine=one.name,
        cloud=one.cloud,
        nodes=int(ways.nodes[row]),
        gpu=ways.gpus[ways.instance[row]].key,
        gpus_per_node=one.gpus,
        provenance=Provenance.MEASURED if row in decision.belief.measured else Provenance.PREDICTED,
        price_usd_per_hour=one.spot_usd_per_hour if assumed.spot else one.price_usd_per_hour,
        price_region=one.spot_region if assumed.spot else one.price_region,
        price_date=one.spot_date if assumed.spot else one.price_date,
        first_epoch_seconds=interval("first_epoch_seconds"),
        later_epoch_seconds=interval("later_epoch_seconds"),
        hours=interval("hours"),
        device_hours=interval("hours", float(ways.workers[row])),
        usd=interval("cost") if currency == "usd" else None,
        parts=shares,
        largest_stall=max(stalls, key=lambda name: stalls[name], default=None),
    )


def _left_out(pool: Pool) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(reason=why, machines=names) for why, names in pool.left_out.items())


def _next_probe(decision: Decision, question: Question, assumed: Assumptions) -> NextProbe | None:
    found = probe.probes(decision.ways, decision.belief, decision.jobs, decision.rule, assumed)
    if found is None:
        return None
    best, row = found.best, int(found.rows[found.best])
    one, nodes = decision.ways.of(row), int(decision.ways.nodes[row])
    chosen = choose(decision.jobs, decision.rule)
    relative = 1 - math.exp(-float(found.saving[best]))
    avoided = 1 - math.exp(-float(found.overrun_avoided[best]))
    seconds = assumed.setup_seconds + assumed.profiling_seconds
    in_time = question.objective == "fastest"
    job = decision.jobs.hours if in_time else decision.jobs.cost
    saving = None if chosen is None else relative * float(job[chosen])
    cost = float(found.cost[best])
    pays = saving is not None and (in_time or saving > cost)
    made = NextProbe(
        machine=one.name,
        cloud=one.cloud,
        nodes=nodes,
        probe_seconds=seconds,
        probe_usd=cost if question.currency == "usd" else None,
        probe_device_hours=float(decision.ways.workers[row]) * seconds / 3600,
        expected_saving_usd=saving if question.currency == "usd" and not in_time else None,
        expected_saving_hours=saving if in_time else None,
        expected_saving_fraction=relative,
        expected_overrun_avoided_fraction=avoided,
        worth_it=(pays and relative > 0) or avoided > LEAST_SHARE,
        words="",
    )
    return made.model_copy(update={"words": recommend_words.probe(made)})


def _nothing_fits(
    question: Question, assumed: Assumptions, pool: Pool, none: Pool, known: ModelFacts
) -> Recommendation:
    largest = max(
        (candidates.gpu_of(one) for one in pool.instances), key=lambda gpu: gpu.memory_bytes
    )
    fits = memory.largest_batch(known, largest, question.dtype)
    needed = memory.peak_bytes(known, question.batch_per_worker, question.dtype)
    return Recommendation(
        schema=SCHEMA,
        id=secrets.token_hex(4),
        created=datetime.now(timezone.utc),
        stash=stash.__version__,
        status="infeasible",
        question=question,
        assumptions=assumed,
        interval_percent=INTERVAL_PERCENT,
        words=recommend_words.nothing_fits(question, needed, largest, fits),
        chosen=None,
        front=(),
        ties=(),
        candidates=(),
        left_out=_left_out(none),
        profiles=(),
        remarks=(),
    )
