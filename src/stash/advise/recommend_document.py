"""A decision as a document: every way with its numbers, the choice, and what to measure next."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from datetime import datetime, timezone

import numpy as np

import stash
from stash.advise import probe, recommend_words
from stash.advise.candidates import Grid, Pool
from stash.advise.recommend_belief import Belief
from stash.advise.recommend_choose import Rule, choose, front, ties
from stash.advise.recommend_evidence import Evidence
from stash.advise.recommend_job import SECONDS_PER_HOUR, Jobs, Outlook, Work
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
from stash.hardware.gpus import Gpu
from stash.predict import memory
from stash.predict.api import host_of
from stash.predict.facts import Array, ModelFacts
from stash.predict.uncertainty import INTERVAL_PERCENT
from stash.results.document import Interval
from stash.results.profile import Provenance

#: Waiting that a reader can do something about; the rest of the hours is work or overhead.
STALLS = ("interconnect", "scale-out", "prep", "fetch", "interruptions")
#: Less than a percent decides nothing; less than the other is an artefact of sums.
LEAST_SHARE, ROUNDING = 0.01, 1e-9


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


def document(
    question: Question,
    assumed: Assumptions,
    pool: Pool,
    decision: Decision,
    evidence: Evidence,
    work: Work,
    *,
    next_probe: bool,
) -> Recommendation:
    """The document of one decision."""
    jobs = decision.jobs
    finite = np.flatnonzero(np.isfinite(jobs.hours) & np.isfinite(decision.outlook.high.hours))
    order = finite[np.lexsort((jobs.hours[finite], jobs.cost[finite]))]
    place = {int(row): position for position, row in enumerate(order)}
    listed = tuple(_candidate(decision, int(row), question.currency, assumed) for row in order)
    chosen = choose(jobs, decision.rule)
    level = [] if chosen is None else ties(jobs, decision.belief, decision.rule, chosen)
    found = _empty(question, assumed, pool).model_copy(
        update={
            "status": "infeasible" if chosen is None else "chosen",
            "knee_usd_per_hour": decision.rule.hour_worth or None,
            "chosen": None if chosen is None else place[chosen],
            "front": tuple(place[row] for row in front(jobs) if row in place),
            "ties": tuple(place[row] for row in level if row in place),
            "candidates": listed,
            "profiles": evidence.used,
            "remarks": recommend_words.remarks(
                listed,
                question,
                assumed,
                None if chosen is None else listed[place[chosen]],
                _basis(decision, evidence, work, chosen),
            ),
            "next_probe": _next_probe(decision, question, assumed) if next_probe else None,
        }
    )
    return found.model_copy(update={"words": recommend_words.why(found)})


def _basis(
    decision: Decision, evidence: Evidence, work: Work, chosen: int | None
) -> recommend_words.Basis:
    hosts = [host_of(one, work.storage_bytes_per_second) for one in decision.ways.instances]
    return recommend_words.Basis(
        calibrated=bool(evidence.observations),
        source=work.source,
        overflows=chosen is not None and bool(decision.outlook.overflows[chosen]),
        unknown_disks=sum(one.storage_bytes_per_second is None for one in hosts),
    )


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
    row, cost = int(found.rows[found.best]), float(found.cost[found.best])
    one, strongest = decision.ways.of(row), int(found.rows[found.strongest])
    relative = 1 - math.exp(-float(found.saving[found.best]))
    avoided = 1 - math.exp(-float(found.overrun_avoided[found.best]))
    saving = _of_the_job(decision, relative)
    seconds = assumed.setup_seconds + assumed.profiling_seconds
    in_usd = question.currency == "usd"
    kept = {"cheapest": "usd", "fastest": "hours", "knee": ""}[question.objective]
    pays = saving is not None and relative > 0 and (kept == "hours" or saving > cost)
    made = NextProbe(
        machine=one.name,
        cloud=one.cloud,
        nodes=int(decision.ways.nodes[row]),
        probe_seconds=seconds,
        probe_usd=cost if in_usd else None,
        probe_device_hours=float(decision.ways.workers[row]) * seconds / SECONDS_PER_HOUR,
        expected_saving_usd=saving if kept == "usd" and in_usd else None,
        expected_saving_hours=saving if kept == "hours" else None,
        expected_saving_fraction=relative,
        expected_overrun_avoided_fraction=avoided,
        strongest_machine=decision.ways.of(strongest).name,
        strongest_nodes=int(decision.ways.nodes[strongest]),
        strongest_usd=float(found.cost[found.strongest]) if in_usd else None,
        worth_it=pays or avoided > LEAST_SHARE,
        words="",
    )
    return made.model_copy(update={"words": recommend_words.probe(made)})


def _of_the_job(decision: Decision, fraction: float) -> float | None:
    """A fraction of what the rule counts for the chosen way: hours, cost, or both at the knee."""
    chosen = choose(decision.jobs, decision.rule)
    if chosen is None:
        return None
    scores = decision.rule.score(decision.jobs.hours, decision.jobs.cost)
    return fraction * math.exp(float(scores[chosen]))


def nothing_fits(
    question: Question, assumed: Assumptions, pool: Pool, known: ModelFacts, largest: Gpu
) -> Recommendation:
    """No GPU in question holds the model; the largest one tells which batch would fit."""
    fits = memory.largest_batch(known, largest, question.dtype)
    needed = memory.peak_bytes(known, question.batch_per_worker, question.dtype)
    words = recommend_words.nothing_fits(question, needed, largest, fits)
    return _empty(question, assumed, pool).model_copy(update={"words": words})


def _empty(question: Question, assumed: Assumptions, pool: Pool) -> Recommendation:
    """A document that has chosen nothing from nothing yet."""
    return Recommendation(
        schema=SCHEMA,
        id=secrets.token_hex(4),
        created=datetime.now(timezone.utc),
        stash=stash.__version__,
        status="infeasible",
        question=question,
        assumptions=assumed,
        interval_percent=INTERVAL_PERCENT,
        words="",
        chosen=None,
        front=(),
        ties=(),
        candidates=(),
        left_out=_left_out(pool),
        profiles=(),
        remarks=(),
    )
