"""How a stall is estimated from the rounds of a run, and how sure that is.

Inputs are one number per round, grouped by launch. The estimate is a 20 % trimmed mean with Yuen's
t-type interval; where trimming hides something that really happens, the plain mean leads. Of three
rounds and more at least one is left out at each end: a single one may be spoiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stash.results.student import quantile

Launches = Sequence[Sequence[float]]

TRIM = 0.2
#: With fewer rounds than this, what is kept is too little for Yuen's interval. It is then that of
#: the mean, made wider by what a median of normal values (3 or 4 of them) scatters beyond a mean.
FEW_ROUNDS = 5
MEDIAN_OVER_MEAN = {3: 1.1602, 4: 1.0921}
CONFIDENCE = 0.95
POWER = 0.80
#: Mean and trimmed mean part when they differ by this many standard errors of their difference
#: (2 finds 80 ms on every 4th iteration within 20 rounds, where 3 needs 36; by simulation it calls
#: 2 to 5 % of steady stalls intermittent, whose intervals stay right)...
PARTED_STANDARD_ERRORS = 2.0
#: ...and by more than this fraction of an iteration: smaller gaps never change what a user does.
PARTED_FRACTION = 0.01


@dataclass(frozen=True)
class Estimate:
    """A value and how sure it is. Without two rounds there is no interval, only a value."""

    value: float
    mean: float
    intermittent: bool
    standard_error: float | None
    degrees_of_freedom: int

    @property
    def half_width(self) -> float | None:
        """Half of the 95 % interval."""
        return None if self.standard_error is None else self._t(CONFIDENCE) * self.standard_error

    @property
    def low(self) -> float | None:
        """Lower end of the 95 % interval."""
        return None if self.half_width is None else self.value - self.half_width

    @property
    def high(self) -> float | None:
        """Upper end of the 95 % interval."""
        return None if self.half_width is None else self.value + self.half_width

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero. Without an interval nothing is significant."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    @property
    def detectable(self) -> float | None:
        """The smallest true value that this run would have called significant with 80 % power."""
        if self.standard_error is None:
            return None
        power_quantile = quantile(POWER, self.degrees_of_freedom)
        return (self._t(CONFIDENCE) + power_quantile) * self.standard_error

    def _t(self, confidence: float) -> float:
        return quantile((1 + confidence) / 2, self.degrees_of_freedom)


def estimate(launches: Launches, *, iteration_seconds: float | None = None) -> Estimate:
    """Estimate the value behind one number per round.

    `iteration_seconds` is what an intermittent part is compared with; without it, none is sought.
    """
    pooled = np.concatenate([np.asarray(rounds, dtype=float) for rounds in launches])
    intermittent = iteration_seconds is not None and _has_parted(pooled, iteration_seconds)
    return _estimate(launches, use_mean=intermittent)


def plain_mean(launches: Launches) -> Estimate:
    """The same for sums over many iterations, such as an epoch, where nothing may be trimmed."""
    return _estimate(launches, use_mean=True, call_intermittent=False)


def ratio(
    numerator: Launches,
    denominator: Launches,
    *,
    intermittent: bool = False,
    base_intermittent: bool = False,
) -> Estimate:
    """Estimate numerator over denominator, measured in the same rounds (linearised interval).

    Either part is taken by its plain mean where it is intermittent: all shares of one iteration
    then have one base, and a rare long wait is a share of the time that it really takes.
    """
    top = _estimate(numerator, use_mean=intermittent)
    bottom = _estimate(denominator, use_mean=base_intermittent)
    value = top.value / bottom.value
    residuals = [
        [(t - value * b) / bottom.value for t, b in zip(tops, bottoms, strict=True)]
        for tops, bottoms in zip(numerator, denominator, strict=True)
    ]
    spread = _estimate(residuals, use_mean=intermittent or base_intermittent)
    return Estimate(
        value=value,
        mean=top.mean / bottom.mean,
        intermittent=intermittent,
        standard_error=spread.standard_error,
        degrees_of_freedom=spread.degrees_of_freedom,
    )


def prediction_half_width(
    launches: Launches, *, iterations_per_block: float, iterations: float
) -> float | None:
    """Half-width for the mean of future iterations: our own doubt plus their scatter.

    They run in a launch of their own, so several launches add the scatter between launches.
    """
    center = plain_mean(launches)
    if center.standard_error is None:
        return None
    arrays = [np.asarray(rounds, dtype=float) for rounds in launches if len(rounds)]
    freedom = sum(len(rounds) - 1 for rounds in arrays)
    squares = sum(float(np.sum((rounds - np.mean(rounds)) ** 2)) for rounds in arrays)
    within = squares / freedom if freedom else 0.0
    between = float(np.var([np.mean(rounds) for rounds in arrays], ddof=1)) if arrays[1:] else 0.0
    variance = center.standard_error**2 + between + within * iterations_per_block / iterations
    return quantile((1 + CONFIDENCE) / 2, center.degrees_of_freedom) * math.sqrt(variance)


def trimmed_mean(values: Sequence[float] | np.ndarray) -> float:
    """The mean without the lowest and the highest 20 %; of three or four values, their median."""
    ordered = np.sort(np.asarray(values, dtype=float))
    cut = _cut(len(ordered))
    return float(np.mean(ordered[cut : len(ordered) - cut]))


def _estimate(
    launches: Launches, *, use_mean: bool, call_intermittent: bool | None = None
) -> Estimate:
    arrays = [np.asarray(rounds, dtype=float) for rounds in launches if len(rounds)]
    if not arrays:
        raise ValueError("an estimate needs at least one round")
    intermittent = use_mean if call_intermittent is None else call_intermittent
    center = _mean if use_mean else trimmed_mean
    centers = [center(array) for array in arrays]
    if len(arrays) > 1:
        # Launches differ by more than their rounds tell (placement, start-up): they are the unit.
        error = float(np.std(centers, ddof=1)) / math.sqrt(len(centers))
        freedom = len(centers) - 1
    else:
        error_or_none, freedom = _standard_error(arrays[0], use_mean=use_mean)
        if error_or_none is None:
            return Estimate(centers[0], centers[0], intermittent, None, 0)
        error = error_or_none
    return Estimate(
        value=float(np.mean(centers)),
        mean=float(np.mean([_mean(array) for array in arrays])),
        intermittent=intermittent,
        standard_error=error,
        degrees_of_freedom=freedom,
    )


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values))


def _standard_error(values: np.ndarray, *, use_mean: bool) -> tuple[float | None, int]:
    count = len(values)
    if count < 2:
        return None, 0
    if use_mean or count < FEW_ROUNDS:
        wider = 1.0 if use_mean else MEDIAN_OVER_MEAN.get(count, 1.0)
        return wider * float(np.std(values, ddof=1)) / math.sqrt(count), count - 1
    spread = float(np.std(_winsorised(values), ddof=1))
    kept = count - 2 * _cut(count)
    # Yuen (1974): the winsorised sum of squares over the degrees of freedom of what was kept.
    return spread * math.sqrt((count - 1) / (kept * (kept - 1))), kept - 1


def _cut(count: int) -> int:
    """How many rounds are left out at each end."""
    return max(int(TRIM * count), 1 if count > 2 else 0)


def _winsorised(values: np.ndarray) -> np.ndarray:
    cut = _cut(len(values))
    ordered = np.sort(values)
    clipped: np.ndarray = np.clip(values, ordered[cut], ordered[len(values) - 1 - cut])
    return clipped


def _has_parted(values: np.ndarray, iteration_seconds: float) -> bool:
    """Whether mean and trimmed mean differ by more than chance and by more than a trifle."""
    count = len(values)
    if count < FEW_ROUNDS:
        return False
    gap = _mean(values) - trimmed_mean(values)
    influence = values - _winsorised(values) * count / (count - 2 * _cut(count))
    error = float(np.std(influence, ddof=1)) / math.sqrt(count)
    return (
        abs(gap) > PARTED_FRACTION * iteration_seconds and abs(gap) > PARTED_STANDARD_ERRORS * error
    )
