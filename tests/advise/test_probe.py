"""Beliefs worked out another way, and probes that are worth what the decision gains by them."""

from __future__ import annotations

import numpy as np
import pytest

from stash.advise import candidates, probe
from stash.advise.candidates import Grid
from stash.advise.recommend import decide
from stash.advise.recommend_belief import Belief, Observation, Timing, believe
from stash.advise.recommend_document import Decision
from stash.advise.recommend_job import Work
from stash.advise.recommendation import Assumptions
from stash.hardware import catalog
from stash.predict import facts

KNOWN = facts.find("resnet50")
NAMES = (
    "p4d.24xlarge",
    "p4de.24xlarge",
    "g4dn.xlarge",
    "g4dn.2xlarge",
    "g5.xlarge",
    "p5.48xlarge",
)


def ways(max_nodes: int = 4) -> Grid:
    return candidates.grid([catalog.find(name) for name in NAMES], max_nodes)


def row_of(grid: Grid, name: str, nodes: int = 1) -> int:
    (row,) = [
        row for row in range(len(grid)) if grid.of(row).name == name and grid.nodes[row] == nodes
    ]
    return row


def measured(grid: Grid, name: str, factor: float, nodes: int = 1) -> Observation:
    """A machine whose GPUs take this many times as long as predicted, and its links as well."""
    row = row_of(grid, name, nodes)
    slowed = np.full(len(grid.kinds), factor)
    blind = candidates.iterations(grid, KNOWN, 32, "amp", slowed)
    return Observation(
        gpu=grid.gpus[grid.instance[row]],
        batch=32,
        dtype="amp",
        solo=Timing(float(blind.solo[row]), 0.01),
        rows=((row, Timing(float(blind.together[row]), 0.01)),),
    )


def believed(grid: Grid, *seen: Observation) -> Belief:
    return believe(grid, KNOWN, 32, "amp", seen)


def decision(grid: Grid, belief: Belief, deadline: float | None = 1000.0) -> Decision:
    work = Work(samples=1_281_167, epochs=20, batch=32)
    return decide(grid, belief, work, Assumptions(), "usd", deadline, None)


def test_without_profiles_beliefs_are_predictions() -> None:
    grid = ways()
    blind = candidates.iterations(grid, KNOWN, 32, "amp")
    belief = believed(grid)
    assert np.array_equal(belief.times.together, blind.together)
    assert not belief.measured


def test_a_profile_pins_its_own_row_and_tells_least_of_other_gpus() -> None:
    grid = ways()
    blind, belief = believed(grid), believed(grid, measured(grid, "g4dn.xlarge", 1.6))
    moved = belief.times.solo / blind.times.solo
    own, same, other = (row_of(grid, n) for n in ("g4dn.xlarge", "g4dn.2xlarge", "p5.48xlarge"))
    assert moved[own] == moved[same] == pytest.approx(1.6, rel=0.01)
    assert 1.3 < moved[other] < moved[same]
    assert belief.variance[own] < belief.variance[same] < belief.variance[other]
    assert belief.variance[other] < blind.variance[other]


def test_beliefs_agree_with_conditioning_of_all_rows_at_once() -> None:
    """Rows that were not measured, by the textbook's formula for normal values."""
    grid = ways(1)
    prior = believed(grid)
    row = row_of(grid, "p4d.24xlarge")
    seen = measured(grid, "p4d.24xlarge", 1.2)
    after = believed(grid, Observation(seen.gpu, 32, "amp", None, seen.rows))
    every = np.arange(len(grid))
    before = prior.covariance(every, every)
    gain = before[:, row] / (before[row, row] + 0.01**2)
    expected = before - np.outer(gain, before[row])
    others = every[every != row]
    assert after.covariance(others, others) == pytest.approx(expected[np.ix_(others, others)])


def test_one_number_of_nodes_does_not_tell_all_of_another() -> None:
    grid = ways()
    two = measured(grid, "p4d.24xlarge", 1.0, nodes=2)
    belief = believed(grid, two)
    four = row_of(grid, "p4d.24xlarge", 4)
    assert belief.variance[row_of(grid, "p4d.24xlarge", 2)] == pytest.approx(0.01**2)
    assert belief.variance[four] > 0.1**2
    assert belief.variance[four] < believed(grid).variance[four]


def test_the_improvement_of_a_probe_is_what_simulated_outcomes_bring() -> None:
    grid = ways(1)
    made = decision(grid, believed(grid, measured(grid, "g5.xlarge", 1.0)))
    found = probe.probes(grid, made.belief, made.jobs, made.rule, Assumptions())
    assert found is not None
    position = int(np.argmax(found.gain))
    row = int(found.rows[position])
    random = np.random.default_rng(1)
    rows = np.arange(len(grid))
    spread = np.sqrt(made.belief.variance[row] + probe.PROBE_LOG_SD**2)
    shift = made.belief.covariance(rows, np.array([row]))[:, 0] / spread
    moved = np.exp(np.outer(random.standard_normal(200_000), shift))
    seconds = made.jobs.fixed_seconds + made.jobs.training_seconds * moved
    scores = np.log(seconds * made.jobs.node_hours_price)
    now = int(np.argmin(np.log(made.jobs.cost)))
    assert found.gain[position] == pytest.approx((scores[:, now] - scores.min(1)).mean(), rel=0.15)


def test_a_probe_is_never_expected_to_hurt_and_nothing_is_measured_twice() -> None:
    grid = ways()
    seen = measured(grid, "p4d.24xlarge", 1.1)
    for deadline in (1000.0, 3.0):
        made = decision(grid, believed(grid, seen), deadline)
        found = probe.probes(grid, made.belief, made.jobs, made.rule, Assumptions())
        assert found is not None
        assert (found.gain > -1e-9).all()
        assert seen.rows[0][0] not in found.rows


def test_of_two_probes_that_bring_the_same_the_cheaper_one_is_named() -> None:
    found = probe.Probes(
        rows=np.array([0, 1, 2]),
        cost=np.array([10.0, 1.0, 0.001]),
        saving=np.array([0.10, 0.10, 0.01]),
        overrun_avoided=np.zeros(3),
    )
    assert found.strongest == 0
    assert found.best == 1  # the third costs next to nothing, and tells next to nothing


def test_when_everything_is_known_no_probe_is_left() -> None:
    grid = candidates.grid([catalog.find("g5.xlarge")], 1)
    made = decision(grid, believed(grid, measured(grid, "g5.xlarge", 1.0)))
    assert probe.probes(grid, made.belief, made.jobs, made.rule, Assumptions()) is None
