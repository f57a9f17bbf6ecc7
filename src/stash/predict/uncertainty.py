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
    ("calibrated", "node"): (Band(1.0, 0.8, 1.25),),
    ("calibrated", "nodes"): (Band(1.0, 0.7, 1.4),),
    ("blind", "solo"): (Band(1.0, 0.6, 1.6),),
    ("blind", "node"): (Band(1.0, 0.6, 1.6),),
    ("blind", "nodes"): (Band(1.0, 0.5, 2.0),),
}


def band(setting: str, kind: str, share: float) -> Band:
    """The bounds for one prediction."""
    bands = BANDS[setting, kind]
    return next((one for one in bands if share <= one.up_to_share), bands[-1])
