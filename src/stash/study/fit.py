"""`L * tau + G / B`: what a message and what a byte costs on a link, fitted to a micro study.

The paper's own model. It knows no overlap, so both constants are of the exchange that computing
does not hide. L counts what is really sent (buckets), and beside it tensors, as the paper does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from stash.results.document import Interval
from stash.study.document import CellNumbers, Fit, StudiedModel

CONFIDENCE = 0.95
#: Two constants need a third cell before anything can be said of them.
FEWEST = 3
COUNTS: tuple[Literal["buckets", "tensors"], ...] = ("buckets", "tensors")

Point = tuple[StudiedModel, CellNumbers]


def fits(by_machine: Mapping[str, Sequence[Point]], byte_scale: Mapping[str, float]) -> list[Fit]:
    """Two fits a link: by messages and by tensors."""
    found = []
    for machine, points in by_machine.items():
        stall = _stall([numbers for _, numbers in points])
        if stall is None:
            continue
        used = [(model, one) for model, one in points if stall in one.stalls]
        found += [
            one
            for count in COUNTS
            if (one := _fit(machine, stall, count, used, byte_scale.get(machine, 1.0))) is not None
        ]
    return found


def _stall(numbers: Sequence[CellNumbers]) -> str | None:
    """The purest measure of exchange that the cells have."""
    for name in ("network", "communication", "interconnect"):
        if sum(name in one.stalls for one in numbers) >= FEWEST:
            return name
    return None


def _fit(
    machine: str,
    stall: str,
    count: Literal["buckets", "tensors"],
    points: Sequence[Point],
    scale: float,
) -> Fit | None:
    if len(points) < FEWEST:
        return None
    sent = [m.messages if count == "buckets" else m.tensors for m, _ in points]
    matrix = np.array(
        [[n, m.gradient_bytes * scale] for n, (m, _) in zip(sent, points, strict=True)]
    )
    seconds = np.array([o.stalls[stall].seconds_per_iteration.estimate for _, o in points])
    size = matrix.max(axis=0)  # columns of like size, or the small one is lost in rounding
    found, _, rank, _ = np.linalg.lstsq(matrix / size, seconds, rcond=None)
    if rank < 2:
        return None
    left = seconds - matrix / size @ found
    free = len(points) - 2
    covariance = np.linalg.inv((matrix / size).T @ (matrix / size)) * (left @ left) / free
    half = stdtrit(free, (1 + CONFIDENCE) / 2) * np.sqrt(np.diag(covariance))
    per_message, per_byte = (
        Interval(estimate=float(v), low=float(v - h), high=float(v + h))
        for v, h in zip(found / size, half / size, strict=True)
    )
    spread = seconds - seconds.mean()
    return Fit(
        machine=machine,
        stall=stall,
        messages=count,
        cells=len(points),
        seconds_per_message=per_message,
        seconds_per_byte=per_byte,
        explained=float(1 - (left @ left) / (spread @ spread)) if spread.any() else 0.0,
    )
