"""What a folder of results says: slope, intercept, leakage, all in percent of an iteration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats
from truth_experiments import KINDS

SLOPE_BAR = 0.05
INTERCEPT_BAR = 1.0  # percent of an iteration

Result = dict[str, Any]


@dataclass(frozen=True)
class Fit:
    """Measured against true, in percent of an iteration, over the amounts of one kind."""

    amounts: int
    slope: float
    intercept: float
    intercept_half_width: float  # of the 95 % interval
    r_squared: float

    @property
    def met(self) -> bool:
        """Slope near one, intercept's interval narrow and around zero."""
        return (
            abs(self.slope - 1) <= SLOPE_BAR
            and self.intercept_half_width <= INTERCEPT_BAR
            and abs(self.intercept) <= self.intercept_half_width
        )


def sweep_of(results: Iterable[Result], kind: str) -> list[Result]:
    """The experiments that put in one kind of stall, by amount."""
    return sorted((r for r in results if r["kind"] == kind), key=lambda r: true_percent(r, kind))


def fit_of(sweep: Sequence[Result]) -> Fit:
    """Least squares over the amounts of a sweep."""
    kind = sweep[0]["kind"]
    found = stats.linregress(
        [true_percent(one, kind) for one in sweep], [measured_percent(one, kind) for one in sweep]
    )
    quantile = float(stats.t.ppf(0.975, len(sweep) - 2))
    return Fit(
        len(sweep),
        float(found.slope),
        float(found.intercept),
        quantile * float(found.intercept_stderr),
        float(found.rvalue) ** 2,
    )


def leakage(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """By injected and other stall: the largest error over the sweep, with its sign, in percent."""
    return {
        kind: {
            other: max((error_percent(one, other) for one in sweep), key=abs)
            for other in KINDS
            if other != kind and all(other in one["measured"] for one in sweep)
        }
        for kind in KINDS
        if (sweep := sweep_of(results, kind))
    }


def true_percent(result: Result, stall: str) -> float:
    """Of an iteration, by the closed form."""
    return float(100 * result["truth_seconds"][stall] / result["iteration_seconds"])


def measured_percent(result: Result, stall: str, end: str = "estimate") -> float:
    """Of an iteration, as measured."""
    return float(100 * result["measured"][stall][end] / result["iteration_seconds"])


def error_percent(result: Result, stall: str) -> float:
    """Measured less true."""
    return measured_percent(result, stall) - true_percent(result, stall)
