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


#: By setting (was one GPU's time known?) and by what is predicted. *Over solo*: a step over one
#: worker's time, both from specifications, where some errors cancel.
BANDS: dict[tuple[str, str], tuple[Band, ...]] = {
    ("calibrated", "node"): (
        Band(0.1, 0.924, 1.48),
        Band(0.25, 0.852, 1.52),
        Band(1.0, 0.877, 2.41),
    ),
    ("calibrated", "nodes"): (
        Band(0.03, 0.821, 2.8),
        Band(0.1, 0.815, 2.99),
        Band(0.25, 0.737, 2.49),
        Band(1.0, 0.832, 2.47),
    ),
    ("blind", "solo"): (Band(1.0, 0.608, 2.82),),
    ("blind", "node"): (
        Band(0.1, 0.489, 2.11),
        Band(0.25, 0.526, 2.15),
        Band(1.0, 0.724, 3.55),
    ),
    ("blind", "nodes"): (
        Band(0.1, 0.353, 2.76),
        Band(0.25, 0.351, 3.35),
        Band(1.0, 0.784, 2.48),
    ),
    ("blind over solo", "node"): (
        Band(0.1, 0.927, 1.36),
        Band(1.0, 0.846, 1.52),
    ),
    ("blind over solo", "nodes"): (
        Band(0.1, 0.845, 2.8),
        Band(0.25, 0.815, 3.0),
        Band(1.0, 0.683, 2.06),
    ),
}
#: Which setting's bounds hold for a step over `solo`: where that is known, they are the step's own.
OVER_SOLO = {"calibrated": "calibrated", "blind": "blind over solo"}


def band(setting: str, kind: str, share: float) -> Band:
    """The bounds for one prediction."""
    bands = BANDS[setting, kind]
    return next((one for one in bands if share <= one.up_to_share), bands[-1])
