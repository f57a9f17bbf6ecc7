"""What is believed of every way's iteration time: predictions, corrected by profiles.

The logarithm of measured over predicted time is a sum of normal effects: one of the model and its
software, common to all machines; one a kind of GPU; one of exchange, common to all machines, and
one a machine type; the same two of networks; and one of each number of nodes alone. A profile pins
those that it has seen, and tells something of all machines that share one.
Changes when another effect is told apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stash.advise import candidates
from stash.advise.candidates import Flags, Grid, Iterations, Positions
from stash.hardware.gpus import Gpu
from stash.predict import compute
from stash.predict.constants import FITTED
from stash.predict.facts import Array, ModelFacts
from stash.predict.uncertainty import band

#: Normal quantile of the predictor's bands, and of measured intervals.
BAND_QUANTILE, MEASURED_QUANTILE = 1.645, 1.960
#: Spread of log(measured / predicted) among GPUs of one source, model and precision: what remains
#: between kinds of GPUs once one of them is known (`benchmarks/recommend_public.py` prints it).
GPU_LOG_SD = 0.18
#: Numbers of nodes of one source, model and machine differ by the first (the same script). The
#: second is the least that a network is taken to be off by: an assumption, below the 0.34 between
#: such groups, part of which is the GPUs'.
NODES_LOG_SD, NETWORK_LOG_SD = 0.12, 0.2
#: What exchange inside machines has in common, and that share of the variance of networks: one job
#: brings the same software everywhere. The first is the spread among sources; of the second public
#: data tell too little, so half of it is an assumption.
EXCHANGE_LOG_SD, COMMON_OF_NETWORKS = 0.05, 0.5
#: The least that two runs of one job differ by; and what a profile without interval weighs.
LEAST_LOG_SD, LOG_SD_WITHOUT_INTERVAL = 0.01, 0.1
#: Compute and exchange overlap, so one depends on the other; by then nothing moves any more.
PASSES = 3


@dataclass(frozen=True)
class Timing:
    """Measured seconds per iteration, and how sure."""

    seconds: float
    log_sd: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Observation:
    """What one profile tells of times without data."""

    gpu: Gpu
    batch: int
    dtype: str
    solo: Timing | None
    rows: tuple[tuple[int, Timing], ...]  # ways of the grid that it has measured


@dataclass(frozen=True, eq=False)
class Belief:
    """Times of all rows, and how far they may be off, together or apart."""

    times: Iterations
    low: Array  # seconds per iteration with gradients exchanged
    high: Array
    measured: dict[int, Timing]  # rows that were measured themselves
    effects: Array  # [rows, effects]
    covariance_of_effects: Array
    own_variance: Array  # of each row alone

    def covariance(self, rows: Positions, others: Positions) -> Array:
        """Of log times: [rows, others]."""
        shared = self.effects[rows] @ self.covariance_of_effects @ self.effects[others].T
        found: Array = shared + np.where(
            rows[:, None] == others, self.own_variance[rows][:, None], 0.0
        )
        return found

    @cached_property
    def variance(self) -> Array:
        return _variance(self.effects, self.covariance_of_effects) + self.own_variance


def log_sd(low: float | None, high: float | None) -> float:
    """Of a measured time, from its interval."""
    if low is None or high is None or low <= 0:
        return LOG_SD_WITHOUT_INTERVAL
    return max(LEAST_LOG_SD, math.log(high / low) / (2 * MEASURED_QUANTILE))


def believe(
    ways: Grid, known: ModelFacts, batch: int, dtype: str, seen: Sequence[Observation]
) -> Belief:
    """Predictions where nothing was measured, corrected by whatever was."""
    kinds = [*ways.kinds, *{o.gpu.key: o.gpu for o in seen if o.gpu not in ways.kinds}.values()]
    effects = _effects(ways, len(kinds))
    factor = np.ones(len(kinds))
    mean, covariance = np.zeros(effects.shape[1]), np.eye(effects.shape[1])
    for _ in range(PASSES if seen else 0):
        evidence = _evidence(ways, known, seen, kinds, factor, effects)
        mean, covariance = _posterior(*evidence)
        factor = np.exp(_kind_effects(len(kinds), effects.shape[1]) @ mean)
    times = candidates.iterations(ways, known, batch, dtype, factor[: len(ways.kinds)])
    measured = {
        row: timing
        for one in seen
        if (one.batch, one.dtype) == (batch, dtype)
        for row, timing in one.rows
    }
    times = _shifted(ways, times, effects, mean, len(kinds), measured)
    own = np.where(ways.nodes > 1, NODES_LOG_SD**2, 0.0)
    for row, timing in measured.items():
        # What is left is the error of the reading, which is nobody else's.
        effects[row], own[row] = 0.0, timing.log_sd**2
    variance = _variance(effects, covariance) + own
    low, high = _bounds(ways, times, variance, {o.gpu.key for o in seen}, measured)
    return Belief(times, low, high, measured, effects, covariance, own)


def _effects(ways: Grid, kinds: int) -> Array:
    """How strongly each effect moves each row's log time.

    Columns: the model; kinds of GPUs; exchange inside all machines, and across all networks; single
    machines; single networks.
    """
    rows = np.arange(len(ways))
    count = len(ways.instances)
    found = np.zeros((len(ways), 1 + kinds + 2 + 2 * count))
    found[:, 0] = _common_log_sd()
    found[rows, 1 + ways.kind] = GPU_LOG_SD
    machine, network = _link_log_sd(ways)
    found[:, 1 + kinds] = np.where(ways.workers > 1, EXCHANGE_LOG_SD, 0.0)
    found[:, 2 + kinds] = network * math.sqrt(COMMON_OF_NETWORKS)
    alone = np.sqrt(machine**2 - found[:, 1 + kinds] ** 2)
    found[rows, 3 + kinds + ways.instance] = alone
    found[rows, 3 + kinds + count + ways.instance] = network * math.sqrt(1 - COMMON_OF_NETWORKS)
    return found


def _kind_effects(kinds: int, effects: int) -> Array:
    found = np.zeros((kinds, effects))
    found[:, 0] = _common_log_sd()
    found[np.arange(kinds), 1 + np.arange(kinds)] = GPU_LOG_SD
    return found


def _evidence(
    ways: Grid,
    known: ModelFacts,
    seen: Sequence[Observation],
    kinds: Sequence[Gpu],
    factor: Array,
    effects: Array,
) -> tuple[Array, Array, Array]:
    """Observations as rows of a linear model: effects, values, variances."""
    of_kind = _kind_effects(len(kinds), effects.shape[1])
    position = {gpu.key: number for number, gpu in enumerate(kinds)}
    predicted = {
        (one.batch, one.dtype): candidates.iterations(
            ways, known, one.batch, one.dtype, factor[: len(ways.kinds)]
        ).together
        for one in {(o.batch, o.dtype): o for o in seen if o.rows}.values()
    }
    rows: list[Array] = []
    values: list[float] = []
    variances: list[float] = []
    for one in seen:
        kind = position[one.gpu.key]
        if one.solo is not None:
            rows.append(of_kind[kind])
            values.append(math.log(one.solo.seconds / _solo(known, one)))
            variances.append(one.solo.log_sd**2)
        for row, timing in one.rows:
            expected = predicted[one.batch, one.dtype][row]
            rows.append(effects[row])
            # The prediction has the factor in it already; the effects are counted from none.
            values.append(math.log(timing.seconds / expected) + math.log(factor[kind]))
            variances.append(timing.log_sd**2 + (NODES_LOG_SD**2 if ways.nodes[row] > 1 else 0.0))
    return np.array(rows), np.array(values), np.array(variances)


def _posterior(rows: Array, values: Array, variances: Array) -> tuple[Array, Array]:
    """Of independent standard normal effects, given linear observations of them."""
    gain = rows.T @ np.linalg.inv(rows @ rows.T + np.diag(variances))
    return gain @ values, np.eye(rows.shape[1]) - gain @ rows


def _shifted(
    ways: Grid,
    times: Iterations,
    effects: Array,
    mean: Array,
    kinds: int,
    measured: dict[int, Timing],
) -> Iterations:
    """Machines and networks as far off as they were seen to be; measured rows as measured."""
    links = effects.copy()
    links[:, : 1 + kinds] = 0.0
    together = times.together * np.exp(links @ mean)
    for row, timing in measured.items():
        together[row] = timing.seconds
    return Iterations(times.solo, together[ways.one_node], together)


def _bounds(
    ways: Grid,
    times: Iterations,
    variance: Array,
    seen_gpus: set[str],
    measured: dict[int, Timing],
) -> tuple[Array, Array]:
    """The predictor's bands, narrowed as much as profiles narrow what is believed."""
    calibrated = np.array([gpu.key in seen_gpus for gpu in ways.kinds])[ways.kind]
    machine, network = _link_log_sd(ways)
    links = machine**2 + network**2 + np.where(ways.nodes > 1, NODES_LOG_SD**2, 0.0)
    before = links + np.where(calibrated, 0.0, _common_log_sd() ** 2 + GPU_LOG_SD**2)
    narrowed = np.sqrt(variance / before)
    low, high = _band_logs(ways, calibrated)
    low, high = (times.together * np.exp(bound * narrowed) for bound in (low, high))
    for row, timing in measured.items():
        low[row] = timing.seconds if timing.low is None else timing.low
        high[row] = timing.seconds if timing.high is None else timing.high
    return low, high


def _band_logs(ways: Grid, calibrated: Flags) -> tuple[Array, Array]:
    low, high = np.empty(len(ways)), np.empty(len(ways))
    alone = (ways.workers == 1) & ~calibrated
    several = ways.nodes > 1
    for setting, known in (("calibrated", calibrated), ("blind", ~calibrated)):
        for kind, rows in (
            ("solo", known & alone),
            ("node", known & ~several & ~alone),
            ("nodes", known & several),
        ):
            if rows.any():
                bounds = band(setting, kind)
                low[rows], high[rows] = math.log(bounds.low), math.log(bounds.high)
    return low, high


def _link_log_sd(ways: Grid) -> tuple[float, Array]:
    """How far a machine, and its network, are off once the GPU's own time is known."""
    machine = _band_log_sd("calibrated", "node")
    network = _band_log_sd("calibrated", "nodes") ** 2 - machine**2 - NODES_LOG_SD**2
    network = math.sqrt(max(network, NETWORK_LOG_SD**2))
    return machine, np.where(ways.nodes > 1, network, 0.0)


def _variance(effects: Array, covariance: Array) -> Array:
    found: Array = np.einsum("ij,ij->i", effects @ covariance, effects)
    return found


def _common_log_sd() -> float:
    """What is left of the spread of a prediction from specifications alone."""
    return math.sqrt(_band_log_sd("blind", "solo") ** 2 - GPU_LOG_SD**2)


def _band_log_sd(setting: str, kind: str) -> float:
    bounds = band(setting, kind)
    return math.log(bounds.high / bounds.low) / (2 * BAND_QUANTILE)


def _solo(known: ModelFacts, one: Observation) -> float:
    device = compute.devices([one.gpu], [one.dtype], FITTED)
    layers = compute.layer_seconds(known, np.array([float(one.batch)]), device, FITTED)
    return float(layers.whole[0])
