"""Which way to take: cheapest in time, fastest for the money, or the knee; the front; ties.

Changes when the rule of choosing does. A page that lets a reader move deadline and budget follows
the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stash.advise.candidates import Flags, Positions
from stash.advise.recommend_belief import BAND_QUANTILE, Belief
from stash.advise.recommend_job import SECONDS_PER_HOUR, Jobs
from stash.advise.recommendation import Objective
from stash.predict.facts import Array

#: Ways that differ by less cannot be told apart by anyone.
SAME_FRACTION = 0.01


@dataclass(frozen=True)
class Rule:
    """What the user can wait and pay, and so which way is best."""

    deadline_hours: float | None = None
    budget: float | None = None
    hour_worth: float = 0.0  # at the knee only: what an hour less may cost

    @property
    def objective(self) -> Objective:
        """Cheapest within a deadline, fastest within a budget alone, the knee without either."""
        if self.deadline_hours is not None:
            return "cheapest"
        return "knee" if self.budget is None else "fastest"

    def keep(self, hours: Array, cost: Array) -> Flags:
        kept: Flags = np.isfinite(hours)
        if self.deadline_hours is not None:
            kept &= hours <= self.deadline_hours
        if self.budget is not None:
            kept &= cost <= self.budget
        return kept

    def score(self, hours: Array, cost: Array) -> Array:
        """Less is better, as a logarithm."""
        with np.errstate(invalid="ignore"):
            counted = hours if self.objective == "fastest" else cost + self.hour_worth * hours
            found: Array = np.log(counted)
        return found


def rule_for(jobs: Jobs, deadline_hours: float | None, budget: float | None) -> Rule:
    """The user's limits; without any, an hour is worth what it costs on average along the front.

    That is the point of the front farthest from the straight line between its ends.
    """
    if deadline_hours is not None or budget is not None:
        return Rule(deadline_hours, budget)
    rows = front(jobs)
    if not rows:
        return Rule()
    cheapest, fastest = rows[0], rows[-1]
    saved = jobs.hours[cheapest] - jobs.hours[fastest]
    if saved <= SAME_FRACTION * jobs.hours[cheapest]:
        return Rule()  # none is faster by anything that counts: the cheapest
    return Rule(hour_worth=float((jobs.cost[fastest] - jobs.cost[cheapest]) / saved))


def choose(jobs: Jobs, rule: Rule) -> int | None:
    """The best row within the limits, if there is one."""
    kept = rule.keep(jobs.hours, jobs.cost)
    if not kept.any():
        return None
    scores = np.where(kept, rule.score(jobs.hours, jobs.cost), np.inf)
    best = np.flatnonzero(scores == scores.min())
    # Of equals, the one that is also better at what was not asked for.
    return int(min(best, key=lambda row: (jobs.cost[row], jobs.hours[row])))


def front(jobs: Jobs) -> list[int]:
    """Rows that no other row beats in both time and cost, cheapest first."""
    order = np.lexsort((jobs.hours, jobs.cost))
    found: list[int] = []
    fastest = np.inf
    for row in order:
        if jobs.hours[row] < fastest:
            found.append(int(row))
            fastest = jobs.hours[row]
    return found


def ties(jobs: Jobs, belief: Belief, rule: Rule, chosen: int) -> list[int]:
    """Rows that may well be better than the chosen one by what is known, best first.

    Errors that two rows share (of the model, of the GPU) do not tell them apart, so only the rest
    counts.
    """
    scores = rule.score(jobs.hours, jobs.cost)
    behind = scores - scores[chosen]
    apart = np.maximum(BAND_QUANTILE * difference_sd(jobs, belief, chosen), SAME_FRACTION)
    level = rule.keep(jobs.hours, jobs.cost) & (behind <= apart)
    level[chosen] = False
    return [int(row) for row in np.flatnonzero(level)[np.argsort(scores[level], kind="stable")]]


def difference_sd(jobs: Jobs, belief: Belief, chosen: int) -> Array:
    """Of the difference of two scores, every row against the chosen one."""
    weight = sensitivity(jobs)
    rows: Positions = np.arange(len(jobs.hours), dtype=np.intp)
    shared = belief.covariance(rows, np.array([chosen], dtype=np.intp))[:, 0]
    own = weight**2 * belief.variance
    variance = own + own[chosen] - 2 * weight * weight[chosen] * shared
    found: Array = np.sqrt(np.maximum(0.0, variance))
    return found


def sensitivity(jobs: Jobs) -> Array:
    """How a score moves with the logarithm of an iteration's time: fixed hours do not."""
    found: Array = 1 - jobs.fixed_seconds / (jobs.hours * SECONDS_PER_HOUR)
    return found
