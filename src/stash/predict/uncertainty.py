"""How far predictions were off where others had measured: the intervals of every prediction.

The factors are quantiles of measured over predicted time in fits that left the source out
(`benchmarks/validate_predictor.py` prints them). They are wider where more of the time is exchange.
"""

from __future__ import annotations

from dataclasses import dataclass

INTERVAL_PERCENT = 90.0


@dataclass(frozen=True)
class Band:
    """Bounds of measured over predicted time, for predictions up to a share of exchange."""

    up_to_share: float  # of the predicted iteration that is exchange
    low: float
    high: float


#: By setting (was one GPU's time known?) and by what is predicted.
BANDS: dict[tuple[str, str], tuple[Band, ...]] = {
    ("calibrated", "node"): (
        Band(0.03, 0.975, 1.18),
        Band(0.1, 0.908, 1.24),
        Band(0.25, 0.877, 1.47),
        Band(1.0, 0.872, 1.92),
    ),
    ("calibrated", "nodes"): (
        Band(0.03, 0.86, 2.37),
        Band(0.1, 0.834, 1.71),
        Band(0.25, 0.806, 1.82),
        Band(1.0, 0.86, 1.93),
    ),
    ("blind", "solo"): (Band(1.0, 0.635, 1.87),),
    ("blind", "node"): (
        Band(0.03, 0.461, 1.79),
        Band(0.1, 0.517, 1.67),
        Band(0.25, 0.487, 1.83),
        Band(1.0, 0.855, 3.14),
    ),
    ("blind", "nodes"): (
        Band(0.03, 0.368, 2.08),
        Band(0.1, 0.413, 2.34),
        Band(0.25, 0.557, 2.11),
        Band(1.0, 0.846, 1.94),
    ),
}


def band(setting: str, kind: str, share: float) -> Band:
    """The bounds for one prediction."""
    bands = BANDS[setting, kind]
    return next((one for one in bands if share <= one.up_to_share), bands[-1])
