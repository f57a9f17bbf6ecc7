"""How far predictions were off where others had measured: the intervals of every prediction.

The factors are where a source that nobody has seen is expected to lie, by errors of fits that left
the source out (`benchmarks/validate_predictor.py` makes them). Changes when errors are combined in
another way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

INTERVAL_PERCENT = 90.0
#: From one error alone to the other alone, along a quarter of an ellipse.
QUARTER = np.linspace(0.0, np.pi / 2, 91)


@dataclass(frozen=True)
class Band:
    """Bounds of measured over predicted time, on both sides of 1."""

    low: float
    high: float


#: By setting (was one GPU's time known?) and by what is predicted. *Over solo*: a step over one
#: worker's time, both from specifications, where some errors cancel.
BANDS: dict[tuple[str, str], Band] = {
    ("calibrated", "node"): Band(0.82, 1.35),
    ("calibrated", "nodes"): Band(0.748, 1.77),
    ("blind", "solo"): Band(0.56, 2.03),
    ("blind over solo", "node"): Band(0.806, 1.35),
    ("blind over solo", "nodes"): Band(0.723, 1.67),
}
#: Which setting's bounds hold for a step over `solo`: where that is known, they are the step's own.
OVER_SOLO = {"calibrated": "calibrated", "blind": "blind over solo"}


def band(setting: str, kind: str, bands: Mapping[tuple[str, str], Band] = BANDS) -> Band:
    """The bounds for one prediction.

    A step from specifications is one worker's time times what the others add: both may be off.
    """
    if setting == "blind" and kind != "solo":
        return product(bands["blind", "solo"], bands["blind over solo", kind])
    return bands[setting, kind]


def product(one: Band, other: Band) -> Band:
    """Of two factors with errors of their own: squares of logarithms add."""
    return Band(
        low=math.exp(-math.hypot(math.log(one.low), math.log(other.low))),
        high=math.exp(math.hypot(math.log(one.high), math.log(other.high))),
    )


def stall_bounds(estimate: float, low: float, high: float, solo: Band) -> tuple[float, float]:
    """Of a stall, given in units of one worker's time, whose own error `solo` bounds.

    The same rule for what may be negative: as far as both errors reach together, the nearer one of
    them is to its bound the farther the other is from its own.
    """
    off = np.cos(QUARTER)
    factor = np.exp(np.outer(np.log([solo.low, solo.high]), np.sin(QUARTER)))
    lowest = ((estimate + off * (low - estimate)) * factor).min()
    highest = ((estimate + off * (high - estimate)) * factor).max()
    return float(lowest), float(highest)
