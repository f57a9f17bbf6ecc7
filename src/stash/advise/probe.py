"""Which machine to measure next: the expected improvement of the decision per dollar of probing.

Measuring one machine moves what is believed of all that share something with it. So the question is
not whether the machine itself may be best, but by how much the decision is expected to improve once
its profile is there. Changes when the worth of a measurement is reckoned in another way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from stash.advise.candidates import Grid, Positions
from stash.advise.recommend_belief import Belief
from stash.advise.recommend_choose import Rule, sensitivity
from stash.advise.recommend_job import SECONDS_PER_HOUR, Jobs
from stash.advise.recommendation import Assumptions
from stash.predict.facts import Array

#: What a profile's half-width of 3 % comes to.
PROBE_LOG_SD = 0.02
#: Points at which a measurement's possible outcomes are tried, and how far off a row may lie to be
#: worth trying.
OUTCOMES, WITHIN_SD = 9, 3.0
#: A deadline or budget that turns out to be missed counts more than money or time saved.
OVERRUN_WEIGHT = 10.0
#: Beyond this many nodes a probe tells nothing more of a network.
MAX_PROBE_NODES = 2


@dataclass(frozen=True, eq=False)
class Probes:
    """Every machine that could be measured next."""

    rows: Positions
    cost: Array  # of measuring it, as the job's cost is counted
    gain: Array  # expected, of the score: the relative saving

    @property
    def best(self) -> int:
        """Position of the most gain per cost."""
        return int(np.argmax(self.gain / self.cost))


def probes(
    ways: Grid, belief: Belief, jobs: Jobs, rule: Rule, assumed: Assumptions
) -> Probes | None:
    """What measuring each machine would bring; none where nothing is left to measure."""
    fresh = np.array([row not in belief.measured for row in range(len(ways))])
    rows = np.flatnonzero(fresh & (ways.nodes <= MAX_PROBE_NODES) & np.isfinite(jobs.hours))
    if not len(rows):
        return None
    hours = (assumed.setup_seconds + assumed.profiling_seconds) / SECONDS_PER_HOUR
    cost = jobs.node_hours_price[rows] * max(hours, 1e-9)
    return Probes(rows, cost, gains(belief, jobs, rule, rows))


def gains(belief: Belief, jobs: Jobs, rule: Rule, rows: Positions) -> Array:
    """Expected improvement of the best score by measuring each row: never negative."""
    rivals = _rivals(belief, jobs, rule)
    shared = belief.covariance(rivals, rows)
    spread = np.sqrt(belief.variance[rows] + PROBE_LOG_SD**2)
    outcomes, weights = hermegauss(OUTCOMES)
    weights = weights / weights.sum()
    moved = shared / spread  # of a rival's log time, for an outcome one deviation off
    fixed, training = jobs.fixed_seconds[rivals], _moving_seconds(jobs)[rivals]
    price = jobs.node_hours_price[rivals]
    found = np.zeros(len(rows))
    now = _best(fixed, training, price, rule)
    for outcome, weight in zip(outcomes, weights, strict=True):
        after = training[:, None] * np.exp(moved * outcome)
        decided = _decided(fixed[:, None] + after, price[:, None], rule)
        stayed = decided[now]
        found += weight * (stayed - decided.min(0))
    return found


def _rivals(belief: Belief, jobs: Jobs, rule: Rule) -> Positions:
    """Rows that could turn out best; the others need not be tried."""
    scores = rule.score(jobs.hours, jobs.cost)
    reach = WITHIN_SD * np.sqrt(belief.variance) * sensitivity(jobs)
    hopeful = scores - reach
    kept = rule.keep(jobs.hours, jobs.cost)
    if kept.any():
        best = int(np.argmin(np.where(kept, scores, np.inf)))
        rivals = np.isfinite(jobs.hours) & (hopeful <= scores[best] + reach[best])
    else:
        rivals = np.isfinite(jobs.hours)
    return np.flatnonzero(rivals)


def _moving_seconds(jobs: Jobs) -> Array:
    seconds: Array = jobs.training_seconds + jobs.interrupted_seconds
    return seconds


def _best(fixed: Array, training: Array, price: Array, rule: Rule) -> int:
    return int(np.argmin(_decided((fixed + training)[:, None], price[:, None], rule)[:, 0]))


def _decided(seconds: Array, price: Array, rule: Rule) -> Array:
    """Scores, with what a limit is overrun by added: [rows, probes]."""
    hours = seconds / SECONDS_PER_HOUR
    cost = hours * price
    found = rule.score(hours, cost)
    if rule.deadline_hours is not None:
        found = found + np.maximum(0.0, np.log(hours / rule.deadline_hours)) * OVERRUN_WEIGHT
    if rule.budget is not None:
        found = found + np.maximum(0.0, np.log(cost / rule.budget)) * OVERRUN_WEIGHT
    return found
