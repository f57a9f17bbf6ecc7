"""`stash.recommend`: what to rent for a job, under a deadline, a budget, or neither.

The story of one recommendation: which machines come into question, what is believed of their
iterations, what the whole job takes and costs on each, which one to take, and why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stash.advise import candidates
from stash.advise.candidates import Grid, Pool
from stash.advise.recommend_belief import Belief, believe
from stash.advise.recommend_choose import Rule, rule_for
from stash.advise.recommend_document import Decision, document, nothing_fits
from stash.advise.recommend_evidence import Evidence, gather
from stash.advise.recommend_job import SECONDS_PER_HOUR, Work, outlook
from stash.advise.recommend_words import hours
from stash.advise.recommendation import Assumptions, Currency, Question, Recommendation
from stash.errors import UsageError
from stash.hardware import catalog as machines
from stash.hardware.gpus import Gpu
from stash.predict import facts, pipeline
from stash.predict.facts import ModelFacts
from stash.results.document import from_options
from stash.results.profile import Profile

#: Every way is a row of the decision, with a column for whatever its time may be off by.
MAX_NODES = 128
#: A thousand years, beyond which numbers are somebody's slip.
MOST_HOURS = 1e7
#: Fields of a question by their options.
ASKED = {
    "samples": "--samples",
    "epochs": "--epochs",
    "batch_per_worker": "--batch-size",
    "data_bytes": "--data-size in bytes",
    "samples_per_second_per_core": "--samples-per-core",
    "deadline_hours": "--deadline in hours",
    "budget_usd": "--budget",
    "clouds": "--clouds",
    "excluded": "--exclude",
    "catalog": "--catalog",
}


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
    question = from_options(
        Question,
        ASKED,
        {
            "workload": known.name,
            "samples": samples,
            "epochs": epochs,
            "batch_per_worker": batch,
            "dtype": precision,
            "data_bytes": None if data_bytes is None else float(data_bytes),
            "samples_per_second_per_core": samples_per_core,
            "deadline_hours": deadline_hours,
            "budget_usd": budget_usd,
            "clouds": tuple(clouds),
            "excluded": tuple(exclude),
            "max_nodes": max_nodes,
            "catalog": catalog,
            "retired": retired,
            "objective": Rule(deadline_hours, budget_usd).objective,
            "currency": currency,
        },
    )
    if not priced.instances:
        largest = max((candidates.gpu_of(one) for one in pool.instances), key=_memory)
        return nothing_fits(question, assumed, priced, known, largest)
    _check_budget(budget_usd, currency)
    return _answer(question, assumed, priced, known, profiles, next_probe=next_probe)


def _answer(
    question: Question,
    assumed: Assumptions,
    pool: Pool,
    known: ModelFacts,
    profiles: Sequence[Profile],
    *,
    next_probe: bool,
) -> Recommendation:
    ways = candidates.grid(pool.instances, question.max_nodes)
    batch, dtype = question.batch_per_worker, question.dtype
    evidence = gather(profiles, known, ways, batch, dtype)
    belief = believe(ways, known, batch, dtype, evidence.observations)
    work = Work(
        samples=question.samples,
        epochs=question.epochs,
        batch=batch,
        source=_source(evidence, question),
        storage_bytes_per_second=evidence.storage_bytes_per_second,
        data=evidence.data,
    )
    deadline, budget = question.deadline_hours, question.budget_usd
    decision = decide(ways, belief, work, assumed, question.currency, deadline, budget)
    _check_length(decision)
    return document(question, assumed, pool, decision, evidence, work, next_probe=next_probe)


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
            f"The deadline of {hours(deadline)} is over before training begins: "
            f"setting up takes {hours(setup)} (--setup)."
        )


def _check_budget(budget: float | None, currency: Currency) -> None:
    if currency == "device-hours" and budget is not None:
        raise UsageError(
            "A budget in dollars needs prices, and no machine in question has one. Leave --budget "
            "out to decide by device-hours, or give prices with `stash catalog import FILE`."
        )


def _check_length(decision: Decision) -> None:
    shortest = float(decision.jobs.training_seconds.min()) / SECONDS_PER_HOUR
    if not shortest <= MOST_HOURS:
        raise UsageError(
            f"On the fastest machine this job would train for {shortest:.3g} hours: longer than "
            "any machine is rented. Check --samples, --epochs, --data-size and --samples-per-core."
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


def _source(evidence: Evidence, asked: Question) -> pipeline.Source | None:
    """What is known of the data: what the user says stands before what a profile has seen."""
    seen = evidence.source
    prepared = asked.samples_per_second_per_core
    if prepared is None and seen is not None:
        prepared = seen.preprocessing_per_core
    size = None if seen is None else seen.bytes_per_sample
    if asked.data_bytes is not None:
        size = asked.data_bytes / asked.samples
    if prepared is None and size is None:
        return None
    return pipeline.Source(
        preprocessing_per_core=math.inf if prepared is None else prepared,
        bytes_per_sample=size,
        samples=asked.samples,
    )


def _memory(gpu: Gpu) -> int:
    return gpu.memory_bytes
