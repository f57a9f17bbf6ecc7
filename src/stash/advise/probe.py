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
ENOUGH = 0.5
#: One machine, or two for their network; more only of the ways that lead.
MAX_PROBE_NODES, LEADING = 2, 4


@dataclass(frozen=True, eq=False)
class Probes:
    """Every machine that could be measured next."""

    rows: Positions
    cost: Array  # of measuring it, as the job's cost is counted
    saving: Array  # expected, of what is minimised, as a fraction of it; negative where limits bind
    overrun_avoided: Array  # expected, of deadline or budget, as a fraction of it

    @property
    def gain(self) -> Array:
        """Expected improvement of the decision, never negative."""
        found: Array = self.saving + OVERRUN_WEIGHT * self.overrun_avoided
        return found

    @property
    def best(self) -> int:
        """Position of the most gain per cost, among those that bring half of the most.

        Without that, a machine that costs next to nothing and tells next to nothing would win.
        """
        enough = self.gain >= ENOUGH * self.gain.max()
        return int(np.argmax(np.where(enough, self.gain / self.cost, -1.0)))

    @property
    def strongest(self) -> int:
        """Position of the most gain, whatever it costs."""
        return int(np.argmax(self.gain))


def probes(
    ways: Grid, belief: Belief, jobs: Jobs, rule: Rule, assumed: Assumptions
) -> Probes | None:
    """What measuring each machine would bring; none where nothing is left to measure."""
    worth = np.isfinite(jobs.hours) & (ways.nodes <= MAX_PROBE_NODES)
    worth[_leading(jobs, rule)] = True
    worth[list(belief.measured)] = False
    rows = np.flatnonzero(worth)
    if not len(rows):
        return None
    hours = (assumed.setup_seconds + assumed.profiling_seconds) / SECONDS_PER_HOUR
    cost = jobs.node_hours_price[rows] * max(hours, 1e-9)
    return Probes(rows, cost, *_improvements(belief, jobs, rule, rows))


def _improvements(belief: Belief, jobs: Jobs, rule: Rule, rows: Positions) -> tuple[Array, Array]:
    """What deciding after each measurement saves over deciding now: of the score, of overruns."""
    rivals = _rivals(belief, jobs, rule)
    shared = belief.covariance(rivals, rows)
    spread = np.sqrt(belief.variance[rows] + PROBE_LOG_SD**2)
    outcomes, weights = hermegauss(OUTCOMES)
    weights = weights / weights.sum()
    moved = shared / spread  # of a rival's log time, for an outcome one deviation off
    fixed, training = jobs.fixed_seconds[rivals], _moving_seconds(jobs)[rivals]
    price = jobs.node_hours_price[rivals]
    saving, avoided = np.zeros(len(rows)), np.zeros(len(rows))
    now = int(np.argmin(_decided(fixed + training, price, rule)))
    every = np.arange(len(rows))
    for outcome, weight in zip(outcomes, weights, strict=True):
        seconds = fixed[:, None] + training[:, None] * np.exp(moved * outcome)
        score, overrun = _judged(seconds, price[:, None], rule)
        then = np.argmin(score + OVERRUN_WEIGHT * overrun, axis=0)
        saving += weight * (score[now] - score[then, every])
        avoided += weight * (overrun[now] - overrun[then, every])
    return saving, avoided


def _leading(jobs: Jobs, rule: Rule) -> Positions:
    """The ways that look best now: to measure one of them as it would be rented may be worth it."""
    finite = np.flatnonzero(np.isfinite(jobs.hours))
    seconds = jobs.hours[finite] * SECONDS_PER_HOUR
    order = np.argsort(_decided(seconds, jobs.node_hours_price[finite], rule))
    found: Positions = finite[order[:LEADING]]
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


def _decided(seconds: Array, price: Array, rule: Rule) -> Array:
    score, overrun = _judged(seconds, price, rule)
    found: Array = score + OVERRUN_WEIGHT * overrun
    return found


def _judged(seconds: Array, price: Array, rule: Rule) -> tuple[Array, Array]:
    """Scores, and by how much limits are overrun, both as logarithms."""
    hours = seconds / SECONDS_PER_HOUR
    cost = hours * price
    overrun = np.zeros(hours.shape)
    if rule.deadline_hours is not None:
        overrun += np.maximum(0.0, np.log(hours / rule.deadline_hours))
    if rule.budget is not None:
        overrun += np.maximum(0.0, np.log(cost / rule.budget))
    return rule.score(hours, cost), overrun
