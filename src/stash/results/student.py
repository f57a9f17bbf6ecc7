"""Quantiles of Student's t for whole degrees of freedom, exact by its finite series.

Reports need nothing else of scipy, whose import takes a third of a second.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

#: Newton's steps converge from below, each doubling the digits that are right.
MAX_STEPS = 100
EPSILON = 1e-15


@lru_cache(maxsize=4096)
def quantile(probability: float, degrees_of_freedom: int) -> float:
    """The value that a t variable stays below with this probability."""
    if probability < 0.5:
        return -quantile(1 - probability, degrees_of_freedom)
    if degrees_of_freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if degrees_of_freedom == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    t = NormalDist().inv_cdf(probability)
    for _ in range(MAX_STEPS):
        step = (probability - below(t, degrees_of_freedom)) / _density(t, degrees_of_freedom)
        t += step
        if abs(step) <= EPSILON * max(1.0, t):
            break
    return t


def below(t: float, degrees_of_freedom: int) -> float:
    """The probability of a value below t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees_of_freedom))
    square = math.cos(angle) ** 2
    odd = degrees_of_freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for number in range(2 + odd, degrees_of_freedom + 1, 2):
        total += term
        term *= square * (number - 1) / number
    within = math.sin(angle) * total
    if odd:
        within = 2 / math.pi * (angle + within)
    return (1 + within) / 2


def _density(t: float, degrees_of_freedom: int) -> float:
    half = (degrees_of_freedom + 1) / 2
    scale = math.lgamma(half) - math.lgamma(degrees_of_freedom / 2)
    flat = math.exp(scale) / math.sqrt(degrees_of_freedom * math.pi)
    return flat * math.pow(1 + t * t / degrees_of_freedom, -half)
