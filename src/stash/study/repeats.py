"""Repeats of a cell as one: averaged over runs, as the paper's are, with the runs' own scatter."""

from __future__ import annotations

from collections.abc import Sequence

from stash.results.document import Interval
from stash.results.statistics import plain_mean
from stash.study.document import Cell, CellNumbers, Study, StudyStall


def averaged(study: Study) -> list[tuple[Cell, CellNumbers]]:
    """Every cell that has numbers once, in the study's order."""
    runs: dict[tuple[str, int, str], list[tuple[Cell, CellNumbers]]] = {}
    for cell, numbers in study.done():
        runs.setdefault((cell.model, cell.batch, cell.machine), []).append((cell, numbers))
    return [(same[0][0], _one([numbers for _, numbers in same])) for same in runs.values()]


def _one(same: Sequence[CellNumbers]) -> CellNumbers:
    first = same[0]
    if len(same) == 1:
        return first
    steps = set.intersection(*(set(one.steps) for one in same))
    stalls = set.intersection(*(set(one.stalls) for one in same))
    return first.model_copy(
        update={
            "steps": {k: _mean([o.steps[k] for o in same]) for k in first.steps if k in steps},
            "stalls": {
                name: _stall([one.stalls[name] for one in same])
                for name in first.stalls
                if name in stalls
            },
            "epoch_seconds": _mean([one.epoch_seconds for one in same]),
            "epoch_usd": _mean_of_known([one.epoch_usd for one in same]),
        }
    )


def _stall(same: Sequence[StudyStall]) -> StudyStall:
    return same[0].model_copy(
        update={
            "seconds_per_iteration": _mean([one.seconds_per_iteration for one in same]),
            "percent": _mean_of_known([one.percent for one in same]),
        }
    )


def _mean_of_known(same: Sequence[Interval | None]) -> Interval | None:
    known = [one for one in same if one is not None]
    return _mean(known) if len(known) == len(same) else None


def _mean(same: Sequence[Interval]) -> Interval:
    found = plain_mean([[one.estimate for one in same]])
    return Interval(estimate=found.value, low=found.low, high=found.high)
