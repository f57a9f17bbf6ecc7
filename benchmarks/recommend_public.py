"""Would the recommendation have been right on machines that others have measured?

python benchmarks/recommend_public.py --data FOLDER

A case is one model, precision and batch that public sources have measured on several machines with
a price. The truth is the cost of a sample by those measurements; sources are matched, not mixed: a
machine measured by several counts with the median. It also prints how far predictions scatter,
which is what `advise/recommend_belief.py` takes its spreads from.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import predictor_fit
import public_rows
from public_rows import Row
from recommend_worlds import summary

from stash.advise import candidates
from stash.advise.candidates import Grid
from stash.advise.recommend import decide
from stash.advise.recommend_belief import Observation, Timing, believe
from stash.advise.recommend_choose import choose
from stash.advise.recommend_job import Work
from stash.advise.recommendation import Assumptions
from stash.hardware import catalog
from stash.hardware.catalog import Instance
from stash.predict import compute, times
from stash.predict.communication import Links
from stash.predict.constants import FITTED

MACHINES_PER_CASE = 3
READING_LOG_SD = 0.03
#: The second question: only machines at least this fast, against the fastest.
FAST_ENOUGH = 0.5
ASSUMED = Assumptions(setup_seconds=0.0, profiling_seconds=0.0)


@dataclass(frozen=True, eq=False)
class Case:
    """Machines on which one training was measured, with what a sample really cost."""

    name: str
    model: str
    length: int | None
    dtype: str
    batch: int
    machines: tuple[Instance, ...]
    seconds: np.ndarray  # measured, per iteration
    sources: tuple[str, ...]

    @property
    def rate(self) -> np.ndarray:
        return self.batch * np.array([one.gpus for one in self.machines]) / self.seconds

    @property
    def cost(self) -> np.ndarray:
        return prices(self) / self.rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    rows, _ = public_rows.read(parser.parse_args().data)
    found = cases(rows.values())
    several = [one for one in found if len({machine.gpu for machine in one.machines}) > 1]
    print(json.dumps({"cases": len(found), "with_several_kinds_of_gpu": len(several)}))
    for one in found:
        best = one.machines[int(np.argmin(one.cost))].name
        sources = ", ".join(one.sources)
        print(f"  {one.name}: {len(one.machines)} machines, best {best}; {sources}")
    for question, of, keep in (
        ("cheapest", found, 0.0),
        ("cheapest, several kinds of GPU", several, 0.0),
        ("cheapest at half of the fastest or more", found, FAST_ENOUGH),
    ):
        for rule, pick in RULES.items():
            regrets = [regret(one, pick, keep) for one in of]
            print(json.dumps({"question": question, "rule": rule, **summary(regrets)}))
    print_spreads(rows)


def cases(rows: Iterable[Row]) -> list[Case]:
    """Models, precisions and batches that were measured on enough machines that have a price."""
    grouped: dict[tuple, dict[tuple[str, int], list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.nodes == 1 and not row.has_slow_single and float(row.batch).is_integer():
            key = row.model, row.length, row.dtype, int(row.batch)
            grouped[key][row.gpu.key, row.gpus_per_node].append(row)
    found = []
    for (model, length, dtype, batch), machines in sorted(grouped.items(), key=str):
        priced = {kind: cheapest(*kind) for kind in machines}
        kinds = [kind for kind in machines if priced[kind] is not None]
        if len(kinds) < MACHINES_PER_CASE:
            continue
        found.append(
            Case(
                name=f"{model} {dtype} batch {batch}",
                model=model,
                length=length,
                dtype=dtype,
                batch=batch,
                machines=tuple(one for kind in kinds if (one := priced[kind]) is not None),
                seconds=np.array([np.median([r.seconds for r in machines[k]]) for k in kinds]),
                sources=tuple(sorted({r.source for kind in kinds for r in machines[kind]})),
            )
        )
    return found


def cheapest(gpu: str, gpus: int) -> Instance | None:
    """The cheapest machine of the catalog with these GPUs; retired ones have a list price, too."""
    alike = [
        one
        for one in catalog.instances()
        if one.gpu == gpu and one.gpus == gpus and one.price_usd_per_hour is not None
    ]
    return min(alike, key=lambda one: one.price_usd_per_hour, default=None)


def regret(one: Case, pick: Callable[[Case, np.ndarray], int], keep: float) -> float:
    kept = np.flatnonzero(one.rate >= keep * one.rate.max())
    return float(one.cost[pick(one, kept)] / one.cost[kept].min() - 1)


def recommended(one: Case, kept: np.ndarray, profiled: list[int]) -> int:
    ways = candidates.grid([one.machines[number] for number in kept], 1)
    seen = [_profile(one, ways, list(kept).index(number), number) for number in profiled]
    known = predictor_fit.facts_of(one.model, one.length)
    belief = believe(ways, known, one.batch, one.dtype, seen)
    work = Work(samples=10**6, epochs=1, batch=one.batch)
    decision = decide(ways, belief, work, ASSUMED, "usd", 1e9, None)
    chosen = choose(decision.jobs, decision.rule)
    assert chosen is not None
    return int(kept[chosen])


def _profile(one: Case, ways: Grid, row: int, number: int) -> Observation:
    timing = Timing(float(one.seconds[number]), READING_LOG_SD)
    alone = timing if one.machines[number].gpus == 1 else None
    return Observation(ways.gpus[row], one.batch, one.dtype, alone, ((row, timing),))


def without_profile(one: Case, kept: np.ndarray) -> int:
    return recommended(one, kept, [])


def after_one_profile(one: Case, kept: np.ndarray) -> int:
    """The machine that would be rented without a profile is measured first."""
    return recommended(one, kept, [without_profile(one, kept)])


def per_flops(one: Case, kept: np.ndarray) -> int:
    flops = np.array([_flops(machine, one.dtype) for machine in one.machines])
    return int(kept[np.argmin((prices(one) / flops)[kept])])


def per_gpu_hour(one: Case, kept: np.ndarray) -> int:
    gpus = np.array([machine.gpus for machine in one.machines])
    return int(kept[np.argmin((prices(one) / gpus)[kept])])


def prices(one: Case) -> np.ndarray:
    return np.array([machine.price_usd_per_hour for machine in one.machines])


def _flops(one: Instance, dtype: str) -> float:
    return candidates.gpu_of(one).flops[dtype] * one.gpus


RULES = {
    "stash, no profile": without_profile,
    "stash, one profile": after_one_profile,
    "cheapest per FLOPS": per_flops,
    "cheapest per GPU-hour": per_gpu_hour,
}


def print_spreads(rows: dict[str, Row]) -> None:
    """Of log(measured / predicted): inside groups, and between their means."""
    alone: Grouped = defaultdict(lambda: defaultdict(list))
    inside: Grouped = defaultdict(lambda: defaultdict(list))
    across: Grouped = defaultdict(lambda: defaultdict(list))
    for row in rows.values():
        if row.length is not None:
            continue  # sequences of a length of their own: another model than the zoo's
        if row.workers == 1 and not row.has_slow_single:
            alone[row.source, row.model, row.dtype][row.gpu.key].append(_error(row, None))
            continue
        single = rows.get(row.single or "")
        base = None if single is None or single.has_slow_single else single
        if row.nodes > 1:
            across[row.group, row.gpus_per_node][row.nodes].append(_error(row, base))
        elif base is not None:
            machine = row.gpu.key, row.gpus_per_node
            inside[row.source, row.model, row.dtype][machine].append(_error(row, base))
    for name, groups in (
        ("GPUs of one source, model and precision, from specifications", alone),
        ("machines of one source, model and precision, one GPU known", inside),
        ("numbers of nodes of one group, one GPU known where there is a row", across),
    ):
        print(json.dumps({"spread_among": name, **_spread(groups)}))


Grouped = dict[tuple, dict[object, list[float]]]


def _error(row: Row, base: Row | None) -> float:
    known = predictor_fit.facts_of(row.model, row.length)

    def layers(of: Row) -> compute.LayerSeconds:
        device = compute.devices([of.gpu], [of.dtype], FITTED)
        return compute.layer_seconds(known, np.array([of.batch]), device, FITTED)

    own = layers(row)
    if base is not None:
        own = own.scaled(np.array([base.seconds]) / layers(base).whole)
    sent = predictor_fit.sent_of(row.model, row.length, row.messages)
    together = times.iteration_seconds(
        own,
        sent,
        np.array([float(row.gpus_per_node)]),
        np.array([float(row.nodes)]),
        Links.of([row.inside], [row.between], FITTED),
        FITTED,
        bytes_per_element=row.bytes_per_element,
        overlap=row.overlap,
    ).together
    return float(np.log(row.seconds / together[0]))


def _spread(groups: Grouped) -> dict[str, float]:
    means = [np.array([np.mean(v) for v in one.values()]) for one in groups.values()]
    several = [one for one in means if len(one) > 1]
    freedom = sum(len(one) - 1 for one in several)
    within = sum(((one - one.mean()) ** 2).sum() for one in several) / max(1, freedom)
    return {
        "groups": len(several),
        "within_log_sd": round(float(np.sqrt(within)), 3),
        "between_log_sd": round(float(np.std([one.mean() for one in means])), 3),
    }


if __name__ == "__main__":
    main()
